import { median } from "../support/figure.ts";
import { peerVersion } from "../support/program.ts";
import { BATCH, BATCHES_IN_FLIGHT, PAYLOAD_BYTES } from "./protocol.ts";
import type { Stage } from "./stage.ts";
import type { TaskSystem } from "./system.ts";

/** Who takes part: ours, and the peers it is measured against. */
export interface Contest {
  readonly stage: Stage;
  readonly ours: TaskSystem;
  readonly peers: readonly TaskSystem[];
  readonly quick: boolean;
}

/** One number of each system per round, in the order of the rounds. */
export type Rounds = ReadonlyMap<TaskSystem, readonly number[]>;

export interface Compared {
  readonly value: number;
  readonly ours: number;
  readonly anchor: number;
  readonly settings: Readonly<Record<string, unknown>>;
}

/** Ours against the better peer, by its median: the median of the ratios of each round. */
export function compare(
  { ours, peers }: Contest,
  rounds: Rounds,
  better: "higher" | "lower",
): Compared {
  const sign = better === "higher" ? 1 : -1;
  const of = (system: TaskSystem): readonly number[] => rounds.get(system) ?? [];
  const [best] = peers.toSorted((a, b) => sign * (median(of(b)) - median(of(a))));
  if (best === undefined) throw new Error("there is no peer");
  const ratios = of(ours).map((rate, round) => rate / (of(best)[round] ?? Number.NaN));
  return {
    value: median(ratios),
    ours: median(of(ours)),
    anchor: median(of(best)),
    settings: { rounds: ratios.length, bestPeer: best.name, medians: medians(rounds) },
  };
}

export const medians = (rounds: Rounds): Record<string, number> =>
  Object.fromEntries([...rounds].map(([system, values]) => [system.name, median(values)]));

/** What every figure of the suite was taken with. */
export function settingsOf({ stage, ours, peers }: Contest): Record<string, unknown> {
  const systems = [ours, ...peers].map(({ name, version, tuning, history }) => [
    name,
    { version, ...tuning, history },
  ]);
  return {
    ...stage.server.settings,
    payloadBytes: PAYLOAD_BYTES,
    batch: BATCH,
    batchesInFlight: BATCHES_IN_FLIGHT,
    processes: "one producer, one worker",
    nodeOfSystems: peerVersion("node22"),
    systems: Object.fromEntries(systems),
  };
}
