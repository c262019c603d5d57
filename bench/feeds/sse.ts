import { type Bar, type Figure, median } from "../support/figure.ts";
import { Spoken } from "../support/spoken.ts";
import { settingsOf } from "../tasks/comparison.ts";
import { freePorts } from "../tasks/ports.ts";
import { Session, type Window } from "../tasks/session.ts";
import type { Stage } from "../tasks/stage.ts";
import type { TaskSystem } from "../tasks/system.ts";
import { tidemill } from "../tasks/systems/tidemill.ts";

const program = (file: string): URL => new URL(file, import.meta.url);
const CLIENTS = 500;
/** Of watched tasks, each told to every client, whether or not it keeps up: 22,500 deliveries. */
const CHANGES_PER_SECOND = 45;
const DELIVERIES_PER_SECOND = 20_000;
const LOSS_MAX = 0.15;

interface Scale {
  readonly pairs: number;
  /** More, with one client beside the others that does not read. */
  readonly stalledRuns: number;
  readonly window: Window;
}

const FULL: Scale = {
  pairs: 5,
  stalledRuns: 3,
  window: { ahead: 20_000, warmUpMs: 2_000, until: { ms: 8_000 } },
};
const QUICK: Scale = {
  pairs: 3,
  stalledRuns: 1,
  window: { ahead: 20_000, warmUpMs: 1_000, until: { ms: 4_000 } },
};

/** What clients were told while the engine ran at full speed. */
interface Watched {
  readonly deliveries: number;
  /** From the first change to the last delivery. */
  readonly seconds: number;
  readonly missed: number;
  /** Of the first client. */
  readonly repeated: number;
  /** Clients that were told anything else than the first. */
  readonly different: number;
  readonly lagged: number;
  readonly delayP99Ms: number;
  /** How often the one that does not read was told that it has lagged. */
  readonly stalledLagged: number;
  readonly rssMiB: number;
}

interface Run {
  readonly perSecond: number;
  readonly watched: Watched | undefined;
}

type Listening = "nobody" | "clients" | "one stalled";

/**
 * Producer and worker run as fast as they can, beside a server. In every second run, 500 clients
 * read its feed, each told of every change of one queue, in which a few tasks run all the time;
 * then again beside one that wants every change of all tasks and takes none.
 */
export async function* sseFigures(stage: Stage, quick: boolean): AsyncGenerator<Figure> {
  const { pairs, stalledRuns, window } = quick ? QUICK : FULL;
  // What is watched is in the same tables, so that what was enqueued is not all that is there.
  const system: TaskSystem = { ...tidemill(), verify: async () => {} };
  const engine = { stage, system };
  const off: number[] = [];
  const on: number[] = [];
  const watched: Watched[] = [];
  for (let pair = 0; pair < pairs; pair += 1) {
    // The one that goes first finds another machine than the second: they take turns.
    const order: Listening[] = pair % 2 === 0 ? ["nobody", "clients"] : ["clients", "nobody"];
    for (const listening of order) {
      const run = await measure(engine, window, listening);
      (run.watched === undefined ? off : on).push(run.perSecond);
      if (run.watched !== undefined) watched.push(run.watched);
    }
  }
  const beside: Watched[] = [];
  for (let run = 0; run < stalledRuns; run += 1) {
    const { watched: one } = await measure(engine, window, "one stalled");
    if (one !== undefined) beside.push(one);
  }
  const settings = {
    ...settingsOf({ stage, ours: system, peers: [], quick }),
    pairs,
    stalledRuns,
    window,
    clients: CLIENTS,
    askedPerSecond: CHANGES_PER_SECOND * CLIENTS,
  };
  for (const figure of toldFigures(watched, beside)) yield { ...figure, settings };
  yield {
    figure: "feeds.sse_throughput_loss",
    value: median(on.map((rate, pair) => 1 - rate / (off[pair] ?? Number.NaN))),
    ours: median(on),
    anchor: median(off),
    unit: "of the tasks/s while nobody listens",
    bar: { atMost: LOSS_MAX },
    settings,
  };
}

function toldFigures(
  watched: readonly Watched[],
  beside: readonly Watched[],
): Omit<Figure, "settings">[] {
  const all = [...watched, ...beside];
  const sum = (of: (one: Watched) => number): number =>
    all.reduce((total, one) => total + of(one), 0);
  const middle = (runs: readonly Watched[], of: (one: Watched) => number): number =>
    median(runs.map(of));
  const none: Bar = { atMost: 0 };
  const counts = (["missed", "lagged", "repeated", "different"] as const).map((name) => ({
    figure: `feeds.sse_${name}`,
    value: sum((one) => one[name]),
    unit: UNITS[name],
    bar: none,
  }));
  return [
    {
      figure: "feeds.sse_deliveries_per_s",
      value: sum((one) => one.deliveries) / sum((one) => one.seconds),
      unit: "changes/s that clients were told of",
      bar: { atLeast: DELIVERIES_PER_SECOND },
    },
    ...counts,
    {
      figure: "feeds.sse_stalled_lagged",
      value: Math.min(...beside.map((one) => one.stalledLagged)),
      unit: "times that the one that does not read was told so",
      bar: { atLeast: 1 },
    },
    {
      figure: "feeds.sse_stalled_delay_p99",
      value: middle(beside, (one) => one.delayP99Ms) / middle(watched, (one) => one.delayP99Ms),
      ours: middle(beside, (one) => one.delayP99Ms),
      anchor: middle(watched, (one) => one.delayP99Ms),
      unit: "of the ms (p99) that others wait without the stalled one",
    },
    {
      figure: "feeds.sse_stalled_rss",
      value: middle(beside, (one) => one.rssMiB) / middle(watched, (one) => one.rssMiB),
      ours: middle(beside, (one) => one.rssMiB),
      anchor: middle(watched, (one) => one.rssMiB),
      unit: "of the MiB of the server without the stalled one",
    },
  ];
}

const UNITS = {
  missed: "changes that a client was not told of",
  lagged: "times that a client that reads was told that it did not",
  repeated: "changes that the first client was told twice",
  different: "clients that were told anything else than the first",
} as const;

interface Engine {
  readonly stage: Stage;
  readonly system: TaskSystem;
}

async function measure(
  { stage, system }: Engine,
  window: Window,
  listening: Listening,
): Promise<Run> {
  await using session = await Session.open(stage, system, { purpose: "throughput" });
  const { http } = await freePorts();
  const { url } = session;
  await using server = await Spoken.start(program("server-program.ts"), {
    url,
    port: http,
    changesPerSecond: CHANGES_PER_SECOND,
  });
  await using readers = await Spoken.start(program("readers-program.ts"), {
    port: http,
    clients: listening === "nobody" ? 0 : CLIENTS,
    isOneStalled: listening === "one stalled",
  });
  await session.startWorker();
  await readers.ask<object>("begin");
  await server.ask<object>("begin");
  const { perSecond } = await session.steady(window);
  const { changes, rssMiB } = await server.ask<{ changes: number; rssMiB: number }>("end");
  if (listening === "nobody") return { perSecond, watched: undefined };
  const told = await readers.ask<Omit<Watched, "rssMiB">>(`told ${changes}`);
  return { perSecond, watched: { ...told, rssMiB } };
}
