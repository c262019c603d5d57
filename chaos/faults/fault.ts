import type { Random } from "../../test/support/random.ts";
import type { ChaosProcess } from "../processes.ts";
import { LEASE_SECONDS } from "../scene.ts";
import type { Stage } from "../stage.ts";

/** Something that goes wrong. */
export interface Fault {
  readonly kind: string;
  /** After it was mended, work must go on within so long. */
  readonly boundMs: number;
  /** Why it cannot be done on this machine. */
  readonly whyNot?: () => string | undefined;
  /** Breaks it and mends it. Returns what was hit: worker ids, where there are some. */
  strike(stage: Stage, random: Random): Promise<readonly string[]>;
}

export const LEASE_MS = LEASE_SECONDS * 1_000;
/** What a worker lost runs elsewhere after its lease and a little. */
export const LOSS_MS = LEASE_MS + 2_000;
/** Nothing was lost but connections. */
export const RESUME_MS = 1_000;
/** After a server accepts connections again. */
export const RESTART_MS = 5_000;

export function oneOf<Item>(items: readonly Item[], random: Random): Item {
  const [first, ...others] = items;
  if (first === undefined) throw new Error("none is left");
  return random.pick([first, ...others]);
}

export const anyWorker = ({ workers }: Stage, random: Random): ChaosProcess =>
  oneOf(workers, random);

/** One of the workers is hit, and mended. */
export const onWorker = (
  kind: string,
  boundMs: number,
  hit: (worker: ChaosProcess, stage: Stage, random: Random) => Promise<void>,
): Fault => ({
  kind,
  boundMs,
  async strike(stage, random) {
    const worker = anyWorker(stage, random);
    await hit(worker, stage, random);
    return [worker.workerId ?? worker.name];
  },
});
