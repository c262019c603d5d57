import type { Clock, WallClock } from "../../base/clock.ts";
import { messageOf, UnauthenticatedError } from "../../base/errors.ts";
import type { Logger } from "../../base/log.ts";
import { Secret } from "../../base/secret.ts";
import type { Authenticator } from "../auth/authenticator.ts";
import type { Caller } from "../auth/caller.ts";
import { StreamAuth } from "../auth/stream-auth.ts";

export interface AdmissionOptions {
  readonly authenticator: Authenticator;
  readonly clock: Clock;
  readonly wallClock: WallClock;
  readonly logger: Logger;
  /** How often the token of a stream is looked at again. */
  readonly recheckMs: number;
}

/** A client whose token was accepted. */
export interface Admitted {
  readonly caller: Caller;
  /** Resolves with why the stream must end, or with undefined once `signal` aborts. */
  watch(signal: AbortSignal): Promise<UnauthenticatedError | undefined>;
}

/** Finds out who opens a stream. */
export class Admission {
  readonly #options: AdmissionOptions;

  constructor(options: AdmissionOptions) {
    this.#options = options;
  }

  /** Throws what the authenticator throws, after it was logged with its reason. */
  async admit(token: string, client: string): Promise<Admitted> {
    const { authenticator, logger } = this.#options;
    try {
      const caller = await authenticator.authenticate(token);
      const auth = new StreamAuth(new Secret(token), caller, this.#options);
      return { caller, watch: (signal) => this.#watch(auth, caller, signal) };
    } catch (error) {
      const isRefused = error instanceof UnauthenticatedError;
      const why = isRefused
        ? { reason: error.reason, detail: error.detail }
        : { error: messageOf(error) };
      logger.warn({ client, ...why }, "refused a stream");
      throw error;
    }
  }

  async #watch(
    auth: StreamAuth,
    { tenant, tokenId }: Caller,
    signal: AbortSignal,
  ): Promise<UnauthenticatedError | undefined> {
    const refusal = await auth.watch(signal);
    if (refusal !== undefined) {
      const { reason, detail } = refusal;
      const fields = { tenant, tokenId, reason, detail };
      this.#options.logger.info(fields, "the token of a stream is not good any more");
    }
    return refusal;
  }
}
