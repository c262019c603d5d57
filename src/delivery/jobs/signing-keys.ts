import { BoundedMap } from "../../base/bounded-map.ts";
import type { Clock } from "../../base/clock.ts";
import { InvalidInputError } from "../../base/errors.ts";
import type { Queryable } from "../../db/database.ts";
import { DEFAULT_ENDPOINT } from "../../tasks/webhook-name.ts";
import { defaultKeys } from "../default-keys.ts";
import { callSecret } from "../signature.ts";
import { type EndpointKeys, readEndpointKeys } from "../sql/endpoints.ts";

/** A rotated secret is noticed within this. */
const REMEMBERED_MS = 5_000;
const REMEMBERED_MAX = 10_000;

interface Remembered {
  readonly keys: Promise<EndpointKeys | undefined>;
  readonly atMs: number;
}

/** The secrets with which calls are signed, asked for once by many calls. */
export class SigningKeys {
  readonly #db: Queryable;
  readonly #clock: Clock;
  readonly #known = new BoundedMap<string, Remembered>(REMEMBERED_MAX);

  constructor(db: Queryable, clock: Clock) {
    this.#db = db;
    this.#clock = clock;
  }

  /** Throws InvalidInputError when nothing can be signed for the endpoint. */
  async secretsOf(tenant: string, endpoint: string): Promise<readonly string[]> {
    const keys = await this.#find(tenant, endpoint);
    if (keys === undefined) {
      throw new InvalidInputError(
        `there is no endpoint ${JSON.stringify(endpoint)} whose secret could sign the call: put it`,
      );
    }
    if (keys.format === "standard") return keys.secrets.map(callSecret);
    throw new InvalidInputError(
      `endpoint ${JSON.stringify(endpoint)} is of format ${keys.format}, which signs results only`,
    );
  }

  async #find(tenant: string, endpoint: string): Promise<EndpointKeys | undefined> {
    const id = JSON.stringify([tenant, endpoint]);
    const known = this.#known.get(id);
    const nowMs = this.#clock.now();
    if (known !== undefined && nowMs - known.atMs < REMEMBERED_MS) return await known.keys;
    const keys =
      endpoint === DEFAULT_ENDPOINT
        ? defaultKeys(this.#db, tenant)
        : readEndpointKeys(this.#db, tenant, endpoint);
    const asked = { keys, atMs: nowMs };
    this.#known.set(id, asked);
    keys.catch(() => {
      if (this.#known.get(id) === asked) this.#known.delete(id);
    });
    return await keys;
  }
}
