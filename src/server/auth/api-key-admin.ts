import { ConflictError, InvalidInputError, NotFoundError } from "../../base/errors.ts";
import { refuseUnknown } from "../../base/options.ts";
import type { Secret } from "../../base/secret.ts";
import type { Queryable } from "../../db/database.ts";
import { idOfApiKey, isApiKeyId, mintApiKey } from "./api-key.ts";
import { isName } from "./caller.ts";
import { checkGrant, type Grant } from "./credentials.ts";
import { type ApiKeyRow, insertApiKey, readApiKeys, revokeApiKey } from "./sql/api-keys.ts";

export interface ApiKeyOptions extends Grant {
  /** What it is for, for people. Defaults to none. */
  readonly name?: string;
  /** From now on, by the database's clock; at most ten years. Defaults to never. */
  readonly expiresSeconds?: number;
}

export type ApiKeyState = "active" | "expired" | "revoked";

/** What may be shown of a key. */
export interface ApiKey {
  readonly id: string;
  readonly tenant: string;
  readonly name?: string;
  readonly scopes: readonly string[];
  readonly queues: "all" | readonly string[];
  readonly state: ApiKeyState;
  readonly createdAt: Date;
  readonly expiresAt?: Date;
  readonly revokedAt?: Date;
  /** To the minute. */
  readonly lastUsedAt?: Date;
}

const KNOWN = ["tenant", "scopes", "queues", "name", "expiresSeconds"];
const EXPIRES_SECONDS_MAX = 10 * 366 * 86_400;

/** Makes, lists and revokes keys. What a key may do is never changed: make another, revoke it. */
export class ApiKeyAdmin {
  readonly #db: Queryable;

  constructor(db: Queryable) {
    this.#db = db;
  }

  /** The text of the key is nowhere else: it cannot be had a second time. */
  async create(options: ApiKeyOptions): Promise<{ readonly apiKey: ApiKey; readonly key: Secret }> {
    refuseUnknown("API key", options, KNOWN);
    const { tenant, scopes, queues } = checkGrant("an API key", options);
    const { name, expiresSeconds } = options;
    if (queues !== "all" && queues.size === 0) {
      throw new InvalidInputError("an API key for no queue can do nothing: name some, or all");
    }
    if (name !== undefined && !isName(name)) {
      throw new InvalidInputError(
        "the name of an API key has 1 to 200 bytes, without control characters",
      );
    }
    checkExpiry(expiresSeconds);
    const { id, key, hash } = mintApiKey();
    const row = await insertApiKey(this.#db, {
      id,
      tenant,
      name,
      scopes: [...scopes],
      queues: queues === "all" ? undefined : [...queues],
      hash,
      expiresSeconds,
    });
    return { apiKey: toApiKey(row), key };
  }

  /** By tenant, oldest first. Defaults to those of every tenant. */
  async list(options: { readonly tenant?: string } = {}): Promise<ApiKey[]> {
    refuseUnknown("list", options, ["tenant"]);
    return (await readApiKeys(this.#db, options)).map(toApiKey);
  }

  /** Only one of `tenant`, if that is given; one of another is not found. */
  async get(id: string, options: { readonly tenant?: string } = {}): Promise<ApiKey> {
    refuseUnknown("get", options, ["tenant"]);
    const [row] = await readApiKeys(this.#db, { ...options, id: requireId(id) });
    if (row === undefined) throw unknown(requireId(id));
    return toApiKey(row);
  }

  /** For ever. Every running server refuses the key within seconds. Takes the key itself, too. */
  async revoke(id: string, options: { readonly tenant?: string } = {}): Promise<ApiKey> {
    refuseUnknown("revoke", options, ["tenant"]);
    const row = await revokeApiKey(this.#db, requireId(id), options.tenant);
    if (row !== undefined) return toApiKey(row);
    const { id: known, revokedAt } = await this.get(id, options);
    throw new ConflictError(`API key ${known} was revoked at ${revokedAt?.toISOString()}`);
  }
}

/** Does not repeat what was given: it may be a key with one character too few. */
function requireId(given: string): string {
  if (isApiKeyId(given)) return given;
  const id = idOfApiKey(given);
  if (id !== undefined) return id;
  throw new InvalidInputError("the id of an API key is 16 characters, 0 to 9 and a to f");
}

function unknown(id: string): NotFoundError {
  return new NotFoundError(`there is no API key ${id}; "tidemill key list" shows them`);
}

function checkExpiry(seconds: unknown): void {
  const isFine =
    seconds === undefined ||
    (typeof seconds === "number" && seconds >= 1 && seconds <= EXPIRES_SECONDS_MAX);
  if (isFine) return;
  throw new InvalidInputError("an API key expires after a second at least and ten years at most");
}

function toApiKey(row: ApiKeyRow): ApiKey {
  const { id, tenant, name, scopes, queues } = row;
  const expired = row.is_expired === true ? "expired" : "active";
  return {
    id,
    tenant,
    ...(name === null ? {} : { name }),
    scopes,
    queues: queues ?? "all",
    state: row.revoked_at === null ? expired : "revoked",
    createdAt: row.created_at,
    ...(row.expires_at === null ? {} : { expiresAt: row.expires_at }),
    ...(row.revoked_at === null ? {} : { revokedAt: row.revoked_at }),
    ...(row.last_used_at === null ? {} : { lastUsedAt: row.last_used_at }),
  };
}
