import { messageOf } from "../base/errors.ts";
import type { Logger } from "../base/log.ts";
import type { Database } from "../db/database.ts";
import { sqlState } from "../db/sqlstate.ts";
import {
  type AssignmentStrategy,
  assignRoundRobin,
  assignSticky,
  type Candidate,
  changedOwners,
} from "./assignment.ts";
import type { DeadBatches } from "./dead-batches.ts";
import {
  type LeaderTerm,
  moveBusyAssignment,
  moveFreeAssignments,
  type OwnerChange,
  readAssignments,
} from "./sql/assignments.ts";
import { announceChange } from "./sql/changes.ts";
import { readLiveWorkers } from "./sql/workers.ts";

export interface RebalanceOptions {
  readonly strategy: AssignmentStrategy;
  /** The sources give consumers to every worker, also to one that does not know them. */
  readonly ignoreCapabilities: boolean;
  readonly heartbeatTimeoutMs: number;
  readonly changesChannel: string;
  readonly deadBatches: DeadBatches;
  readonly logger: Logger;
}

export interface RebalanceResult {
  readonly moved: number;
  /** Changes that are wanted and could not be made yet. */
  readonly waiting: number;
  readonly unassignable: readonly string[];
  /** When the next worker would count as dead, unless it beats before. */
  readonly nextExpiryMs: number;
}

/**
 * How long one pass waits for rows that running batches hold, all together. Far less than the
 * second within which a released consumer runs elsewhere: it may be released during the wait.
 */
const PATIENCE_MS = 300;

/** One pass of the leader: reads who is there, decides, writes only what differs. */
export async function rebalance(
  db: Database,
  leader: LeaderTerm,
  options: RebalanceOptions,
): Promise<RebalanceResult> {
  const { strategy, ignoreCapabilities, heartbeatTimeoutMs, logger } = options;
  const beating = await readLiveWorkers(db, heartbeatTimeoutMs / 1000);
  const workers = beating.filter((worker) => worker.isActive);
  const current = await readAssignments(db);
  const candidates = workers.map((worker): Candidate => {
    const any = ignoreCapabilities || worker.capabilities === undefined;
    return {
      workerId: worker.workerId,
      capabilities: any ? undefined : new Set(worker.capabilities),
    };
  });
  const wanted =
    strategy === "round-robin"
      ? assignRoundRobin(current.keys(), candidates)
      : assignSticky(current, candidates);
  const changes = changedOwners(current, wanted);
  const alive = new Set(beating.map((worker) => worker.workerId));
  const moved = changes.length === 0 ? 0 : await move(db, leader, { changes, alive }, options);
  if (moved > 0) {
    logger.info(
      { moved, workers: workers.length, term: String(leader.term) },
      "consumer assignments updated",
    );
  } else {
    logger.debug({ workers: workers.length }, "rebalance skipped");
  }
  return {
    moved,
    waiting: changes.length - moved,
    unassignable: [...wanted].filter(([, owner]) => owner === undefined).map(([name]) => name),
    nextExpiryMs: Math.min(Infinity, ...beating.map((worker) => worker.expiresInSeconds * 1000)),
  };
}

async function move(
  db: Database,
  leader: LeaderTerm,
  { changes, alive }: { changes: readonly OwnerChange[]; alive: ReadonlySet<string> },
  options: RebalanceOptions,
): Promise<number> {
  const done = new Set<string>();
  await unlessHeld(options, async () => {
    for (const name of await moveFreeAssignments(db, leader, changes)) done.add(name);
    // Told at once: the others must not wait for the busy ones.
    if (done.size > 0) await announceChange(db, options.changesChannel);
  });
  const busy = changes.filter((change) => !done.has(change.consumer));
  // Only now, so that it costs nothing as long as everybody lives. A row of somebody dead whom
  // nobody may end, or that a stranger has, is waited for like any other.
  const stuck = busy.flatMap(({ from }) => (from === undefined || alive.has(from) ? [] : [from]));
  await options.deadBatches.end(leader, stuck);
  for (const change of busy) {
    await unlessHeld(options, async () => {
      const isMoved = await db.transaction(async (tx) => {
        const ok = await moveBusyAssignment(tx, leader, change, PATIENCE_MS / busy.length);
        if (ok) await announceChange(tx, options.changesChannel);
        return ok;
      });
      if (isMoved) done.add(change.consumer);
    });
  }
  return done.size;
}

/**
 * A worker that vanished after it was listed (23503), a row still held (55P03): the next pass reads
 * again and decides again. One such move keeps no other from being made.
 */
async function unlessHeld(options: RebalanceOptions, work: () => Promise<void>): Promise<void> {
  try {
    await work();
  } catch (error) {
    const cause = error instanceof Error && error.cause !== undefined ? error.cause : error;
    if (!["23503", "55P03", "40P01"].includes(sqlState(cause) ?? "")) throw error;
    options.logger.debug({ error: messageOf(error) }, "rebalance postponed");
  }
}
