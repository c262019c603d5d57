import { type Figure, median } from "../support/figure.ts";
import { Spoken } from "../support/spoken.ts";
import { settingsOf } from "../tasks/comparison.ts";
import { freePorts } from "../tasks/ports.ts";
import { Session, type Window } from "../tasks/session.ts";
import type { Stage } from "../tasks/stage.ts";
import type { TaskSystem } from "../tasks/system.ts";
import { tidemill } from "../tasks/systems/tidemill.ts";

const program = (file: string): URL => new URL(file, import.meta.url);
const CLIENTS = 500;
/** Of watched tasks, each told to every client: with the waits between bursts 20,000 deliveries. */
const CHANGES_PER_SECOND = 44;

interface Scale {
  readonly pairs: number;
  readonly window: Window;
}

const FULL: Scale = {
  pairs: 5,
  window: { ahead: 20_000, warmUpMs: 2_000, until: { ms: 8_000 } },
};
const QUICK: Scale = {
  pairs: 3,
  window: { ahead: 20_000, warmUpMs: 1_000, until: { ms: 2_000 } },
};

/** What clients were told while the engine ran at full speed. */
interface Watched {
  readonly changes: number;
  readonly seconds: number;
  readonly missed: number;
  /** Of the first client. */
  readonly repeated: number;
  /** Clients that were told anything else than the first. */
  readonly different: number;
  readonly lagged: number;
}

interface Run {
  readonly perSecond: number;
  readonly watched: Watched | undefined;
}

/**
 * Producer and worker run as fast as they can, beside a server. In every second run, 500 clients
 * read its feed, each told of every change of one queue, in which a few tasks run all the time.
 */
export async function* sseFigures(stage: Stage, quick: boolean): AsyncGenerator<Figure> {
  const { pairs, window } = quick ? QUICK : FULL;
  // What is watched is in the same tables, so that what was enqueued is not all that is there.
  const system: TaskSystem = { ...tidemill(), verify: async () => {} };
  const engine = { stage, system };
  const off: number[] = [];
  const on: number[] = [];
  const watched: Watched[] = [];
  for (let pair = 0; pair < pairs; pair += 1) {
    // The one that goes first finds another machine than the second: they take turns.
    for (const isOn of pair % 2 === 0 ? [false, true] : [true, false]) {
      const run = await measure(engine, window, isOn);
      (isOn ? on : off).push(run.perSecond);
      if (run.watched !== undefined) watched.push(run.watched);
    }
  }
  const sum = (of: (one: Watched) => number): number =>
    watched.reduce((total, one) => total + of(one), 0);
  const deliveriesPerSecond = (sum((one) => one.changes) * CLIENTS) / sum((one) => one.seconds);
  const settings = {
    ...settingsOf({ stage, ours: system, peers: [], quick }),
    pairs,
    window,
    clients: CLIENTS,
    deliveriesPerSecond,
    lagged: sum((one) => one.lagged),
    repeated: sum((one) => one.repeated),
    different: sum((one) => one.different),
  };
  yield {
    figure: "feeds.sse_missed",
    value: sum((one) => one.missed),
    unit: "changes that a client was not told of",
    settings,
  };
  yield {
    figure: "feeds.sse_throughput_loss",
    value: median(on.map((rate, pair) => 1 - rate / (off[pair] ?? Number.NaN))),
    ours: median(on),
    anchor: median(off),
    unit: "of the tasks/s while nobody listens",
    settings,
  };
}

interface Engine {
  readonly stage: Stage;
  readonly system: TaskSystem;
}

async function measure({ stage, system }: Engine, window: Window, isOn: boolean): Promise<Run> {
  await using session = await Session.open(stage, system, { purpose: "throughput" });
  const { http } = await freePorts();
  const { url } = session;
  await using server = await Spoken.start(program("server-program.ts"), {
    url,
    port: http,
    changesPerSecond: CHANGES_PER_SECOND,
  });
  const clients = { port: http, clients: isOn ? CLIENTS : 0 };
  await using readers = await Spoken.start(program("readers-program.ts"), clients);
  await session.startWorker();
  await server.ask<object>("begin");
  const { perSecond } = await session.steady(window);
  const { changes, seconds } = await server.ask<{ changes: number; seconds: number }>("end");
  if (!isOn) return { perSecond, watched: undefined };
  const told = await readers.ask<Omit<Watched, "changes" | "seconds">>(`told ${changes}`);
  return { perSecond, watched: { changes, seconds, ...told } };
}
