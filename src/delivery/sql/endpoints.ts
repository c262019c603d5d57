import type { Queryable } from "../../db/database.ts";
import { statement } from "../../db/statement.ts";
import type { WebhookFormat } from "../message.ts";
import { ACTIVE_SECRETS } from "./deliveries.ts";

const COLUMNS = `tenant, id, url, description, format, rotated_at, disabled_at, disabled_reason,
       created_at, updated_at,
       CASE WHEN old_secret_until > NOW() THEN old_secret_until END AS old_secret_until`;

export interface EndpointRow {
  readonly tenant: string;
  readonly id: string;
  readonly url: string | null;
  readonly description: string | null;
  readonly format: WebhookFormat;
  readonly rotated_at: Date | null;
  /** Only while the old secret signs. */
  readonly old_secret_until: Date | null;
  readonly disabled_at: Date | null;
  readonly disabled_reason: string | null;
  readonly created_at: Date;
  readonly updated_at: Date;
}

const READ = statement(
  "endpoints_read",
  `SELECT ${COLUMNS}
     FROM {schema}.webhook_endpoints
    WHERE tenant = $1
      AND ($2::text IS NULL OR id = $2)
    ORDER BY id`,
);

/** All of the tenant, or the one of this id. */
export async function readEndpoints(
  db: Queryable,
  tenant: string,
  id?: string,
): Promise<EndpointRow[]> {
  return await db.query<EndpointRow>(READ, [tenant, id ?? null]);
}

const SECRETS = statement(
  "endpoint_secrets",
  `SELECT format, disabled_reason, ${ACTIVE_SECRETS} AS secrets
     FROM {schema}.webhook_endpoints AS endpoint
    WHERE tenant = $1 AND id = $2`,
);

export interface EndpointKeys {
  readonly format: WebhookFormat;
  readonly disabled_reason: string | null;
  /** Those that sign now, the newest first. */
  readonly secrets: readonly string[];
}

export async function readEndpointKeys(
  db: Queryable,
  tenant: string,
  id: string,
): Promise<EndpointKeys | undefined> {
  const [row] = await db.query<EndpointKeys>(SECRETS, [tenant, id]);
  return row;
}

const INSERT = statement(
  "endpoint_insert",
  `INSERT INTO {schema}.webhook_endpoints
          (tenant, id, url, description, format, secrets, disabled_at, disabled_reason)
   VALUES ($1, $2, $3, $4, $5, ARRAY[$6], CASE WHEN $7::text IS NOT NULL THEN NOW() END, $7)
       ON CONFLICT (tenant, id) DO NOTHING
   RETURNING ${COLUMNS}`,
);

export interface NewEndpoint {
  readonly tenant: string;
  readonly id: string;
  readonly url?: string | undefined;
  readonly description?: string | undefined;
  readonly format: WebhookFormat;
  readonly secret: string;
  readonly disabledReason?: string | undefined;
}

/** Undefined when the tenant has one of that id. */
export async function insertEndpoint(
  db: Queryable,
  endpoint: NewEndpoint,
): Promise<EndpointRow | undefined> {
  const [row] = await db.query<EndpointRow>(INSERT, [
    endpoint.tenant,
    endpoint.id,
    endpoint.url ?? null,
    endpoint.description ?? null,
    endpoint.format,
    endpoint.secret,
    endpoint.disabledReason ?? null,
  ]);
  return row;
}

// Statements of a transaction that has this see what others with it have committed.
const LOCK = statement(
  "endpoints_lock",
  "SELECT pg_advisory_xact_lock(hashtextextended('tidemill endpoints ' || $1::text, 0))",
);
const OTHERS = statement(
  "endpoints_count_others",
  `SELECT count(*)::int AS others FROM {schema}.webhook_endpoints WHERE tenant = $1 AND id <> $2`,
);

/** How many the tenant has besides this one. Until the transaction ends nobody else counts them. */
export async function countOtherEndpoints(
  tx: Queryable,
  tenant: string,
  id: string,
): Promise<number> {
  await tx.query(LOCK, [tenant]);
  const [row] = await tx.query<{ others: number }>(OTHERS, [tenant, id]);
  return row?.others ?? 0;
}

// Whatever made the old address be disabled need not concern another one.
const UPDATE = statement(
  "endpoint_update",
  `UPDATE {schema}.webhook_endpoints
      SET url = $3, description = $4, format = $5, updated_at = NOW(),
          disabled_at = CASE WHEN $6::boolean IS FALSE THEN COALESCE(disabled_at, NOW())
                             WHEN $6::boolean OR url IS DISTINCT FROM $3 THEN NULL
                             ELSE disabled_at END,
          disabled_reason = CASE WHEN $6::boolean IS FALSE
                                 THEN COALESCE(disabled_reason, 'a person disabled it')
                                 WHEN $6::boolean OR url IS DISTINCT FROM $3 THEN NULL
                                 ELSE disabled_reason END
    WHERE tenant = $1 AND id = $2
   RETURNING ${COLUMNS}`,
);

export interface EndpointChange extends Omit<NewEndpoint, "secret" | "disabledReason"> {
  /** Undefined: as it is. */
  readonly isEnabled?: boolean | undefined;
}

/** Undefined when there is none. */
export async function updateEndpoint(
  db: Queryable,
  endpoint: EndpointChange,
): Promise<EndpointRow | undefined> {
  const [row] = await db.query<EndpointRow>(UPDATE, [
    endpoint.tenant,
    endpoint.id,
    endpoint.url ?? null,
    endpoint.description ?? null,
    endpoint.format,
    endpoint.isEnabled ?? null,
  ]);
  return row;
}

// Compare and set: of two rotations at once the second would end the secret that receivers have.
const ROTATE = statement(
  "endpoint_rotate",
  `UPDATE {schema}.webhook_endpoints
      SET secrets = CASE WHEN $5::float8 > 0 THEN ARRAY[$4, secrets[1]] ELSE ARRAY[$4] END,
          old_secret_until = CASE WHEN $5::float8 > 0
                                  THEN NOW() + make_interval(secs => $5::float8) END,
          rotated_at = NOW(), updated_at = NOW()
    WHERE tenant = $1 AND id = $2 AND secrets[1] = $3
   RETURNING ${COLUMNS}`,
);

export interface Rotation {
  readonly expected: string;
  readonly secret: string;
  readonly overlapSeconds: number;
}

/** Undefined when the newest secret is no longer the expected one. */
export async function rotateEndpoint(
  db: Queryable,
  tenant: string,
  id: string,
  { expected, secret, overlapSeconds }: Rotation,
): Promise<EndpointRow | undefined> {
  const values = [tenant, id, expected, secret, overlapSeconds];
  const [row] = await db.query<EndpointRow>(ROTATE, values);
  return row;
}

const DELETE = statement(
  "endpoint_delete",
  `DELETE FROM {schema}.webhook_endpoints WHERE tenant = $1 AND id = $2 RETURNING id`,
);

export async function deleteEndpoint(db: Queryable, tenant: string, id: string): Promise<boolean> {
  return (await db.query(DELETE, [tenant, id])).length === 1;
}
