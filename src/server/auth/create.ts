import { type Clock, systemClock, type WallClock, wallClock } from "../../base/clock.ts";
import { ConfigError } from "../../base/errors.ts";
import { type Logger, silentLogger } from "../../base/log.ts";
import { refuseUnknown, requireNumber } from "../../base/options.ts";
import type { Service } from "../../base/supervisor.ts";
import type { Queryable } from "../../db/database.ts";
import { ApiKeyUses } from "./api-key-uses.ts";
import { ApiKeys } from "./api-keys.ts";
import { type Authenticator, BearerAuthenticator } from "./authenticator.ts";
import type { Grant } from "./credentials.ts";
import type { FetchJson } from "./issuer-keys.ts";
import type { JwtIssuerOptions } from "./issuer-options.ts";
import { Jwts } from "./jwts.ts";
import { NoAuth } from "./no-auth.ts";
import { type StaticTokenOptions, StaticTokens } from "./static-tokens.ts";

/** Which tokens a server accepts. API keys always are. */
export interface AuthOptions {
  /** Defaults to none. */
  readonly staticTokens?: readonly StaticTokenOptions[];
  /** Defaults to none. */
  readonly issuers?: readonly JwtIssuerOptions[];
  /** Within how many seconds a revoked API key is refused, at most 5. Defaults to 2. */
  readonly revocationSeconds?: number;
  /**
   * What everybody may do, without a token. A server takes it only if all it listens on is a
   * loopback address, and it excludes all other tokens.
   *
   * Defaults to none: callers need a token.
   */
  readonly insecureNoAuth?: Grant;
}

export interface AuthContext {
  readonly db: Queryable;
  /** Needed for issuers. */
  readonly fetchJson?: FetchJson;
  /** Defaults to silence. */
  readonly logger?: Logger;
  /** Defaults to the clock of the process. */
  readonly clock?: Clock;
  /** Defaults to the clock of the machine. */
  readonly wallClock?: WallClock;
}

export interface Auth {
  readonly authenticator: Authenticator;
  /** To be run by the server's supervisor. */
  readonly services: readonly Service[];
}

const KNOWN = ["staticTokens", "issuers", "revocationSeconds", "insecureNoAuth"];

/** Everything that is needed to know who is calling. */
export function createAuth(options: AuthOptions, context: AuthContext): Auth {
  refuseUnknown("auth", options, KNOWN);
  const { staticTokens = [], issuers = [], revocationSeconds = 2, insecureNoAuth } = options;
  if (insecureNoAuth !== undefined) {
    if (staticTokens.length + issuers.length === 0) {
      return { authenticator: new NoAuth(insecureNoAuth), services: [] };
    }
    throw new ConfigError("insecureNoAuth lets everybody in: leave it out, or the tokens");
  }
  const { db, logger = silentLogger, clock = systemClock } = context;
  const range = { min: 0, max: 5 };
  const freshMs = requireNumber("revocationSeconds", revocationSeconds, range) * 1000;
  const uses = new ApiKeyUses(db, { clock, logger });
  const onUse = (id: string): void => uses.note(id);
  const { fetchJson = refuseToFetch } = context;
  if (issuers.length > 0 && context.fetchJson === undefined) {
    throw new ConfigError("issuers need a way to fetch their keys");
  }
  const jwt = { fetchJson, clock, logger, wallClock: context.wallClock ?? wallClock };
  const authenticator = new BearerAuthenticator([
    new StaticTokens(staticTokens),
    new ApiKeys(db, { clock, freshMs, onUse }),
    new Jwts(issuers, jwt),
  ]);
  return { authenticator, services: [uses] };
}

const refuseToFetch: FetchJson = () => Promise.reject(new Error("there is no way to fetch"));
