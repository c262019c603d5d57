import { type Figure, median } from "../support/figure.ts";
import { withClient } from "../support/server.ts";
import { type Contest, settingsOf } from "./comparison.ts";
import { Session } from "./session.ts";

const AHEAD = 20_000;
const HELD_PAIRS = 5;
const HELD_MS = 60_000;
const LAST_MS = 15_000;
const BACKLOG_PAIRS = 5;
const BACKLOG = 2_000_000;
const MEASURED_TASKS = 300_000;
const WARM_UP_MS = 2_000;

/** Ours under a snapshot that holds back every clean-up, against ours without, second by second. */
export async function heldSnapshotFigure(contest: Contest): Promise<Figure> {
  const control: number[] = [];
  const held: number[] = [];
  for (let pair = 0; pair < HELD_PAIRS; pair += 1) {
    // Who is first changes: a machine that becomes slower must not look like a loss.
    const isHeldFirst = pair % 2 === 1;
    const first = await lateRate(contest, isHeldFirst);
    const second = await lateRate(contest, !isHeldFirst);
    control.push(isHeldFirst ? second : first);
    held.push(isHeldFirst ? first : second);
  }
  return {
    figure: "tasks.held_snapshot_loss",
    value: median(held.map((rate, pair) => 1 - rate / (control[pair] ?? Number.NaN))),
    ours: median(held),
    anchor: median(control),
    unit: "of the tasks/s without the snapshot",
    settings: {
      ...settingsOf(contest),
      pairs: HELD_PAIRS,
      heldMs: HELD_MS,
      lastMs: LAST_MS,
      ahead: AHEAD,
      held,
      control,
    },
  };
}

async function lateRate({ stage, ours }: Contest, isHeld: boolean): Promise<number> {
  await using session = await Session.open(stage, ours, { purpose: "throughput" });
  await session.startWorker();
  await session.steady({ ahead: AHEAD, warmUpMs: WARM_UP_MS, until: { ms: WARM_UP_MS } });
  return await withClient(session.url, async (client) => {
    if (isHeld) {
      await client.query("BEGIN ISOLATION LEVEL REPEATABLE READ");
      await client.query("SELECT count(*) FROM pg_class");
    }
    const late = { ahead: AHEAD, warmUpMs: HELD_MS - LAST_MS, until: { ms: LAST_MS } };
    return (await session.steady(late)).perSecond;
  });
}

/** The same cycle with few and with very many tasks pending; and what the worker needs for them. */
export async function backlogFigures(contest: Contest): Promise<Figure[]> {
  const few: number[] = [];
  const many: number[] = [];
  const memory: number[] = [];
  for (let pair = 0; pair < BACKLOG_PAIRS; pair += 1) {
    few.push((await withPending(contest, AHEAD)).perSecond);
    const { perSecond, rss } = await withPending(contest, BACKLOG);
    many.push(perSecond);
    memory.push(rss);
  }
  const settings = {
    ...settingsOf(contest),
    pairs: BACKLOG_PAIRS,
    measuredTasks: MEASURED_TASKS,
    pending: BACKLOG,
    few,
    many,
  };
  return [
    {
      figure: "tasks.backlog_2m_vs_20k",
      value: median(many.map((rate, pair) => rate / (few[pair] ?? Number.NaN))),
      ours: median(many),
      anchor: median(few),
      unit: "of the tasks/s with 20,000 pending",
      settings,
    },
    {
      figure: "tasks.worker_rss_mb",
      value: Math.max(...memory),
      unit: "MiB, the most that the worker process ever held",
      settings,
    },
  ];
}

async function withPending(
  { stage, ours }: Contest,
  pending: number,
): Promise<{ perSecond: number; rss: number }> {
  await using session = await Session.open(stage, ours, { purpose: "throughput" });
  await session.fill(pending);
  const worker = await session.startWorker();
  const { perSecond, pending: left } = await session.steady({
    ahead: pending,
    warmUpMs: WARM_UP_MS,
    until: { handled: MEASURED_TASKS },
  });
  if (!(left >= pending / 2)) throw new Error(`only ${left} of ${pending} tasks were kept pending`);
  return { perSecond, rss: await worker.call({ do: "rss" }) };
}
