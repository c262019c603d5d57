import type { Ended, Entry, Started, What } from "./history.ts";
import type { ClaimFact, EffectFact, TaskFact } from "./truth.ts";

/** A line of history about one kind of thing. */
export type Line<Told extends What> = Entry & { readonly what: Told };

/** Everything that is known of one id of a task. */
export interface Life {
  readonly id: string;
  /** Of several, one that ended. */
  task: TaskFact | undefined;
  effect: EffectFact | undefined;
  /** What its handlers said; but no beginning in a line of many, if that is the only one. */
  readonly attempts: Line<Started | Ended>[];
  /** In no order; without that of a pack if it is the last and alone. */
  readonly claims: ClaimFact[];
  /** Beginnings in lines of many. */
  begins: number;
  /** By the database's clock: when the last claim was made, and when it had begun at the latest. */
  claimedAtMs: number | undefined;
  begunAtMs: number | undefined;
}

export const emptyLife = (id: string): Life => ({
  id,
  task: undefined,
  effect: undefined,
  attempts: [],
  claims: [],
  begins: 0,
  claimedAtMs: undefined,
  begunAtMs: undefined,
});
