import type { KeyObject } from "node:crypto";
import type { Clock } from "../../base/clock.ts";
import {
  messageOf,
  TimeoutError,
  UnauthenticatedError,
  UnavailableError,
} from "../../base/errors.ts";
import type { Logger } from "../../base/log.ts";
import { type Algorithm, type IssuerKey, pickKey, readJwks } from "./jwks.ts";

/**
 * Fetches a small document over https: the body of a 200 answer, as text; rejects otherwise. It
 * must not read more than `bytesMax`, nor follow redirects unchecked. Whoever provides it guards
 * which addresses may be reached.
 */
export type FetchJson = (url: string, limits: FetchLimits) => Promise<string>;

export interface FetchLimits {
  readonly bytesMax: number;
  readonly timeoutMs: number;
  readonly signal: AbortSignal;
}

export interface IssuerKeysOptions {
  readonly issuer: string;
  readonly jwksUrl: string;
  readonly algorithms: readonly Algorithm[];
  /** How long keys are used that could not be fetched again. */
  readonly staleMsMax: number;
  readonly fetchJson: FetchJson;
  readonly clock: Clock;
  readonly logger: Logger;
}

/**
 * Tokens cannot be judged without the keys of their issuer. The words of this are ours and may be
 * told; what the issuer or the network said is its cause.
 */
export class KeysUnavailableError extends UnavailableError {}

const BYTES_MAX = 65_536;
const TIMEOUT_MS = 5_000;
/** Whatever callers send and whatever the issuer answers: not more often than this. */
const FETCH_EVERY_MS = 30_000;
/** Keys older than this are fetched again, while those that are known serve. */
const REFRESH_MS = 600_000;
/** An id of a key that was not there does not cause another fetch for so long. */
const ABSENT_MS = 60_000;
const ABSENT_MAX = 1_000;

/**
 * The public keys of one issuer. They are fetched when a token needs them first, when a token names
 * one that is not known, and when they are old; never twice at once, never within 30 seconds.
 * A flood of invented ids therefore costs the issuer nothing, and delays a new key by 30 seconds.
 */
export class IssuerKeys {
  readonly #options: IssuerKeysOptions;
  #keys: readonly IssuerKey[] = [];
  #fetchedAt = -Infinity;
  #triedAt = -Infinity;
  #fetching: Promise<void> | undefined;
  #failure: unknown;
  readonly #absentAt = new Map<string, number>();

  constructor(options: IssuerKeysOptions) {
    this.#options = options;
  }

  /** Throws KeysUnavailableError when there are no keys to look among. */
  async find(kid: string, algorithm: Algorithm): Promise<KeyObject> {
    const { clock, staleMsMax } = this.#options;
    const askedAt = clock.now();
    const ageMs = (): number => clock.now() - this.#fetchedAt;
    if (ageMs() >= staleMsMax) await this.#refresh();
    else if (ageMs() >= REFRESH_MS) void this.#refresh();
    if (ageMs() >= staleMsMax) {
      throw new KeysUnavailableError("tokens of this issuer cannot be checked now; try again", {
        cause: this.#failure,
      });
    }
    if (!this.#has(kid) && !this.#isAbsent(kid)) {
      await this.#refresh();
      // Of a look from before nothing follows: the key may have been published since.
      if (!this.#has(kid) && this.#fetchedAt >= askedAt) this.#noteAbsent(kid);
    }
    if (!this.#has(kid)) throw new UnauthenticatedError("unknown", "a key that the issuer lacks");
    const key = pickKey(this.#keys, kid, algorithm);
    if (key !== undefined) return key;
    throw new UnauthenticatedError("algorithm", "the issuer's key is not for this algorithm");
  }

  #has(kid: string): boolean {
    return this.#keys.some((one) => one.kid === kid);
  }

  #isAbsent(kid: string): boolean {
    const at = this.#absentAt.get(kid);
    return at !== undefined && this.#options.clock.now() - at < ABSENT_MS;
  }

  #noteAbsent(kid: string): void {
    this.#absentAt.delete(kid);
    this.#absentAt.set(kid, this.#options.clock.now());
    for (const oldest of this.#absentAt.keys()) {
      if (this.#absentAt.size <= ABSENT_MAX) break;
      this.#absentAt.delete(oldest);
    }
  }

  /** Resolves when there is nothing to be fetched at present, or it was tried. Never rejects. */
  async #refresh(): Promise<void> {
    const now = this.#options.clock.now();
    if (this.#fetching === undefined && now - this.#triedAt >= FETCH_EVERY_MS) {
      this.#triedAt = now;
      this.#fetching = this.#fetch(now).finally(() => {
        this.#fetching = undefined;
      });
    }
    await this.#fetching;
  }

  async #fetch(now: number): Promise<void> {
    const { issuer, algorithms, logger } = this.#options;
    try {
      const text = await this.#download();
      if (Buffer.byteLength(text) > BYTES_MAX) {
        throw new Error(`the answer has more than ${BYTES_MAX} bytes`);
      }
      this.#keys = readJwks(text, algorithms);
      this.#fetchedAt = now;
      this.#failure = undefined;
    } catch (error) {
      this.#failure = error;
      const fields = { issuer, error: messageOf(error), keys: this.#keys.length };
      logger.warn(fields, "could not fetch the keys of an issuer");
    }
  }

  async #download(): Promise<string> {
    const { fetchJson, jwksUrl, clock } = this.#options;
    const { signal, abort } = abortable();
    const late = new Promise<never>((_, reject) => {
      signal.addEventListener("abort", () => reject(new TimeoutError("no answer in time")));
    });
    const cancel = clock.after(TIMEOUT_MS, abort);
    const limits = { bytesMax: BYTES_MAX, timeoutMs: TIMEOUT_MS, signal };
    try {
      return await Promise.race([fetchJson(jwksUrl, limits), late]);
    } finally {
      cancel();
    }
  }
}

function abortable(): { readonly signal: AbortSignal; readonly abort: () => void } {
  const controller = new AbortController();
  return { signal: controller.signal, abort: () => controller.abort() };
}
