import type { Claim } from "./claimed-task.ts";

/** What a claim of unkeyed tasks found. */
export interface Found {
  /** Tasks that it took, by lane. */
  readonly byLane: ReadonlyMap<number, number>;
  readonly claim: Claim | undefined;
  /** Packs that were opened: then there is more to be asked for. */
  readonly opened: number;
  /** Nothing was found, or what the claim relied on was not so: only a look tells. */
  readonly isDoubtful: boolean;
}

export const NOTHING: Found = Object.freeze({
  byLane: new Map(),
  claim: undefined,
  opened: 0,
  isDoubtful: false,
});

export const countOf = (byLane: ReadonlyMap<number, number>): number =>
  [...byLane.values()].reduce((sum, count) => sum + count, 0);
