import type { Queryable } from "../../db/database.ts";
import { statement } from "../../db/statement.ts";
import type { Amount, Quota } from "../quota.ts";
import type { Held } from "../quota-book.ts";

interface QuotaRow {
  readonly tenant: string;
  readonly pending_tasks: string | null;
  readonly pending_bytes: string | null;
  readonly rate_count: number | null;
  readonly rate_seconds: number | null;
}

export interface TenantQuota extends Quota {
  readonly tenant: string;
}

function toQuota(row: QuotaRow): TenantQuota {
  const { tenant, rate_count: count, rate_seconds: seconds } = row;
  const number = (text: string | null): number | null => (text === null ? null : Number(text));
  return {
    tenant,
    pendingTasks: number(row.pending_tasks),
    pendingBytes: number(row.pending_bytes),
    rate: count === null || seconds === null ? null : { count, seconds },
  };
}

const COLUMNS = "tenant, pending_tasks::text, pending_bytes::text, rate_count, rate_seconds";

const READ = statement(
  "quotas_read",
  `SELECT ${COLUMNS}
     FROM {schema}.tenant_quotas
    WHERE $1::text IS NULL OR tenant = $1
    ORDER BY tenant`,
);

/** All of them, or that of one tenant. */
export async function readQuotas(db: Queryable, tenant?: string): Promise<TenantQuota[]> {
  return (await db.query<QuotaRow>(READ, [tenant ?? null])).map(toQuota);
}

const PUT = statement(
  "quota_put",
  `INSERT INTO {schema}.tenant_quotas AS old
          (tenant, pending_tasks, pending_bytes, rate_count, rate_seconds)
   SELECT $1, $2::text::bigint, $3::text::bigint, $4::int, $5::float8
    WHERE EXISTS (SELECT FROM {schema}.tenant_quotas WHERE tenant = $1)
       OR (SELECT count(*) FROM {schema}.tenant_quotas) < $9
       ON CONFLICT (tenant) DO UPDATE
      SET pending_tasks = CASE WHEN $6 THEN excluded.pending_tasks ELSE old.pending_tasks END,
          pending_bytes = CASE WHEN $7 THEN excluded.pending_bytes ELSE old.pending_bytes END,
          rate_count    = CASE WHEN $8 THEN excluded.rate_count ELSE old.rate_count END,
          rate_seconds  = CASE WHEN $8 THEN excluded.rate_seconds ELSE old.rate_seconds END,
          updated_at    = NOW()
   RETURNING ${COLUMNS}`,
);

/** Undefined when as many tenants have one as may. */
export async function putQuota(
  db: Queryable,
  tenant: string,
  { pendingTasks, pendingBytes, rate }: Partial<Quota>,
  quotasMax: number,
): Promise<TenantQuota | undefined> {
  const text = (value: number | null | undefined): string | null =>
    value === undefined || value === null ? null : String(value);
  const [row] = await db.query<QuotaRow>(PUT, [
    tenant,
    text(pendingTasks),
    text(pendingBytes),
    rate?.count ?? null,
    rate?.seconds ?? null,
    pendingTasks !== undefined,
    pendingBytes !== undefined,
    rate !== undefined,
    quotasMax,
  ]);
  return row === undefined ? undefined : toQuota(row);
}

const DELETE = statement("quota_delete", "DELETE FROM {schema}.tenant_quotas WHERE tenant = $1");

export async function deleteQuota(db: Queryable, tenant: string): Promise<void> {
  await db.query(DELETE, [tenant]);
}

const LOCK = statement(
  "quota_lock",
  `SELECT ${COLUMNS} FROM {schema}.tenant_quotas WHERE tenant = $1 FOR UPDATE`,
);

/** To the end of the transaction: grants of a tenant are given one after another. */
export async function lockQuota(tx: Queryable, tenant: string): Promise<TenantQuota | undefined> {
  const [row] = await tx.query<QuotaRow>(LOCK, [tenant]);
  return row === undefined ? undefined : toQuota(row);
}

interface AmountRow {
  readonly tasks: string;
  readonly bytes: string;
}

const toAmount = (row: AmountRow | undefined): Amount => ({
  tasks: Number(row?.tasks ?? 0),
  bytes: Number(row?.bytes ?? 0),
});

// The condition must be that of the partial indexes, to the letter.
const USAGE = statement(
  "quota_usage",
  `SELECT COALESCE(sum(tasks), 0)::text AS tasks, COALESCE(sum(bytes), 0)::text AS bytes
     FROM (
       SELECT 1 AS tasks,
              COALESCE(octet_length(payload), 0) + COALESCE(octet_length(bytes), 0) AS bytes
         FROM {schema}.tasks
        WHERE tenant = $1 AND options ? 'metered'
       UNION ALL
       SELECT cardinality(ids), octet_length(payloads)
         FROM {schema}.task_packs
        WHERE tenant = $1 AND options ? 'metered'
     ) AS one`,
);

/** What waits and runs of what was stored under a quota. */
export async function readUsage(db: Queryable, tenant: string): Promise<Amount> {
  const [row] = await db.query<AmountRow>(USAGE, [tenant]);
  return toAmount(row);
}

const OTHERS = statement(
  "quota_others",
  `SELECT COALESCE(sum(tasks), 0)::text AS tasks, COALESCE(sum(bytes), 0)::text AS bytes,
          count(*)::int AS servers
     FROM {schema}.tenant_grants
    WHERE tenant = $1 AND server <> $2 AND expires_at > clock_timestamp()`,
);

/** What other servers may store, and how many they are. */
export async function readOtherGrants(
  tx: Queryable,
  tenant: string,
  server: string,
): Promise<Amount & { readonly servers: number }> {
  const [row] = await tx.query<AmountRow & { servers: number }>(OTHERS, [tenant, server]);
  return { ...toAmount(row), servers: row?.servers ?? 0 };
}

const GRANT = statement(
  "quota_grant",
  `WITH expired AS (
     DELETE FROM {schema}.tenant_grants
      WHERE tenant = $1 AND server <> $2 AND expires_at <= clock_timestamp()
   )
   INSERT INTO {schema}.tenant_grants (tenant, server, number, tasks, bytes, expires_at)
   VALUES ($1, $2, $3::text::bigint, $4::text::bigint, $5::text::bigint,
           clock_timestamp() + make_interval(secs => $6))
       ON CONFLICT (tenant, server) DO UPDATE
      SET number = excluded.number, tasks = excluded.tasks, bytes = excluded.bytes,
          expires_at = excluded.expires_at`,
);

export async function writeGrant(
  tx: Queryable,
  { tenant, server }: { readonly tenant: string; readonly server: string },
  { tasks, bytes, number }: Held,
  expiresSeconds: number,
): Promise<void> {
  const counts = [number, tasks, bytes].map((count) => String(Math.ceil(count)));
  await tx.query(GRANT, [tenant, server, ...counts, expiresSeconds]);
}

// Of another number: it was replaced meanwhile by a grant of which this says nothing.
const SHRINK = statement(
  "quota_grants_shrink",
  `WITH changed AS (
     SELECT * FROM jsonb_to_recordset($2::text::jsonb)
              AS one(tenant text, number bigint, tasks bigint, bytes bigint)
   ), gone AS (
     DELETE FROM {schema}.tenant_grants AS old
      USING changed
      WHERE old.server = $1 AND old.tenant = changed.tenant AND old.number = changed.number
        AND changed.tasks = 0 AND changed.bytes = 0
   )
   UPDATE {schema}.tenant_grants AS old
      SET tasks = LEAST(old.tasks, changed.tasks), bytes = LEAST(old.bytes, changed.bytes)
     FROM changed
    WHERE old.server = $1 AND old.tenant = changed.tenant AND old.number = changed.number
      AND NOT (changed.tasks = 0 AND changed.bytes = 0)`,
);

/** They never grow by this. */
export async function shrinkGrants(
  db: Queryable,
  server: string,
  changed: readonly (Held & { readonly tenant: string })[],
): Promise<void> {
  const rows = changed.map(({ tenant, number, tasks, bytes }) => ({
    tenant,
    number,
    tasks: Math.ceil(tasks),
    bytes: Math.ceil(bytes),
  }));
  await db.query(SHRINK, [server, JSON.stringify(rows)]);
}

const FORGET = statement(
  "quota_grants_forget",
  "DELETE FROM {schema}.tenant_grants WHERE server = $1",
);

/** A server that goes leaves its room to the others. */
export async function forgetGrants(db: Queryable, server: string): Promise<void> {
  await db.query(FORGET, [server]);
}
