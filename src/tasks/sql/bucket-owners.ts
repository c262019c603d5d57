import { BUCKETS } from "../../cluster/ring.ts";
import type { Queryable } from "../../db/database.ts";
import { statement } from "../../db/statement.ts";

const READ = statement(
  "bucket_owners_read",
  `SELECT space.id AS key_space_id, space.name,
          array(SELECT queue.name FROM {schema}.queues AS queue
                 WHERE queue.key_space_id = space.id ORDER BY queue.name) AS queues,
          COALESCE((SELECT json_agg(json_build_object(
                             'worker', owner.worker_id, 'epoch', owner.epoch::text,
                             'buckets', owner.buckets))
                      FROM {schema}.bucket_owners AS owner
                     WHERE owner.key_space_id = space.id), '[]') AS owners
     FROM {schema}.key_spaces AS space
    ORDER BY space.id`,
);

const READ_BUCKETS = statement(
  "bucket_owners_buckets",
  `SELECT buckets FROM {schema}.bucket_owners WHERE key_space_id = $1`,
);

/** The buckets of each worker that owns some. */
export async function readBuckets(db: Queryable, keySpaceId: number): Promise<number[][]> {
  const rows = await db.query<{ buckets: number[] }>(READ_BUCKETS, [keySpaceId]);
  return rows.map(({ buckets }) => buckets);
}

const ONE = "1".charCodeAt(0);

/** As a text of bits, the first of which is bucket 0. */
export function bucketSet(buckets: Iterable<number>): string {
  const bits = Buffer.alloc(BUCKETS, "0");
  for (const bucket of buckets) bits[bucket] = ONE;
  return bits.toString("latin1");
}

export interface BucketOwner {
  readonly worker: string;
  readonly epoch: string;
  readonly buckets: readonly number[];
}

export interface KeySpaceOwners {
  readonly keySpaceId: number;
  readonly name: string;
  readonly queues: readonly string[];
  readonly owners: readonly BucketOwner[];
}

export async function readKeySpaceOwners(db: Queryable): Promise<KeySpaceOwners[]> {
  const rows = await db.query<{
    key_space_id: number;
    name: string;
    queues: string[];
    owners: BucketOwner[];
  }>(READ);
  return rows.map(({ key_space_id, ...row }) => ({ ...row, keySpaceId: key_space_id }));
}

// Heartbeats are judged by the database's clock. Whoever drains gets nothing and keeps nothing.
const MEMBERS = statement(
  "bucket_members",
  `SELECT node.worker_id, info.queues
     FROM {worker_nodes} AS node
     JOIN {schema}.worker_info AS info ON info.worker_id = node.worker_id
    WHERE node.heartbeat_at >= NOW() - make_interval(secs => $1::float8)
      AND info.status = 'active'
      AND info.owns_keys
      AND cardinality(info.queues) > 0`,
);

export interface TaskMember {
  readonly workerId: string;
  readonly queues: readonly string[];
}

export async function readTaskMembers(
  db: Queryable,
  timeoutSeconds: number,
): Promise<TaskMember[]> {
  const rows = await db.query<{ worker_id: string; queues: string[] }>(MEMBERS, [timeoutSeconds]);
  return rows.map((row) => ({ workerId: row.worker_id, queues: row.queues }));
}

// Waits for a claim that has the row locked; the claims after it find another epoch. Epochs are
// never used twice, so a row that was removed and made anew is not mistaken for the old one.
const WRITE = statement(
  "bucket_owner_write",
  `INSERT INTO {schema}.bucket_owners AS owner (key_space_id, worker_id, epoch, buckets)
   VALUES ($1, $2, nextval('{schema}.task_numbers'), $4::text::smallint[])
       ON CONFLICT (key_space_id, worker_id) DO UPDATE
      SET epoch = excluded.epoch, buckets = excluded.buckets, updated_at = NOW()
    WHERE owner.epoch = $3::bigint
   RETURNING epoch`,
);

/** False when the row is not as it was read: somebody else decided meanwhile. */
export async function writeBucketOwner(
  tx: Queryable,
  keySpaceId: number,
  expected: { readonly worker: string; readonly epoch: string },
  buckets: readonly number[],
): Promise<boolean> {
  const rows = await tx.query(WRITE, [
    keySpaceId,
    expected.worker,
    expected.epoch,
    `{${buckets.join(",")}}`,
  ]);
  return rows.length === 1;
}

const REMOVE = statement(
  "bucket_owner_remove",
  `DELETE FROM {schema}.bucket_owners
    WHERE key_space_id = $1 AND worker_id = $2 AND epoch = $3::bigint
   RETURNING epoch`,
);

export async function removeBucketOwner(
  tx: Queryable,
  keySpaceId: number,
  { worker, epoch }: { readonly worker: string; readonly epoch: string },
): Promise<boolean> {
  const rows = await tx.query(REMOVE, [keySpaceId, worker, epoch]);
  return rows.length === 1;
}
