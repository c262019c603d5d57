import { ConflictError } from "../base/errors.ts";
import type { Logger } from "../base/log.ts";
import { assignBuckets, BUCKETS } from "../cluster/ring.ts";
import type { LeaderTerm } from "../cluster/sql/assignments.ts";
import { announceChange } from "../cluster/sql/changes.ts";
import { holdTerm } from "../cluster/sql/leader.ts";
import type { Database, Queryable } from "../db/database.ts";
import {
  type BucketOwner,
  type KeySpaceOwners,
  type KeySpaceSizes,
  readKeySpaceOwners,
  readRing,
  removeBucketOwner,
  type TaskMember,
  type TenantSpace,
  writeBucketOwner,
} from "./sql/bucket-owners.ts";
import { DEFAULT_TENANT } from "./task.ts";

export interface BucketMoveOptions {
  readonly heartbeatTimeoutMs: number;
  readonly changesChannel: string;
  readonly logger: Logger;
}

/** Of many tenants: whoever hears of changes hears of as many at once. */
const SPACES_AT_ONCE = 50;

/**
 * Gives the buckets of every key space to the live workers that handle all of its queues for its
 * tenant. All moves of a key space are in one transaction under the leader's term. If it dies
 * before its commit nothing moved; the old owner may run what it holds, the new one waits for that
 * to end.
 */
export async function moveBuckets(
  db: Database,
  leader: LeaderTerm,
  options: BucketMoveOptions,
): Promise<void> {
  const { members, spaces } = await readRing(db, options.heartbeatTimeoutMs / 1000);
  const uneven = spaces.filter((space) => !isEven(space, members)).map((space) => space.keySpaceId);
  if (uneven.length === 0) return;
  const moves = (await readKeySpaceOwners(db, uneven)).flatMap((space) => {
    const rows = planRows(space, members);
    return rows.length === 0 ? [] : [{ space, rows }];
  });
  const moved: string[] = [];
  for (let at = 0; at < moves.length; at += SPACES_AT_ONCE) {
    const some = moves.slice(at, at + SPACES_AT_ONCE);
    await db.transaction(async (tx) => {
      if (!(await holdTerm(tx, leader.term, leader.leaderId))) return;
      for (const move of some) await writeMove(tx, move);
      await announceChange(tx, options.changesChannel);
      moved.push(...some.map(({ space }) => labelOf(space)));
    });
  }
  if (moved.length > 0) options.logger.info({ keySpaces: moved }, "buckets moved");
}

interface SpaceMove {
  readonly space: KeySpaceOwners;
  readonly rows: readonly RowChange[];
}

async function writeMove(tx: Queryable, { space, rows }: SpaceMove): Promise<void> {
  for (const row of rows) {
    const isWritten =
      row.buckets === undefined
        ? await removeBucketOwner(tx, space.keySpaceId, row)
        : await writeBucketOwner(tx, space.keySpaceId, row, row.buckets);
    if (!isWritten) throw new ConflictError(`the owners of key space ${labelOf(space)} changed`);
  }
}

const labelOf = ({ name, tenant }: TenantSpace): string =>
  tenant === DEFAULT_TENANT ? name : `${name} of ${tenant}`;

interface RowChange {
  readonly worker: string;
  /** As it was read; "0" for a row that is not there. */
  readonly epoch: string;
  /** Undefined: the row goes. */
  readonly buckets: readonly number[] | undefined;
}

/**
 * Who may own buckets of the space: workers that handle all of its queues for its tenant. Those
 * whose remote workers ask for nothing at the moment do only when no other worker does.
 */
export function ownersFor(space: TenantSpace, members: readonly TaskMember[]): string[] {
  const { queues, tenant } = space;
  if (queues.length === 0) return [];
  const able = members.filter((member) => {
    const served = member.tenants.get(tenant)?.queues ?? [];
    return queues.every((queue) => member.queues.includes(queue) || served.includes(queue));
  });
  const isIdle = (member: TaskMember): boolean => {
    const idle = member.tenants.get(tenant)?.idle ?? [];
    return queues.some((queue) => idle.includes(queue) && !member.queues.includes(queue));
  };
  const asking = able.filter((member) => !isIdle(member));
  return (asking.length > 0 ? asking : able).map(({ workerId }) => workerId);
}

/** Whether all buckets are owned, by those who should, and evenly: then nothing is to move. */
export function isEven(space: KeySpaceSizes, members: readonly TaskMember[]): boolean {
  const wanted = new Set(ownersFor(space, members));
  const { sizes } = space;
  if (sizes.length !== wanted.size || !sizes.every(({ worker }) => wanted.has(worker)))
    return false;
  const share = Math.floor(BUCKETS / wanted.size);
  const total = sizes.reduce((sum, { count }) => sum + count, 0);
  const isFair = sizes.every(({ count }) => count === share || count === share + 1);
  return wanted.size === 0 || (total === BUCKETS && isFair);
}

/** The rows that must change, in the order of the workers' ids, so that two leaders queue. */
export function planRows(space: KeySpaceOwners, members: readonly TaskMember[]): RowChange[] {
  const able = ownersFor(space, members);
  const previous = new Map(
    space.owners.flatMap(({ worker, buckets }) =>
      buckets.map((bucket) => [bucket, worker] as const),
    ),
  );
  const wanted = assignBuckets(able, previous);
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
