import { timingSafeEqual } from "node:crypto";
import type { Clock } from "../../base/clock.ts";
import { UnauthenticatedError, UnavailableError } from "../../base/errors.ts";
import type { Queryable } from "../../db/database.ts";
import { API_KEY_PREFIX, hashApiKey, idOfApiKey } from "./api-key.ts";
import { type Caller, SCOPES, type Scope } from "./caller.ts";
import type { Credentials } from "./credentials.ts";
import { type LookedUpKey, lookUpApiKeys } from "./sql/api-keys.ts";

export interface ApiKeysOptions {
  readonly clock: Clock;
  /** How long what was read of a key is believed: a revocation is noticed within this time. */
  readonly freshMs: number;
  /** Called for every key that was accepted. */
  readonly onUse: (id: string) => void;
}

/** What was found under an id, also that there is nothing. */
interface Found {
  /** Before the database was asked: whatever was committed until then is seen. */
  readonly asOf: number;
  readonly key: LookedUpKey | undefined;
}

interface Batch {
  readonly ids: Set<string>;
  readonly found: Promise<ReadonlyMap<string, Found>>;
}

const KEPT_MAX = 10_000;
const BATCH_MAX = 1_000;

/**
 * API keys, looked up by id and compared by hash. One lookup is under way at a time and asks for
 * all that gathered meanwhile, so a flood of invented keys costs the database one connection.
 */
export class ApiKeys implements Credentials {
  readonly #db: Queryable;
  readonly #options: ApiKeysOptions;
  readonly #kept = new Map<string, Found>();
  #next: Batch | undefined;
  #underWay: Promise<unknown> = Promise.resolve();

  constructor(db: Queryable, options: ApiKeysOptions) {
    this.#db = db;
    this.#options = options;
  }

  async find(bearer: string): Promise<Caller | undefined> {
    if (!bearer.startsWith(API_KEY_PREFIX)) return undefined;
    const id = idOfApiKey(bearer);
    if (id === undefined) throw new UnauthenticatedError("malformed", "not an API key in form");
    const { key, asOf } = await this.#look(id);
    if (key === undefined) throw new UnauthenticatedError("unknown", `no API key ${id}`);
    // First of all: what is said of a key is said to its holder only.
    if (!timingSafeEqual(key.hash, hashApiKey(bearer))) {
      throw new UnauthenticatedError("signature", `API key ${id} with another secret`);
    }
    if (key.is_revoked) throw new UnauthenticatedError("revoked", `API key ${id}`);
    const secondsSince = (this.#options.clock.now() - asOf) / 1000;
    if (key.seconds_left !== null && key.seconds_left <= secondsSince) {
      throw new UnauthenticatedError("expired", `API key ${id}`);
    }
    this.#options.onUse(id);
    return toCaller(key);
  }

  async #look(id: string): Promise<Found> {
    const { clock, freshMs } = this.#options;
    const known = this.#kept.get(id);
    if (known !== undefined && clock.now() - known.asOf < freshMs) return known;
    const batch = (this.#next ??= this.#gather());
    if (batch.ids.size >= BATCH_MAX && !batch.ids.has(id)) {
      throw new UnavailableError("too many API keys are looked up at once; try again");
    }
    batch.ids.add(id);
    const found = (await batch.found).get(id);
    if (found === undefined) throw new Error("a lookup of API keys left one out");
    return found;
  }

  #gather(): Batch {
    const ids = new Set<string>();
    const found = this.#underWay.then(() => {
      this.#next = undefined;
      return this.#read([...ids]);
    });
    this.#underWay = found.catch(() => {});
    return { ids, found };
  }

  async #read(ids: readonly string[]): Promise<ReadonlyMap<string, Found>> {
    const asOf = this.#options.clock.now();
    const keys = new Map((await lookUpApiKeys(this.#db, ids)).map((key) => [key.id, key]));
    const found = new Map(ids.map((id) => [id, { asOf, key: keys.get(id) }]));
    for (const [id, one] of found) {
      this.#kept.delete(id); // To the end of the line of those to be forgotten.
      this.#kept.set(id, one);
    }
    for (const id of this.#kept.keys()) {
      if (this.#kept.size <= KEPT_MAX) break;
      this.#kept.delete(id);
    }
    return found;
  }
}

const isScope = (text: string): text is Scope => SCOPES.some((scope) => scope === text);

function toCaller({ id, tenant, name, scopes, queues, expires_at }: LookedUpKey): Caller {
  return {
    tenant,
    // A newer version may have written one that this version does not know, and must not guess.
    scopes: new Set(scopes.filter(isScope)),
    queues: queues === null ? "all" : new Set(queues),
    subject: name ?? id,
    expiresAt: expires_at ?? "never",
    tokenId: `key:${id}`,
  };
}
