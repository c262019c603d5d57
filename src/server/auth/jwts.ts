import { createHash } from "node:crypto";
import { errors, jwtVerify } from "jose";
import type { Clock, WallClock } from "../../base/clock.ts";
import { ConfigError, UnauthenticatedError } from "../../base/errors.ts";
import type { Logger } from "../../base/log.ts";
import { type Caller, isName } from "./caller.ts";
import { readIdentity } from "./claims.ts";
import type { Credentials } from "./credentials.ts";
import { type FetchJson, IssuerKeys } from "./issuer-keys.ts";
import {
  type JwtIssuerOptions,
  normalType,
  type ResolvedIssuer,
  resolveIssuer,
} from "./issuer-options.ts";
import { type Algorithm, isKid } from "./jwks.ts";
import { readJwt, type UnprovenJwt } from "./jwt-text.ts";

export interface JwtOptions {
  readonly fetchJson: FetchJson;
  readonly clock: Clock;
  readonly wallClock: WallClock;
  readonly logger: Logger;
}

interface Issuer extends ResolvedIssuer {
  readonly keys: IssuerKeys;
}

/** By these a token would bring its own key, or ask for what is not understood. */
const REFUSED_HEADERS = ["crit", "jwk", "jku", "x5u", "x5c", "b64", "zip"];

/**
 * JSON Web Tokens of the configured issuers. `iss` chooses the issuer, the issuer's document the
 * key, and the type of the key the algorithm: what the token says of itself only has to agree.
 */
export class Jwts implements Credentials {
  readonly #issuers: ReadonlyMap<string, Issuer>;
  readonly #wallClock: WallClock;

  constructor(issuers: readonly JwtIssuerOptions[], options: JwtOptions) {
    const { fetchJson, clock, logger, wallClock } = options;
    const resolved = issuers.map(resolveIssuer).map((one): [string, Issuer] => {
      const { issuer, jwksUrl, algorithms, staleSecondsMax } = one;
      const staleMsMax = staleSecondsMax * 1000;
      const keys = { issuer, jwksUrl, algorithms, staleMsMax, fetchJson, clock, logger };
      return [issuer, { ...one, keys: new IssuerKeys(keys) }];
    });
    this.#issuers = new Map(resolved);
    this.#wallClock = wallClock;
    if (this.#issuers.size < issuers.length) throw new ConfigError("an issuer is given twice");
  }

  async find(bearer: string): Promise<Caller | undefined> {
    const jwt = readJwt(bearer);
    if (jwt === undefined) return undefined;
    const issuer = this.#issuerOf(jwt);
    const { kid, algorithm } = checkHeader(jwt, issuer);
    const key = await issuer.keys.find(kid, algorithm);
    const claims = await this.#verify(bearer, issuer, { key, algorithm });
    return {
      ...readIdentity(claims, issuer.rules),
      expiresAt: this.#expiry(claims, issuer),
      tokenId: tokenIdOf(claims["jti"], bearer),
    };
  }

  #issuerOf({ claims }: UnprovenJwt): Issuer {
    const { iss } = claims;
    const issuer = typeof iss === "string" ? this.#issuers.get(iss) : undefined;
    if (issuer === undefined) throw new UnauthenticatedError("claim", "iss: not an issuer of ours");
    return issuer;
  }

  async #verify(
    bearer: string,
    { issuer, audience, skewSeconds, ageSecondsMax }: Issuer,
    proof: { readonly key: Parameters<typeof jwtVerify>[1]; readonly algorithm: Algorithm },
  ): Promise<Readonly<Record<string, unknown>>> {
    try {
      const { payload } = await jwtVerify(bearer, proof.key, {
        algorithms: [proof.algorithm],
        issuer,
        audience: [...audience],
        requiredClaims: ["iss", "aud", "exp"],
        clockTolerance: skewSeconds,
        currentDate: new Date(this.#wallClock()),
        ...(ageSecondsMax === undefined ? {} : { maxTokenAge: ageSecondsMax }),
      });
      return payload;
    } catch (error) {
      throw toRefusal(error);
    }
  }

  /** Up to when it is accepted here, with the tolerance for the issuer's clock. */
  #expiry(claims: Readonly<Record<string, unknown>>, issuer: Issuer): Date {
    const { exp, iat } = claims;
    const { lifetimeSecondsMax, skewSeconds } = issuer;
    const now = this.#wallClock() / 1000;
    if (typeof exp !== "number" || exp > now + lifetimeSecondsMax + skewSeconds) {
      throw new UnauthenticatedError("claim", "exp: too far in the future");
    }
    if (typeof iat === "number" && iat > now + skewSeconds) {
      throw new UnauthenticatedError("claim", "iat: in the future");
    }
    return new Date((exp + skewSeconds) * 1000);
  }
}

function checkHeader(
  { header }: UnprovenJwt,
  { algorithms, types, requireType }: Issuer,
): { readonly kid: string; readonly algorithm: Algorithm } {
  const { alg, kid, typ } = header;
  const algorithm = algorithms.find((one) => one === alg);
  if (algorithm === undefined) {
    throw new UnauthenticatedError("algorithm", "not one that this issuer may use");
  }
  const refused = REFUSED_HEADERS.find((name) => Object.hasOwn(header, name));
  if (refused !== undefined) throw new UnauthenticatedError("malformed", `header ${refused}`);
  if (!isKid(kid)) throw new UnauthenticatedError("malformed", "header kid");
  const isTyped = typeof typ === "string" && types.includes(normalType(typ));
  if (!isTyped && (typ !== undefined || requireType)) {
    throw new UnauthenticatedError("malformed", "header typ");
  }
  return { kid, algorithm };
}

/** Errors of the library hold the claims, so none of them is passed on. */
function toRefusal(error: unknown): unknown {
  if (error instanceof errors.JWTExpired) {
    return new UnauthenticatedError("expired", `claim ${error.claim}`);
  }
  if (error instanceof errors.JWTClaimValidationFailed) {
    return new UnauthenticatedError("claim", `${error.claim}: ${error.reason}`);
  }
  if (error instanceof errors.JWSSignatureVerificationFailed) {
    return new UnauthenticatedError("signature", "does not fit the key");
  }
  if (error instanceof errors.JOSEError) return new UnauthenticatedError("malformed", error.code);
  return error;
}

function tokenIdOf(jti: unknown, bearer: string): string {
  if (isName(jti)) return `jwt:${jti}`;
  return `jwt:${createHash("sha256").update(bearer).digest("hex").slice(0, 16)}`;
}
