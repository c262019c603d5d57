import { type Figure, quantile } from "../support/figure.ts";
import { type Contest, compare, settingsOf } from "./comparison.ts";
import { Session } from "./session.ts";
import type { TaskSystem } from "./system.ts";

const WARM_UP = 20;

/** From calling enqueue in one process to the start of the handler in another, on one clock. */
export async function startFigures(contest: Contest): Promise<Figure[]> {
  const samples = contest.quick ? 100 : 1_000;
  // Databases are fresh for each round, but not when quick: that would cost as much as it measures.
  const [databases, roundsInEach] = contest.quick ? [1, 3] : [5, 1];
  const rounds = databases * roundsInEach;
  const p50 = new Map<TaskSystem, number[]>();
  const p99 = new Map<TaskSystem, number[]>();
  for (let database = 0; database < databases; database += 1) {
    for await (const [system, delays] of sampleInTurn(contest, roundsInEach, samples)) {
      p50.set(system, [...(p50.get(system) ?? []), quantile(delays, 0.5)]);
      p99.set(system, [...(p99.get(system) ?? []), quantile(delays, 0.99)]);
    }
  }
  const settings = { ...settingsOf(contest), samples: samples * rounds };
  const figure = (name: string, values: Map<TaskSystem, number[]>): Figure => {
    const compared = compare(contest, values, "lower");
    return {
      figure: name,
      ...compared,
      unit: "of the best peer's ms to the start (less is better)",
      settings: { ...settings, ...compared.settings },
    };
  };
  const figures = [figure("tasks.start_p50_vs_best_peer", p50)];
  if (!contest.quick) figures.push(figure("tasks.start_p99_vs_best_peer", p99));
  return figures;
}

/** All systems are open and idle, and one after another gets its tasks. */
async function* sampleInTurn(
  { stage, ours, peers }: Contest,
  rounds: number,
  samples: number,
): AsyncGenerator<[TaskSystem, number[]]> {
  const opened: { system: TaskSystem; session: Session }[] = [];
  try {
    for (const system of [ours, ...peers]) {
      const session = await Session.open(stage, system, { purpose: "latency" });
      opened.push({ system, session });
      await session.startWorker();
      await session.startDelays(WARM_UP);
    }
    for (let round = 0; round < rounds; round += 1) {
      for (const { system, session } of opened) {
        yield [system, await session.startDelays(samples)];
      }
    }
  } finally {
    for (const { session } of opened) await session[Symbol.asyncDispose]();
  }
}
