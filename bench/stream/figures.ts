import { type Figure, median, quantile } from "../support/figure.ts";
import type { BenchServer } from "../support/server.ts";
import { type Contest, settingsOf } from "../tasks/comparison.ts";
import type { OpenOptions } from "../tasks/protocol.ts";
import { type Measured, Session, type Window } from "../tasks/session.ts";
import { Stage } from "../tasks/stage.ts";
import type { TaskSystem } from "../tasks/system.ts";
import { tidemill } from "../tasks/systems/tidemill.ts";
import { remoteTidemill, restTidemill } from "./system.ts";

const PER_MESSAGE = 64;
const MANY_STREAMS = 1_000;

interface Scale {
  readonly pairs: number;
  readonly window: Window;
  /** With one task in each message there is less ahead, or a window would only see the backlog. */
  readonly single: Window;
  readonly rest: Window;
  readonly samples: number;
}

const FULL: Scale = {
  pairs: 5,
  window: { ahead: 20_000, warmUpMs: 2_000, until: { ms: 8_000 } },
  single: { ahead: 5_000, warmUpMs: 2_000, until: { ms: 8_000 } },
  rest: { ahead: 2_000, warmUpMs: 2_000, until: { ms: 8_000 } },
  samples: 5_000,
};
const QUICK: Scale = {
  pairs: 3,
  window: { ahead: 20_000, warmUpMs: 1_000, until: { ms: 1_500 } },
  single: { ahead: 5_000, warmUpMs: 1_000, until: { ms: 1_500 } },
  rest: { ahead: 2_000, warmUpMs: 1_000, until: { ms: 1_500 } },
  samples: 500,
};

/** The stream suite: remote producers and workers, against the same engine in their process. */
export async function* streamFigures(server: BenchServer, quick: boolean): AsyncGenerator<Figure> {
  const scale = quick ? QUICK : FULL;
  await using stage = new Stage(server, { reuseProcesses: quick });
  const remote = remoteTidemill();
  const contest: Contest = { stage, ours: tidemill(), peers: [remote], quick };
  yield* await cycleFigures(contest, remote, scale);
  yield await singleFigure(contest, remote, scale);
  yield await restFigure(contest, restTidemill(), scale);
  yield* await manyStreamsFigures(contest, remote, scale);
}

async function cycleFigures(
  contest: Contest,
  remote: TaskSystem,
  { pairs, window }: Scale,
): Promise<Figure[]> {
  const inProcess: Measured[] = [];
  const remotely: Measured[] = [];
  for (let pair = 0; pair < pairs; pair += 1) {
    inProcess.push(await steady(contest, contest.ours, window));
    remotely.push(await steady(contest, remote, window, { perMessage: PER_MESSAGE }));
  }
  const here = inProcess.map(({ perSecond }) => perSecond);
  const there = remotely.map(({ perSecond }) => perSecond);
  const settings = {
    ...settingsOf(contest),
    pairs,
    window,
    perMessage: PER_MESSAGE,
    usPerTask: { inProcess: costOf(inProcess), remote: costOf(remotely) },
  };
  return [
    {
      figure: "stream.cycle_vs_in_process",
      value: median(there.map((rate, pair) => rate / (here[pair] ?? Number.NaN))),
      ours: median(there),
      anchor: median(here),
      unit: "of the tasks/s of one process that has the database",
      settings,
    },
    { figure: "stream.cycle_per_s", value: median(there), unit: "tasks/s", settings },
  ];
}

async function singleFigure(
  contest: Contest,
  remote: TaskSystem,
  { single: window }: Scale,
): Promise<Figure> {
  return {
    figure: "stream.single_per_s",
    value: await steadyRate(contest, remote, window, { perMessage: 1 }),
    unit: "tasks/s, each create, assignment and result a message of its own",
    settings: { ...settingsOf(contest), window },
  };
}

async function restFigure(
  contest: Contest,
  rest: TaskSystem,
  { rest: window }: Scale,
): Promise<Figure> {
  return {
    figure: "stream.rest_per_s",
    value: await steadyRate(contest, rest, window),
    unit: "tasks/s, each created, claimed and completed by a call of its own",
    settings: { ...settingsOf({ ...contest, peers: [rest] }), window },
  };
}

/** Twice what it held when it was measured: more is a leak, not noise, and the bench fails. */
const STREAMS_RSS_MB_MAX = 352;

/** A thousand idle streams, a connection each; one task at a time for who has waited longest. */
async function manyStreamsFigures(
  contest: Contest,
  remote: TaskSystem,
  { samples }: Scale,
): Promise<Figure[]> {
  await using session = await Session.open(contest.stage, remote, {
    purpose: "latency",
    streams: MANY_STREAMS,
  });
  await session.startWorker();
  await session.startDelays(samples / 10);
  const delays = await session.startDelays(samples);
  const many = { streams: MANY_STREAMS, connections: MANY_STREAMS };
  const settings = { ...settingsOf(contest), ...many, samples };
  const rss = await session.serverRss();
  if (rss > STREAMS_RSS_MB_MAX) {
    process.stderr.write(`the server held ${rss} MiB, over the ${STREAMS_RSS_MB_MAX} promised\n`);
    process.exitCode = 1;
  }
  return [
    {
      figure: "stream.streams_1000_rss_mb",
      value: rss,
      unit: "MiB, the most that the server process ever held",
      settings,
    },
    {
      figure: "stream.streams_1000_dispatch_p99_ms",
      value: quantile(delays, 0.99),
      unit: "ms from the call of create to the task at a worker",
      settings: { ...settings, p50: quantile(delays, 0.5) },
    },
  ];
}

async function steadyRate(
  contest: Contest,
  system: TaskSystem,
  window: Window,
  load: Pick<OpenOptions, "perMessage"> = {},
): Promise<number> {
  return (await steady(contest, system, window, load)).perSecond;
}

async function steady(
  { stage }: Contest,
  system: TaskSystem,
  window: Window,
  load: Pick<OpenOptions, "perMessage"> = {},
): Promise<Measured> {
  await using session = await Session.open(stage, system, { purpose: "throughput", ...load });
  await session.startWorker();
  return await session.steady(window);
}

/** Processor time per task of each process. */
function costOf(all: readonly Measured[]): Measured["usPerTask"] {
  const names = Object.keys(all[0]?.usPerTask ?? {});
  const of = (name: string): number =>
    median(all.map(({ usPerTask }) => usPerTask[name] ?? Number.NaN));
  return Object.fromEntries(names.map((name) => [name, of(name)]));
}
