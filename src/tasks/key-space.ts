import type { ClaimedTask } from "./claimed-task.ts";
import type { ClaimedRows, ClaimRequest } from "./sql/claim.ts";

/** Queues of this worker that share the order of keys, whoever's these are. */
export interface KeyedQueues {
  /** Of the key space that they name. */
  readonly id: number;
  /** Tasks of one key that may be claimed at once; 1 is strict order, without a bound. */
  readonly keyConcurrency: number;
  /** Whether several queues share it: then a paused one holds back keys, not itself alone. */
  readonly isShared: boolean;
  readonly queues: readonly string[];
}

/** The keys of one tenant in them. */
export interface KeySpace extends KeyedQueues {
  /** Of the key space that the queues name: that of the tenant "default". */
  readonly baseId: number;
  readonly tenant: string;
}

/** The keys of a tenant in queues that name a space. */
export function tenantSpace(
  base: KeyedQueues,
  { keySpaceId, tenant }: { readonly keySpaceId: number; readonly tenant: string },
): KeySpace {
  return { ...base, id: keySpaceId, baseId: base.id, tenant };
}

/** Whether what is known of these queues holds for those. */
export function isSameQueues(
  known: KeyedQueues | undefined,
  { keyConcurrency, queues }: KeyedQueues,
): boolean {
  return (
    known?.keyConcurrency === keyConcurrency &&
    known.queues.length === queues.length &&
    known.queues.every((queue, place) => queue === queues[place])
  );
}

/** Who claims, and for how long. */
export type ClaimFacts = Pick<ClaimRequest, "workerId" | "leaseSeconds">;

/** How a claim is made is the same for all; the claimer hands it down. */
export type TakeRows = (
  claim: (claimId: string) => Promise<ClaimedRows>,
  isHeldHead: boolean,
) => Promise<readonly ClaimedTask[]>;
