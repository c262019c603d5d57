import type { Queryable } from "../../../db/database.ts";
import { statement } from "../../../db/statement.ts";
import type { NoticeFormat, NoticeMode } from "../subscription.ts";

const COLUMNS = `id, tenant, url, queues, mode, group_name, format, ttl_seconds,
       min_interval_seconds, expires_at, failing_since, failures, told_at, last_status, last_error,
       created_at`;

export interface SubscriptionRow {
  readonly id: string;
  readonly tenant: string;
  readonly url: string;
  readonly queues: readonly string[] | null;
  readonly mode: NoticeMode;
  readonly group_name: string | null;
  readonly format: NoticeFormat;
  readonly ttl_seconds: number;
  readonly min_interval_seconds: number;
  readonly expires_at: Date;
  readonly failing_since: Date | null;
  readonly failures: number;
  readonly told_at: Date | null;
  readonly last_status: number | null;
  readonly last_error: string | null;
  readonly created_at: Date;
}

// Two at once may be one too many: the limit keeps a tenant from filling the table, no more.
const INSERT = statement(
  "subscription_insert",
  `INSERT INTO {schema}.subscriptions
          (id, tenant, url, queues, mode, group_name, format, secret, ttl_seconds,
           min_interval_seconds, expires_at)
   SELECT $1, $2, $3, $4::text[], $5, $6, $7, $8, $9::float8, $10::float8,
          NOW() + make_interval(secs => $9::float8)
    WHERE (SELECT count(*) FROM {schema}.subscriptions
            WHERE tenant = $2 AND expires_at > NOW()) < $11
   RETURNING ${COLUMNS}`,
);

export interface NewSubscription {
  readonly id: string;
  readonly tenant: string;
  readonly url: string;
  readonly queues: readonly string[] | undefined;
  readonly mode: NoticeMode;
  readonly group: string | undefined;
  readonly format: NoticeFormat;
  /** None of format "codeq". */
  readonly secret: string | undefined;
  readonly ttlSeconds: number;
  readonly minIntervalSeconds: number;
}

/** Undefined when the tenant has as many as it may. */
export async function insertSubscription(
  db: Queryable,
  made: NewSubscription,
  max: number,
): Promise<SubscriptionRow | undefined> {
  const [row] = await db.query<SubscriptionRow>(INSERT, [
    made.id,
    made.tenant,
    made.url,
    made.queues ?? null,
    made.mode,
    made.group ?? null,
    made.format,
    made.secret ?? null,
    made.ttlSeconds,
    made.minIntervalSeconds,
    max,
  ]);
  return row;
}

// What has ended is gone, whether or not its row was removed.
const LIVE = "tenant = $1 AND expires_at > NOW()";

const READ = statement(
  "subscriptions_read",
  `SELECT ${COLUMNS}
     FROM {schema}.subscriptions
    WHERE ${LIVE}
      AND ($2::uuid IS NULL OR id = $2)
    ORDER BY id`,
);

/** All of the tenant, or the one of this id. */
export async function readSubscriptions(
  db: Queryable,
  tenant: string,
  id?: string,
): Promise<SubscriptionRow[]> {
  return await db.query<SubscriptionRow>(READ, [tenant, id ?? null]);
}

// Whoever renews lives: one that waits because calls of it failed is told as soon as its interval
// allows, unless a call of it is under way.
const RENEW = statement(
  "subscription_renew",
  `UPDATE {schema}.subscriptions
      SET ttl_seconds = COALESCE($3::float8, ttl_seconds),
          expires_at = NOW() + make_interval(secs => COALESCE($3::float8, ttl_seconds)),
          next_at = CASE
            WHEN failures = 0 OR claim_id IS NOT NULL THEN next_at
            ELSE LEAST(next_at,
                       GREATEST(NOW(), told_at + make_interval(secs => min_interval_seconds)))
          END
    WHERE ${LIVE} AND id = $2
   RETURNING ${COLUMNS}`,
);

/** Undefined when there is no such one, or it has ended. */
export async function renewSubscription(
  db: Queryable,
  tenant: string,
  id: string,
  ttlSeconds: number | undefined,
): Promise<SubscriptionRow | undefined> {
  const [row] = await db.query<SubscriptionRow>(RENEW, [tenant, id, ttlSeconds ?? null]);
  return row;
}

const DELETE = statement(
  "subscription_delete",
  `DELETE FROM {schema}.subscriptions WHERE ${LIVE} AND id = $2 RETURNING id`,
);

export async function deleteSubscription(
  db: Queryable,
  tenant: string,
  id: string,
): Promise<boolean> {
  return (await db.query(DELETE, [tenant, id])).length === 1;
}

const FORGET = statement(
  "subscriptions_forget",
  `WITH ended AS (
     SELECT id FROM {schema}.subscriptions
      WHERE expires_at < NOW()
      ORDER BY expires_at
      LIMIT $1
        FOR UPDATE SKIP LOCKED
   ), turns AS (
     DELETE FROM {schema}.subscription_turns WHERE next_at < NOW() - INTERVAL '1 hour'
   )
   DELETE FROM {schema}.subscriptions AS one
    USING ended
    WHERE one.id = ended.id
   RETURNING one.id`,
);

/** Removes those that ended, and turns that nobody minds. Returns how many ended. */
export async function forgetSubscriptions(db: Queryable, max: number): Promise<number> {
  return (await db.query(FORGET, [max])).length;
}
