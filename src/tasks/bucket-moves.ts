import { ConflictError } from "../base/errors.ts";
import type { Logger } from "../base/log.ts";
import { assignBuckets } from "../cluster/ring.ts";
import type { LeaderTerm } from "../cluster/sql/assignments.ts";
import { announceChange } from "../cluster/sql/changes.ts";
import { holdTerm } from "../cluster/sql/leader.ts";
import type { Database } from "../db/database.ts";
import {
  type BucketOwner,
  type KeySpaceOwners,
  readKeySpaceOwners,
  readTaskMembers,
  removeBucketOwner,
  type TaskMember,
  writeBucketOwner,
} from "./sql/bucket-owners.ts";

export interface BucketMoveOptions {
  readonly heartbeatTimeoutMs: number;
  readonly changesChannel: string;
  readonly logger: Logger;
}

/**
 * Gives the buckets of every key space to the live workers that handle all of its queues. All moves
 * of a key space are one transaction under the leader's term. If the leader dies before its commit
 * nothing moved; the old owner may run what it holds, the new one waits for that to end.
 */
export async function moveBuckets(
  db: Database,
  leader: LeaderTerm,
  options: BucketMoveOptions,
): Promise<void> {
  const members = await readTaskMembers(db, options.heartbeatTimeoutMs / 1000);
  const moved: string[] = [];
  for (const space of await readKeySpaceOwners(db)) {
    const rows = planRows(space, members);
    if (rows.length === 0) continue;
    await db.transaction(async (tx) => {
      if (!(await holdTerm(tx, leader.term, leader.leaderId))) return;
      for (const row of rows) {
        const isWritten =
          row.buckets === undefined
            ? await removeBucketOwner(tx, space.keySpaceId, row)
            : await writeBucketOwner(tx, space.keySpaceId, row, row.buckets);
        if (!isWritten) throw new ConflictError(`the owners of key space ${space.name} changed`);
      }
      await announceChange(tx, options.changesChannel);
      moved.push(space.name);
    });
  }
  if (moved.length > 0) options.logger.info({ keySpaces: moved }, "buckets moved");
}

interface RowChange {
  readonly worker: string;
  /** As it was read; "0" for a row that is not there. */
  readonly epoch: string;
  /** Undefined: the row goes. */
  readonly buckets: readonly number[] | undefined;
}

/** The rows that must change, in the order of the workers' ids, so that two leaders queue. */
export function planRows(space: KeySpaceOwners, members: readonly TaskMember[]): RowChange[] {
  const able = members
    .filter(({ queues }) => space.queues.every((queue) => queues.includes(queue)))
    .map(({ workerId }) => workerId);
  const isUsed = space.queues.length > 0;
  const previous = new Map(
    space.owners.flatMap(({ worker, buckets }) =>
      buckets.map((bucket) => [bucket, worker] as const),
    ),
  );
  const wanted = assignBuckets(isUsed ? able : [], previous);
  const byWorker = new Map<string, number[]>(able.map((worker) => [worker, []]));
  for (const [bucket, worker] of wanted) byWorker.get(worker)?.push(bucket);
  const known = new Map(space.owners.map((owner) => [owner.worker, owner]));
  const gone = space.owners
    .filter(({ worker }) => !byWorker.has(worker))
    .map(({ worker, epoch }) => ({ worker, epoch, buckets: undefined }));
  const changed = [...byWorker].flatMap(([worker, buckets]) => {
    const owner = known.get(worker);
    if (isSame(owner, buckets)) return [];
    return [{ worker, epoch: owner?.epoch ?? "0", buckets: buckets.sort((a, b) => a - b) }];
  });
  return [...gone, ...changed].sort((a, b) => (a.worker < b.worker ? -1 : 1));
}

function isSame(owner: BucketOwner | undefined, buckets: readonly number[]): boolean {
  if (owner === undefined) return buckets.length === 0;
  const held = new Set(owner.buckets);
  return held.size === buckets.length && buckets.every((bucket) => held.has(bucket));
}
