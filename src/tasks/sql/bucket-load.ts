import { BUCKETS } from "../../cluster/ring.ts";
import type { Queryable } from "../../db/database.ts";
import { statement } from "../../db/statement.ts";
import type { TenantSpace } from "./bucket-owners.ts";

// Nothing here is counted to its end: of every bucket the first so many of its lane, which the
// index has in order; of packs the first so many; of what ended the newest so many, by the index of
// ids. So it costs the same with a thousand tasks as with millions.
const LOAD = statement(
  "bucket_load",
  `WITH waiting AS MATERIALIZED (
     SELECT place.bucket, head.partition_key AS key, head.state = 'running' AS is_running
       FROM generate_series(0, ${BUCKETS - 1}) AS place(bucket)
      CROSS JOIN LATERAL (
        SELECT task.partition_key, task.state
          FROM {schema}.tasks AS task
         WHERE task.lane = -($1::int * ${BUCKETS} + place.bucket + 1)
           AND task.claim_order > 0
         ORDER BY task.claim_order
         LIMIT $4
      ) AS head
   ), packed AS MATERIALIZED (
     SELECT one.bucket::int, one.key, pack.claim_id IS NOT NULL AS is_running
       FROM (SELECT keys, buckets, claim_id
               FROM {schema}.task_packs
              WHERE lane = -($1::int + 1)
              ORDER BY id
              LIMIT $5) AS pack
      CROSS JOIN LATERAL unnest(string_to_array(pack.keys, chr(30)), pack.buckets)
                 AS one(key, bucket)
   ), live AS MATERIALIZED (
     SELECT bucket, key, count(*) FILTER (WHERE NOT is_running)::int AS waiting,
            count(*) FILTER (WHERE is_running)::int AS running,
            count(*) FILTER (WHERE NOT is_packed) AS listed
       FROM (SELECT bucket, key, is_running, FALSE AS is_packed FROM waiting
              UNION ALL
             SELECT bucket, key, is_running, TRUE FROM packed) AS one
      GROUP BY bucket, key
   )
   SELECT bucket, NULL AS key, sum(waiting)::int AS waiting, sum(running)::int AS running,
          0 AS ended, sum(listed) >= $4 AS is_cut
     FROM live
    GROUP BY bucket
    UNION ALL
   (SELECT bucket, key, waiting, running, 0, FALSE
      FROM live
     ORDER BY waiting + running DESC, key COLLATE "C"
     LIMIT $7)
    UNION ALL
   SELECT NULL, newest.partition_key, 0, 0, count(*)::int, FALSE
     FROM (SELECT queue, tenant, partition_key
             FROM {schema}.task_history
            ORDER BY id DESC
            LIMIT $6) AS newest
    WHERE newest.tenant = $2
      AND newest.queue = ANY ($3::text[])
      AND newest.partition_key IS NOT NULL
    GROUP BY newest.partition_key`,
);

/** How much of what was looked at; each bounds what the look costs. */
export interface LoadBounds {
  readonly perBucket: number;
  readonly packs: number;
  readonly ended: number;
  readonly keys: number;
}

/** Of a bucket, of a key that has live tasks, or of a key of which some ended. */
export interface LoadRow {
  /** Null: to be told from the key. */
  readonly bucket: number | null;
  /** Null: of the whole bucket. */
  readonly key: string | null;
  readonly waiting: number;
  readonly running: number;
  readonly ended: number;
  readonly is_cut: boolean;
}

export async function readBucketLoad(
  db: Queryable,
  { keySpaceId, tenant, queues }: TenantSpace,
  { perBucket, packs, ended, keys }: LoadBounds,
): Promise<LoadRow[]> {
  const values = [keySpaceId, tenant, [...queues], perBucket, packs, ended, keys];
  return await db.query<LoadRow>(LOAD, values);
}
