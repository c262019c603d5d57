import { BUCKETS } from "../../cluster/ring.ts";
import type { Queryable } from "../../db/database.ts";
import { statement } from "../../db/statement.ts";

/** Of a tenant's space: what is named, is named for the one that its queues name. */
const SPACES = `{schema}.key_spaces AS space
     JOIN {schema}.key_spaces AS base ON base.id = COALESCE(space.base_id, space.id)`;
const OF_SPACE = `space.id AS key_space_id, base.name, space.tenant,
          array(SELECT queue.name FROM {schema}.queues AS queue
                 WHERE queue.key_space_id = base.id ORDER BY queue.name) AS queues`;

const READ = statement(
  "bucket_owners_read",
  `SELECT ${OF_SPACE},
          COALESCE((SELECT json_agg(json_build_object(
                             'worker', owner.worker_id, 'epoch', owner.epoch::text,
                             'buckets', owner.buckets))
                      FROM {schema}.bucket_owners AS owner
                     WHERE owner.key_space_id = space.id), '[]') AS owners
     FROM ${SPACES}
    WHERE $1::int[] IS NULL OR space.id = ANY ($1::int[])
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

/** The keys of one tenant in queues that share their order. */
export interface TenantSpace {
  readonly keySpaceId: number;
  readonly name: string;
  readonly tenant: string;
  readonly queues: readonly string[];
}

export interface KeySpaceOwners extends TenantSpace {
  readonly owners: readonly BucketOwner[];
}

export interface KeySpaceSizes extends TenantSpace {
  readonly sizes: readonly { readonly worker: string; readonly count: number }[];
}

type Row<Space extends TenantSpace> = Omit<Space, "keySpaceId"> & { readonly key_space_id: number };

/** Of these spaces, or of all. */
export async function readKeySpaceOwners(
  db: Queryable,
  ids?: readonly number[],
): Promise<KeySpaceOwners[]> {
  const rows = await db.query<Row<KeySpaceOwners>>(READ, [ids === undefined ? null : [...ids]]);
  return rows.map(({ key_space_id, ...row }) => ({ ...row, keySpaceId: key_space_id }));
}

// A leader looks again and again, mostly at what did not change: how many buckets each worker owns
// is enough to see that. Heartbeats are judged by the database's clock. Whoever drains gets nothing
// and keeps nothing.
const RING = statement(
  "bucket_ring",
  `SELECT (SELECT COALESCE(json_agg(one), '[]') FROM (
            SELECT node.worker_id, info.queues,
                   COALESCE((SELECT json_agg(json_build_object(
                                      'tenant', served.tenant, 'queues', served.queues,
                                      'idle', served.idle))
                               FROM {schema}.worker_tenants AS served
                              WHERE served.worker_id = node.worker_id), '[]') AS tenants
              FROM {worker_nodes} AS node
              JOIN {schema}.worker_info AS info ON info.worker_id = node.worker_id
             WHERE node.heartbeat_at >= NOW() - make_interval(secs => $1::float8)
               AND info.status = 'active') AS one) AS members,
          (SELECT COALESCE(json_agg(one), '[]') FROM (
            SELECT ${OF_SPACE},
                   COALESCE((SELECT json_agg(json_build_object(
                                      'worker', owner.worker_id,
                                      'count', cardinality(owner.buckets)))
                               FROM {schema}.bucket_owners AS owner
                              WHERE owner.key_space_id = space.id), '[]') AS sizes
              FROM ${SPACES}
             ORDER BY space.id) AS one) AS spaces`,
);

/** What a worker runs of one tenant. */
export interface ServedTenant {
  readonly tenant: string;
  readonly queues: readonly string[];
  /** Of these nobody has asked for a while. */
  readonly idle: readonly string[];
}

export interface TaskMember {
  readonly workerId: string;
  /** Run for every tenant. */
  readonly queues: readonly string[];
  /** By tenant. */
  readonly tenants: ReadonlyMap<string, ServedTenant>;
}

interface MemberRow {
  readonly worker_id: string;
  readonly queues: string[];
  readonly tenants: ServedTenant[];
}

export interface Ring {
  readonly members: readonly TaskMember[];
  readonly spaces: readonly KeySpaceSizes[];
}

/** The workers that may own buckets, and how many each worker owns of each key space. */
export async function readRing(db: Queryable, timeoutSeconds: number): Promise<Ring> {
  const [row] = await db.query<{ members: MemberRow[]; spaces: Row<KeySpaceSizes>[] }>(RING, [
    timeoutSeconds,
  ]);
  const { members = [], spaces = [] } = row ?? {};
  return {
    members: members.map((member) => ({
      workerId: member.worker_id,
      queues: member.queues,
      tenants: new Map(member.tenants.map((one) => [one.tenant, one])),
    })),
    spaces: spaces.map(({ key_space_id, ...space }) => ({ ...space, keySpaceId: key_space_id })),
  };
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
