import type { Queryable } from "../../../db/database.ts";
import { statement } from "../../../db/statement.ts";

const COLUMNS = `id, tenant, name, scopes, queues, created_at, expires_at, revoked_at, last_used_at,
       expires_at <= NOW() AS is_expired`;

export interface ApiKeyRow {
  readonly id: string;
  readonly tenant: string;
  readonly name: string | null;
  readonly scopes: readonly string[];
  readonly queues: readonly string[] | null;
  readonly created_at: Date;
  readonly expires_at: Date | null;
  readonly revoked_at: Date | null;
  readonly last_used_at: Date | null;
  /** Null for one that never expires. */
  readonly is_expired: boolean | null;
}

export interface NewApiKey {
  readonly id: string;
  readonly tenant: string;
  readonly name: string | undefined;
  readonly scopes: readonly string[];
  readonly queues: readonly string[] | undefined;
  readonly hash: Buffer;
  readonly expiresSeconds: number | undefined;
}

const INSERT = statement(
  "api_key_insert",
  `INSERT INTO {schema}.api_keys (id, tenant, name, scopes, queues, hash, expires_at)
   VALUES ($1, $2, $3, $4, $5, $6, NOW() + make_interval(secs => $7))
   RETURNING ${COLUMNS}`,
);

export async function insertApiKey(db: Queryable, key: NewApiKey): Promise<ApiKeyRow> {
  const { id, tenant, name, scopes, queues, hash, expiresSeconds } = key;
  const [row] = await db.query<ApiKeyRow>(INSERT, [
    id,
    tenant,
    name ?? null,
    scopes,
    queues ?? null,
    hash,
    expiresSeconds ?? null,
  ]);
  if (row === undefined) throw new Error("an API key was inserted without a row");
  return row;
}

const READ = statement(
  "api_keys_read",
  `SELECT ${COLUMNS}
     FROM {schema}.api_keys
    WHERE ($1::text IS NULL OR tenant = $1)
      AND ($2::text IS NULL OR id = $2)
    ORDER BY tenant, created_at, id`,
);

/** All of them, or those of one tenant, or the one of this id. */
export async function readApiKeys(
  db: Queryable,
  { tenant, id }: { readonly tenant?: string | undefined; readonly id?: string },
): Promise<ApiKeyRow[]> {
  return await db.query<ApiKeyRow>(READ, [tenant ?? null, id ?? null]);
}

const LOOK_UP = statement(
  "api_keys_look_up",
  `SELECT id, tenant, name, scopes, queues, hash, expires_at,
          date_part('epoch', expires_at - NOW())::float8 AS seconds_left,
          revoked_at IS NOT NULL AS is_revoked
     FROM {schema}.api_keys
    WHERE id = ANY ($1::text[])`,
);

export interface LookedUpKey {
  readonly id: string;
  readonly tenant: string;
  readonly name: string | null;
  readonly scopes: readonly string[];
  readonly queues: readonly string[] | null;
  readonly hash: Buffer;
  readonly expires_at: Date | null;
  /** By the database's clock; null for one that never expires. */
  readonly seconds_left: number | null;
  readonly is_revoked: boolean;
}

export async function lookUpApiKeys(db: Queryable, ids: readonly string[]): Promise<LookedUpKey[]> {
  return await db.query<LookedUpKey>(LOOK_UP, [ids]);
}

const REVOKE = statement(
  "api_key_revoke",
  `UPDATE {schema}.api_keys SET revoked_at = NOW()
    WHERE id = $1
      AND revoked_at IS NULL
      AND ($2::text IS NULL OR tenant = $2)
   RETURNING ${COLUMNS}`,
);

/** Undefined when there is no such key, or it was revoked before. */
export async function revokeApiKey(
  db: Queryable,
  id: string,
  tenant: string | undefined,
): Promise<ApiKeyRow | undefined> {
  const [row] = await db.query<ApiKeyRow>(REVOKE, [id, tenant ?? null]);
  return row;
}

// In the order of ids, and past rows that another server writes at this moment: it writes the same.
const USED = statement(
  "api_keys_used",
  `WITH used AS (
     SELECT id
       FROM {schema}.api_keys
      WHERE id = ANY ($1::text[])
        AND (last_used_at IS NULL OR last_used_at < NOW() - make_interval(secs => $2))
      ORDER BY id
        FOR NO KEY UPDATE SKIP LOCKED
   )
   UPDATE {schema}.api_keys AS key
      SET last_used_at = NOW()
     FROM used
    WHERE key.id = used.id`,
);

export async function recordUses(
  db: Queryable,
  ids: readonly string[],
  everySeconds: number,
): Promise<void> {
  await db.query(USED, [ids, everySeconds]);
}

const HAS_ACTIVE = statement(
  "api_keys_has_active",
  `SELECT EXISTS (
     SELECT FROM {schema}.api_keys
      WHERE revoked_at IS NULL AND (expires_at IS NULL OR expires_at > NOW())
   ) AS found`,
);

/** Whether there is a key that is accepted now. */
export async function hasActiveApiKey(db: Queryable): Promise<boolean> {
  const [row] = await db.query<{ readonly found: boolean }>(HAS_ACTIVE, []);
  return row?.found === true;
}
