import { UnauthenticatedError } from "../../base/errors.ts";
import type { Caller } from "./caller.ts";
import type { Credentials } from "./credentials.ts";

/** Finds out who is calling. */
export interface Authenticator {
  /**
   * Throws UnauthenticatedError when the token is not good, and UnavailableError when that cannot
   * be known now: the same token may be good in a moment.
   */
  authenticate(bearer: string): Promise<Caller>;
}

/** A longer one is refused unread. */
const BEARER_LENGTH_MAX = 8_192;

/** The first kind that knows the token decides. */
export class BearerAuthenticator implements Authenticator {
  readonly #kinds: readonly Credentials[];

  constructor(kinds: readonly Credentials[]) {
    this.#kinds = kinds;
  }

  async authenticate(bearer: string): Promise<Caller> {
    if (bearer === "") throw new UnauthenticatedError("missing");
    if (bearer.length > BEARER_LENGTH_MAX) {
      throw new UnauthenticatedError("malformed", `longer than ${BEARER_LENGTH_MAX} characters`);
    }
    for (const kind of this.#kinds) {
      const caller = await kind.find(bearer);
      if (caller !== undefined) return caller;
    }
    throw new UnauthenticatedError("unknown", "no kind of token that is configured");
  }
}

/** The token in an Authorization header; "" when there is none. */
export function bearerOf(header: string | undefined): string {
  return /^bearer +(\S+) *$/i.exec(header ?? "")?.[1] ?? "";
}
