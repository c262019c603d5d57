import { Bell } from "../../base/bell.ts";
import type { Clock, WallClock } from "../../base/clock.ts";
import { messageOf, UnauthenticatedError } from "../../base/errors.ts";
import type { Logger } from "../../base/log.ts";
import { runLoop, type TurnResult } from "../../base/loop.ts";
import type { Secret } from "../../base/secret.ts";
import type { Authenticator } from "./authenticator.ts";
import type { Caller } from "./caller.ts";

export interface StreamAuthOptions {
  readonly authenticator: Authenticator;
  readonly clock: Clock;
  readonly wallClock: WallClock;
  readonly logger: Logger;
  /** How often the token is presented again. Defaults to 5,000. */
  readonly recheckMs?: number;
}

const RECHECK_MS = 5_000;

/** How long until the token of a stream is to be looked at again; 0 when it has expired. */
export function msUntilLook(
  expiresAt: Caller["expiresAt"],
  nowMs: number,
  recheckMs: number,
): number {
  if (expiresAt === "never") return recheckMs;
  return Math.max(0, Math.min(recheckMs, expiresAt.getTime() - nowMs));
}

/**
 * Watches the token of a stream that outlives the request which brought it. The stream must end
 * when the token expires, and within `recheckMs` of the authenticator's noticing that it was
 * revoked.
 */
export class StreamAuth {
  readonly #bearer: Secret;
  readonly #options: StreamAuthOptions;
  readonly #caller: Caller;

  /** @param caller whom the authenticator found when the stream began */
  constructor(bearer: Secret, caller: Caller, options: StreamAuthOptions) {
    this.#bearer = bearer;
    this.#caller = caller;
    this.#options = options;
  }

  /**
   * Resolves with why the stream must end, or with undefined once `signal` aborts. While the token
   * cannot be checked, the stream goes on until the token expires.
   */
  async watch(signal: AbortSignal): Promise<UnauthenticatedError | undefined> {
    const { clock, logger } = this.#options;
    const over = new AbortController();
    let refusal: UnauthenticatedError | undefined;
    const turn = async (): Promise<TurnResult> => {
      refusal = this.#expired() ?? (await this.#refusal()) ?? this.#expired();
      if (refusal !== undefined) over.abort();
      return { restMs: this.#restMs() };
    };
    const onFailure = (error: unknown): number => {
      const { tenant, tokenId } = this.#caller;
      const fields = { error: messageOf(error), tenant, tokenId };
      logger.warn(fields, "could not check the token of a stream");
      return this.#restMs();
    };
    const either = AbortSignal.any([signal, over.signal]);
    await runLoop(turn, { clock, bell: new Bell(), onFailure }, either);
    return refusal;
  }

  #restMs(): number {
    const { wallClock, recheckMs = RECHECK_MS } = this.#options;
    return msUntilLook(this.#caller.expiresAt, wallClock(), recheckMs);
  }

  #expired(): UnauthenticatedError | undefined {
    return this.#restMs() > 0 ? undefined : new UnauthenticatedError("expired", "during a stream");
  }

  async #refusal(): Promise<UnauthenticatedError | undefined> {
    try {
      const { tenant } = await this.#options.authenticator.authenticate(this.#bearer.reveal());
      // The stream acts for the tenant that it began with.
      if (tenant === this.#caller.tenant) return undefined;
      return new UnauthenticatedError("claim", "another tenant than when the stream began");
    } catch (error) {
      if (error instanceof UnauthenticatedError) return error;
      throw error;
    }
  }
}
