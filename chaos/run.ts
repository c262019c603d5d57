import { setTimeout as delay } from "node:timers/promises";
import type { FaultRecord } from "../src/checker/history.ts";
import type { Truth } from "../src/checker/truth.ts";
import { Tidemill } from "../src/index.ts";
import { Random } from "../test/support/random.ts";
import { untilAllMove } from "./calm.ts";
import type { Fault } from "./faults/fault.ts";
import { HistoryWriter } from "./history.ts";
import { asHarness, leftoversOf, sessionsLeft } from "./leftovers.ts";
import { readTruth } from "./read-truth.ts";
import { cure, PARKING, SCHEDULE, WORKERS } from "./scene.ts";
import { Stage } from "./stage.ts";
import { inTurn } from "./turns.ts";
import { Watcher } from "./watcher.ts";

export interface RunOptions {
  readonly seconds: number;
  readonly seed: number;
  readonly faults: readonly Fault[];
  /** Where the histories go. */
  readonly folder: string;
  /** Told what happens. */
  readonly say: (line: string) => void;
}

/** Who ends nothing for so long will not do so later. */
const STUCK_MS = 30_000;
const PROGRESS_MS_MAX = 30_000;
const RERUN_MS_MAX = 5_000;
const ALL_MOVE_MS_MAX = 5_000;
/** Between two faults, so that there is something to break. */
const CALM_MS = 500;

/** Runs the load, breaks things one after another, waits for quiet and reads what is left. */
export async function run(options: RunOptions): Promise<Truth> {
  const { seconds, seed, folder, say } = options;
  using history = new HistoryWriter(folder, "harness");
  await using stage = await Stage.open({ folder, seed, history });
  await using watcher = new Watcher(asHarness(stage.server.url), history);
  await Promise.all([stage.scaleTo(WORKERS), stage.openRemote()]);
  await stage.startLoad();
  await watcher.untilProgress(performance.now(), PROGRESS_MS_MAX);
  const endsAtMs = performance.now() + seconds * 1_000;
  const random = new Random(seed);
  for (const fault of inTurn(options.faults, random)) {
    if (performance.now() >= endsAtMs) break;
    await delay(CALM_MS);
    const record = await strike(fault, stage, watcher, random);
    history.add({ op: "fault", fault: record });
    const recovered =
      record.recoveredMs === null ? "never" : `${Math.round(record.recoveredMs)} ms`;
    say(`${fault.kind} (${record.targets.join(", ")}): work went on after ${recovered}`);
    await Promise.all([stage.scaleTo(WORKERS), stage.remote.up(), stage.vacuum()]);
    await stage.withClient((client) => untilAllMove(client, ALL_MOVE_MS_MAX));
  }
  say("the load ends");
  await Promise.all(stage.producers.map((producer) => producer.stop()));
  const mill = await Tidemill.connect(stage.server.url);
  await mill.schedules.pause(SCHEDULE);
  await stage.withClient(cure);
  await untilQuiet(stage, say);
  await mill.consumers.resume(PARKING);
  await untilQuiet(stage, say);
  await mill.close();
  const leftovers = await stage.withClient(leftoversOf);
  await Promise.all([stage.scaleTo(0), stage.remote.stop()]);
  leftovers.push(...(await stage.withClient(sessionsLeft)));
  return await stage.withClient((client) => readTruth(client, leftovers));
}

async function strike(
  fault: Fault,
  stage: Stage,
  watcher: Watcher,
  random: Random,
): Promise<FaultRecord> {
  const fromMs = Date.now();
  const targets = await fault.strike(stage, random);
  const toMs = Date.now();
  const recoveredMs = await watcher.untilProgress(performance.now(), PROGRESS_MS_MAX);
  await stage.untilHeldMoved(RERUN_MS_MAX);
  return {
    kind: fault.kind,
    targets,
    fromMs,
    toMs,
    recoveredMs: Number.isFinite(recoveredMs) ? recoveredMs : null,
    boundMs: fault.boundMs,
  };
}

interface Left {
  readonly tasks: number;
  readonly replaying: number;
  readonly behind: number;
  readonly handled: string;
}

const LEFT = `
  SELECT (SELECT count(*)::int FROM tidemill.live_tasks) AS tasks,
         (SELECT count(*)::int FROM tidemill.parked_streams
           WHERE state = 'replaying') AS replaying,
         (SELECT count(*)::int FROM tidemill.consumer_checkpoints
           WHERE last_position < (SELECT COALESCE(max(global_position), 0)
                                    FROM tidemill.events)) AS behind,
         (SELECT sum(last_position)::text FROM tidemill.consumer_checkpoints) AS handled`;

/** Who should do what is left. */
const WHO = `
  SELECT checkpoint.consumer_name, checkpoint.last_position, assignment.worker_id, state.state,
         state.reason, state.error
    FROM tidemill.consumer_checkpoints AS checkpoint
    LEFT JOIN tidemill.consumer_assignments AS assignment USING (consumer_name)
    LEFT JOIN tidemill.consumer_states AS state USING (consumer_name)`;

/** Who may run what is limited. */
const GRANTS = "SELECT queue, worker_id, slots FROM tidemill.limit_grants";

/** Until nothing is left to do. What is left when nothing ends any more is stuck. */
async function untilQuiet(stage: Stage, say: (line: string) => void): Promise<void> {
  await stage.withClient(async (client) => {
    let before = "";
    let movedAtMs = performance.now();
    while (performance.now() - movedAtMs < STUCK_MS) {
      const [left] = (await client.query<Left>(LEFT)).rows;
      if (left?.tasks === 0 && left.replaying === 0 && left.behind === 0) return;
      const now = JSON.stringify(left);
      if (now !== before) movedAtMs = performance.now();
      before = now;
      await delay(200);
    }
    say(`not quiet: ${before}`);
    for (const text of [WHO, GRANTS]) say(JSON.stringify((await client.query(text)).rows));
  });
}
