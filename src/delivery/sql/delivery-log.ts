import type { Queryable } from "../../db/database.ts";
import { statement } from "../../db/statement.ts";
import type { WebhookType } from "../message.ts";
import type { DeathCause } from "../verdict.ts";

const COLUMNS = `number::text AS number, id, tenant, endpoint, url, task_id::text AS task_id, type,
       at, state, attempt, next_at, last_status, last_error, cause, created_at, ended_at`;

export type DeliveryState = "pending" | "running" | "delivered" | "dead";

export interface DeliveryRow {
  readonly number: string;
  readonly id: string;
  readonly tenant: string;
  readonly endpoint: string;
  readonly url: string | null;
  readonly task_id: string;
  readonly type: WebhookType;
  readonly at: Date;
  readonly state: DeliveryState;
  readonly attempt: number;
  readonly next_at: Date;
  readonly last_status: number | null;
  readonly last_error: string | null;
  readonly cause: DeathCause | null;
  readonly created_at: Date;
  readonly ended_at: Date | null;
}

export interface DeliveryFilter {
  readonly ids?: readonly string[] | undefined;
  readonly endpoint?: string | undefined;
  readonly taskId?: string | undefined;
  readonly type?: WebhookType | undefined;
  readonly states?: readonly DeliveryState[] | undefined;
}

const FILTER = `tenant = $1
      AND ($2::uuid[] IS NULL OR id = ANY ($2::uuid[]))
      AND ($3::text IS NULL OR endpoint = $3)
      AND ($4::bigint IS NULL OR task_id = $4::bigint)
      AND ($5::text IS NULL OR type = $5)
      AND ($6::text[] IS NULL OR state = ANY ($6::text[]))`;

const filterValues = (tenant: string, filter: DeliveryFilter): unknown[] => [
  tenant,
  filter.ids ?? null,
  filter.endpoint ?? null,
  filter.taskId ?? null,
  filter.type ?? null,
  filter.states ?? null,
];

// The place of another tenant's delivery is as unknown as one that does not exist.
const READ = statement(
  "deliveries_read",
  `SELECT ${COLUMNS}
     FROM {schema}.webhook_deliveries
    WHERE ${FILTER}
      AND ($7::uuid IS NULL
           OR number < (SELECT number FROM {schema}.webhook_deliveries
                         WHERE tenant = $1 AND id = $7::uuid))
    ORDER BY number DESC
    LIMIT $8`,
);

export interface DeliveryPage extends DeliveryFilter {
  /** Only older ones than that of this id. */
  readonly before?: string | undefined;
  readonly limit: number;
}

/** Newest first. */
export async function readDeliveries(
  db: Queryable,
  tenant: string,
  { before, limit, ...filter }: DeliveryPage,
): Promise<DeliveryRow[]> {
  const values = [...filterValues(tenant, filter), before ?? null, limit];
  return await db.query<DeliveryRow>(READ, values);
}

export interface AttemptRow {
  readonly attempt: number;
  readonly at: Date;
  readonly status: number | null;
  readonly error: string | null;
  readonly message: string | null;
  readonly duration_ms: number | null;
  readonly answer: string | null;
}

const ATTEMPTS = statement(
  "delivery_attempts",
  `SELECT log.attempt, log.at, log.status, log.error, log.message, log.duration_ms, log.answer
     FROM {schema}.webhook_attempts AS log
     JOIN {schema}.webhook_deliveries AS delivery ON delivery.number = log.delivery
    WHERE delivery.tenant = $1 AND delivery.id = $2::uuid
    ORDER BY log.generation`,
);

/** Oldest first. */
export async function readAttempts(
  db: Queryable,
  tenant: string,
  id: string,
): Promise<AttemptRow[]> {
  return await db.query<AttemptRow>(ATTEMPTS, [tenant, id]);
}

// By number, so that what a sender ends meanwhile does not come round again. The generation stays:
// it keeps what an old claim may still say apart from what comes.
const REDELIVER = statement(
  "deliveries_redeliver",
  `WITH picked AS MATERIALIZED (
     SELECT number
       FROM {schema}.webhook_deliveries
      WHERE ${FILTER}
        AND state <> 'running'
        AND number > $7
      ORDER BY number
      LIMIT $8
        FOR UPDATE
   )
   UPDATE {schema}.webhook_deliveries AS delivery
      SET state = 'pending', attempt = 0, next_at = NOW(), cause = NULL, ended_at = NULL
     FROM picked
    WHERE delivery.number = picked.number
   RETURNING delivery.number::text AS number`,
);

/** Numbers of those that are sent again, with all their attempts. */
export async function redeliver(
  db: Queryable,
  tenant: string,
  filter: DeliveryFilter,
  { after, max }: { readonly after: string; readonly max: number },
): Promise<string[]> {
  const values = [...filterValues(tenant, filter), after, max];
  const rows = await db.query<{ number: string }>(REDELIVER, values);
  return rows.map((row) => row.number);
}
