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
 * keys comes right behind ours without: what two runs of one machine give differs more, the longer
 * it is between them.
 */
export async function throughputFigures(contest: Contest): Promise<Figure[]> {
  const scale = contest.quick ? QUICK : FULL;
  const rounds = new Map<TaskSystem, Round[]>();
  const keyed: number[] = [];
  for (let round = 0; round < scale.rounds; round += 1) {
    for (const system of [contest.ours, ...contest.peers]) {
      const done = await runRound(contest, system, scale);
      rounds.set(system, [...(rounds.get(system) ?? []), done]);
      if (system !== contest.ours) continue;
      keyed.push((await runRound(contest, system, scale, { keys: KEYS })).perSecond);
    }
  }
  const each = (pick: (round: Round) => number): Map<TaskSystem, number[]> =>
    new Map([...rounds].map(([system, all]) => [system, all.map(pick)]));
  const figures = ratioFigures(contest, scale, each);
  figures.push(keyedFigure(contest, scale, { keyed, rounds: rounds.get(contest.ours) ?? [] }));
  if (!contest.quick) {
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
  load: { readonly keys?: number } = {},
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

function keyedFigure(
  contest: Contest,
  { window }: Scale,
  { keyed, rounds }: { keyed: readonly number[]; rounds: readonly Round[] },
): Figure {
  const unkeyed = rounds.map((round) => round.perSecond);
  return {
    figure: "tasks.keyed_vs_unkeyed",
    value: median(keyed.map((rate, round) => rate / (unkeyed[round] ?? Number.NaN))),
    ours: median(keyed),
    anchor: median(unkeyed),
    unit: "of the unkeyed tasks/s",
    settings: { ...settingsOf(contest), rounds: keyed.length, window, keys: KEYS },
  };
}
