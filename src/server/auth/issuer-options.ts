import { ConfigError } from "../../base/errors.ts";
import { refuseUnknown, requireNumber, requireOneOf } from "../../base/options.ts";
import { SCOPES, type Scope } from "./caller.ts";
import type { ClaimRules } from "./claims.ts";
import { checkQueues, configured } from "./credentials.ts";
import { ALGORITHMS, type Algorithm } from "./jwks.ts";

/** Whose JSON Web Tokens are accepted, and what is read of them. */
export interface JwtIssuerOptions {
  /** What `iss` must be, to the character. */
  readonly issuer: string;
  /** `aud` must be, or hold, one of these: a token for another service is not for this one. */
  readonly audience: string | readonly string[];
  /** Where the issuer publishes its keys. https only. */
  readonly jwksUrl: string;
  /** Defaults to RS256, ES256 and EdDSA. */
  readonly algorithms?: readonly Algorithm[];
  /** What `typ` may be; other kinds of token have the same key. Defaults to JWT, at+jwt. */
  readonly types?: readonly string[];
  /** Whether a token without `typ` is refused. Defaults to true. */
  readonly requireType?: boolean;
  /** How far the clock of the issuer may be off, at most 60. Defaults to 30. */
  readonly skewSeconds?: number;
  /** How far ahead `exp` may be: nobody can revoke such a token. Defaults to 30 days. */
  readonly lifetimeSecondsMax?: number;
  /** How long ago it may have been issued; tokens then need `iat`. Defaults to no limit. */
  readonly ageSecondsMax?: number;
  /** How long keys serve that cannot be fetched again, 60 to 86,400. Defaults to 3,600. */
  readonly staleSecondsMax?: number;
  /** All of these that a token has must agree. Defaults to tid and its four other spellings. */
  readonly tenantClaims?: readonly string[];
  /** Whether `sub` is the tenant of a token that has none of these. Defaults to false. */
  readonly tenantFromSubject?: boolean;
  /** Words separated by spaces, or a list. Defaults to "scope". */
  readonly scopeClaim?: string;
  /** What each word stands for. Defaults to tidemill:* and codeq:*. */
  readonly scopeNames?: Readonly<Record<string, readonly Scope[]>>;
  /** Scopes of a token without that claim. Defaults to none. */
  readonly defaultScopes?: readonly Scope[];
  /** A list of names of queues; "*" stands for all. Defaults to "eventTypes". */
  readonly queuesClaim?: string;
  /** Queues of a token without that claim. Defaults to none. */
  readonly defaultQueues?: "all" | readonly string[];
  /** A word in `roleClaim` that makes an administrator. Defaults to none: no role does. */
  readonly adminRole?: string;
  /** Defaults to "role". */
  readonly roleClaim?: string;
}

export interface ResolvedIssuer {
  readonly issuer: string;
  readonly audience: readonly string[];
  readonly jwksUrl: string;
  readonly algorithms: readonly Algorithm[];
  readonly types: readonly string[];
  readonly requireType: boolean;
  readonly skewSeconds: number;
  readonly lifetimeSecondsMax: number;
  readonly ageSecondsMax: number | undefined;
  readonly staleSecondsMax: number;
  readonly rules: ClaimRules;
}

const KNOWN: readonly string[] = [
  "issuer",
  "audience",
  "jwksUrl",
  "algorithms",
  "types",
  "requireType",
  "skewSeconds",
  "lifetimeSecondsMax",
  "ageSecondsMax",
  "staleSecondsMax",
  "tenantClaims",
  "tenantFromSubject",
  "scopeClaim",
  "scopeNames",
  "defaultScopes",
  "queuesClaim",
  "defaultQueues",
  "adminRole",
  "roleClaim",
];

const DAY_SECONDS = 86_400;

/** CodeQ's spellings; its issuers need no change. */
const TENANT_CLAIMS = ["tid", "tenantId", "tenant_id", "organizationId", "organization_id"];

const SCOPE_NAMES: Readonly<Record<string, readonly Scope[]>> = {
  ...Object.fromEntries(SCOPES.map((scope) => [`tidemill:${scope}`, [scope]])),
  "codeq:claim": ["worker:claim"],
  "codeq:heartbeat": ["worker:renew"],
  "codeq:abandon": ["worker:abandon"],
  "codeq:nack": ["worker:nack"],
  "codeq:result": ["worker:finish"],
  "codeq:subscribe": ["worker:subscribe"],
  "codeq:admin": ["admin"],
};

/** Applies defaults and refuses what would accept more than was meant. */
export function resolveIssuer(options: JwtIssuerOptions): ResolvedIssuer {
  refuseUnknown("issuer", options, KNOWN);
  const { issuer, ageSecondsMax } = options;
  requireWord("issuer", issuer);
  const what = `issuer ${issuer}`;
  const audience = typeof options.audience === "string" ? [options.audience] : options.audience;
  const algorithms = options.algorithms ?? ["RS256", "ES256", "EdDSA"];
  const types = options.types ?? ["JWT", "at+jwt"];
  for (const one of algorithms) requireOneOf(`${what}: algorithms`, one, ALGORITHMS);
  const seconds = (name: string, value: number, min: number, max: number): number =>
    requireNumber(`${what}: ${name}`, value, { min, max });
  return {
    issuer,
    audience: requireWords(`${what}: audience`, audience),
    jwksUrl: requireHttps(what, options.jwksUrl),
    algorithms: requireWords(`${what}: algorithms`, algorithms) as Algorithm[],
    types: requireWords(`${what}: types`, types).map(normalType),
    requireType: options.requireType ?? true,
    skewSeconds: seconds("skewSeconds", options.skewSeconds ?? 30, 0, 60),
    lifetimeSecondsMax: seconds(
      "lifetimeSecondsMax",
      options.lifetimeSecondsMax ?? 30 * DAY_SECONDS,
      1,
      3_660 * DAY_SECONDS,
    ),
    ageSecondsMax:
      ageSecondsMax === undefined
        ? undefined
        : seconds("ageSecondsMax", ageSecondsMax, 1, 3_660 * DAY_SECONDS),
    staleSecondsMax: seconds("staleSecondsMax", options.staleSecondsMax ?? 3_600, 60, DAY_SECONDS),
    rules: resolveRules(what, options),
  };
}

function resolveRules(what: string, options: JwtIssuerOptions): ClaimRules {
  const { defaultScopes = [], scopeNames = SCOPE_NAMES, defaultQueues = [] } = options;
  for (const scope of [...defaultScopes, ...Object.values(scopeNames).flat()]) {
    requireOneOf(`${what}: scopes`, scope, SCOPES);
  }
  const { adminRole, tenantClaims = TENANT_CLAIMS } = options;
  if (adminRole !== undefined) requireWord(`${what}: adminRole`, adminRole);
  return {
    tenantClaims: requireWords(`${what}: tenantClaims`, tenantClaims),
    tenantFromSubject: options.tenantFromSubject ?? false,
    scopeClaim: requireWord(`${what}: scopeClaim`, options.scopeClaim ?? "scope"),
    scopeNames: new Map(Object.entries(scopeNames)),
    defaultScopes: new Set(defaultScopes),
    queuesClaim: requireWord(`${what}: queuesClaim`, options.queuesClaim ?? "eventTypes"),
    defaultQueues: configured(() => checkQueues(what, defaultQueues)),
    adminRole,
    roleClaim: requireWord(`${what}: roleClaim`, options.roleClaim ?? "role"),
  };
}

/** RFC 7515: "JWT" is short for "application/jwt", whatever its case. */
export function normalType(type: string): string {
  const lower = type.toLowerCase();
  return lower.includes("/") ? lower : `application/${lower}`;
}

function requireHttps(what: string, url: unknown): string {
  const parsed = typeof url === "string" && URL.canParse(url) ? new URL(url) : undefined;
  if (parsed?.protocol !== "https:") {
    throw new ConfigError(`${what}: jwksUrl must begin with https://`);
  }
  if (parsed.username !== "" || parsed.password !== "") {
    throw new ConfigError(`${what}: jwksUrl must not hold a user or a password`);
  }
  return parsed.href;
}

function requireWord(name: string, value: unknown): string {
  if (typeof value === "string" && value !== "") return value;
  throw new ConfigError(`${name} must be a text that is not empty`);
}

function requireWords(name: string, values: readonly string[]): string[] {
  if (!Array.isArray(values) || values.length === 0) {
    throw new ConfigError(`${name} must name at least one`);
  }
  return values.map((value: unknown) => requireWord(name, value));
}
