import { type Figure, median } from "../support/figure.ts";
import { type Contest, compare, medians, settingsOf } from "./comparison.ts";
import { type Measured, Session, type Window } from "./session.ts";
import type { TaskSystem } from "./system.ts";

const KEYS = 1_000;

interface Scale {
  readonly rounds: number;
  readonly backlog: number;
  readonly readEveryMs: number;
  readonly drainMsMax: number;
  readonly window: Window;
}

const FULL: Scale = {
  rounds: 5,
  backlog: 200_000,
  readEveryMs: 200,
  drainMsMax: 120_000,
  window: { ahead: 20_000, warmUpMs: 1_000, until: { ms: 8_000 } },
};
const QUICK: Scale = {
  rounds: 3,
  backlog: 30_000,
  readEveryMs: 40,
  drainMsMax: 600,
  window: { ahead: 20_000, warmUpMs: 100, until: { ms: 1_000 } },
};

interface Round extends Measured {
  readonly enqueue: number;
  readonly drain: number;
}

/**
 * Each round, each system in turn: fill a fresh database, drain it, then go on with both. Ours with
 * keys and ours with limits come right behind ours without: what two runs of one machine give
 * differs more, the longer it is between them.
 */
export async function throughputFigures(contest: Contest): Promise<Figure[]> {
  const scale = contest.quick ? QUICK : FULL;
  const rounds = new Map<TaskSystem, Round[]>();
  const keyed: number[] = [];
  const limited: number[] = [];
  for (let round = 0; round < scale.rounds; round += 1) {
    for (const system of [contest.ours, ...contest.peers]) {
      const done = await runRound(contest, system, scale);
      rounds.set(system, [...(rounds.get(system) ?? []), done]);
      if (system !== contest.ours) continue;
      keyed.push((await runRound(contest, system, scale, { keys: KEYS })).perSecond);
      if (contest.quick) continue;
      limited.push((await runRound(contest, system, scale, { isLimited: true })).perSecond);
    }
  }
  const each = (pick: (round: Round) => number): Map<TaskSystem, number[]> =>
    new Map([...rounds].map(([system, all]) => [system, all.map(pick)]));
  const figures = ratioFigures(contest, scale, each);
  const settings = { ...settingsOf(contest), rounds: scale.rounds, window: scale.window };
  const plain = (rounds.get(contest.ours) ?? []).map((round) => round.perSecond);
  figures.push({
    figure: "tasks.keyed_vs_unkeyed",
    ...paired(keyed, plain),
    unit: "of the unkeyed tasks/s",
    settings: { ...settings, keys: KEYS },
  });
  if (!contest.quick) {
    figures.push({
      figure: "tasks.limited_vs_unlimited",
      ...paired(limited, plain),
      unit: "of the tasks/s without limits",
      settings: { ...settings, limits: "of concurrency and rate, never reached" },
    });
    const wal = each((round) => round.walBytesPerTask);
    figures.push({
      figure: "tasks.wal_bytes_per_task",
      value: median(wal.get(contest.ours) ?? []),
      unit: "bytes of WAL per task, enqueue to completion",
      settings: { ...settingsOf(contest), rounds: scale.rounds, medians: medians(wal) },
    });
  }
  return figures;
}

async function runRound(
  { stage }: Contest,
  system: TaskSystem,
  scale: Scale,
  load: { readonly keys?: number; readonly isLimited?: boolean } = {},
): Promise<Round> {
  await using session = await Session.open(stage, system, { purpose: "throughput", ...load });
  const enqueue = await session.fill(scale.backlog);
  await session.startWorker();
  const drain = await session.drain(scale.backlog, scale.readEveryMs, scale.drainMsMax);
  return { enqueue, drain, ...(await session.steady(scale.window)) };
}

function ratioFigures(
  contest: Contest,
  scale: Scale,
  each: (pick: (round: Round) => number) => Map<TaskSystem, number[]>,
): Figure[] {
  const settings = { ...settingsOf(contest), rounds: scale.rounds };
  const ratio = (
    figure: string,
    pick: (round: Round) => number,
    more: Readonly<Record<string, unknown>>,
  ): Figure => {
    const compared = compare(contest, each(pick), "higher");
    return {
      figure,
      ...compared,
      unit: "of the best peer's tasks/s",
      settings: { ...settings, ...more, ...compared.settings },
    };
  };
  const { backlog, drainMsMax, window } = scale;
  const steady = ratio("tasks.steady_vs_best_peer", (round) => round.perSecond, { window });
  return [
    steady,
    {
      figure: "tasks.steady_per_s",
      value: steady.ours ?? Number.NaN,
      unit: "tasks/s",
      settings: steady.settings,
    },
    ratio("tasks.drain_vs_best_peer", (round) => round.drain, {
      backlog,
      drainMsMax,
      analysed: true,
    }),
    ratio("tasks.enqueue_vs_best_peer", (round) => round.enqueue, { tasks: backlog }),
  ];
}

/** The rates of one load against those of another, each right behind the other. */
function paired(
  ours: readonly number[],
  anchor: readonly number[],
): { readonly value: number; readonly ours: number; readonly anchor: number } {
  return {
    value: median(ours.map((rate, round) => rate / (anchor[round] ?? Number.NaN))),
    ours: median(ours),
    anchor: median(anchor),
  };
}
