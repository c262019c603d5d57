import { UnauthenticatedError } from "../../base/errors.ts";
import { type Caller, isName, type Scope } from "./caller.ts";

/** Which claims say what. */
export interface ClaimRules {
  readonly tenantClaims: readonly string[];
  readonly tenantFromSubject: boolean;
  readonly scopeClaim: string;
  readonly scopeNames: ReadonlyMap<string, readonly Scope[]>;
  readonly defaultScopes: ReadonlySet<Scope>;
  readonly queuesClaim: string;
  readonly defaultQueues: "all" | ReadonlySet<string>;
  readonly adminRole: string | undefined;
  readonly roleClaim: string;
}

type Claims = Readonly<Record<string, unknown>>;
type Identity = Pick<Caller, "tenant" | "scopes" | "queues" | "subject">;

const QUEUES_MAX = 1_000;

/**
 * Who the proven claims say is calling. A claim that is missing grants nothing beyond the defaults;
 * one of another shape than expected refuses the token, for nobody knows what it was meant to say.
 */
export function readIdentity(claims: Claims, rules: ClaimRules): Identity {
  const subject = ownClaim(claims, "sub");
  if (!isName(subject)) throw wrong("sub");
  return {
    tenant: readTenant(claims, rules, subject),
    scopes: readScopes(claims, rules),
    queues: readQueues(claims, rules),
    subject,
  };
}

function readTenant(claims: Claims, rules: ClaimRules, subject: string): string {
  let tenant: string | undefined;
  for (const name of rules.tenantClaims) {
    const value = ownClaim(claims, name);
    if (value === undefined) continue;
    if (!isName(value)) throw noTenant(name, SHAPE);
    tenant ??= value;
    if (tenant !== value) throw noTenant(name, "disagrees with another claim of the tenant");
  }
  if (tenant !== undefined) return tenant;
  if (rules.tenantFromSubject) return subject;
  throw noTenant(rules.tenantClaims.join(", "), "missing: no tenant");
}

function readScopes(claims: Claims, rules: ClaimRules): ReadonlySet<Scope> {
  const words = readWords(claims, rules.scopeClaim);
  const scopes = new Set(
    words === undefined
      ? rules.defaultScopes
      : words.flatMap((word) => rules.scopeNames.get(word) ?? []),
  );
  const roles = rules.adminRole === undefined ? undefined : readWords(claims, rules.roleClaim);
  if (roles?.some((role) => role === rules.adminRole) === true) scopes.add("admin");
  return scopes;
}

function readQueues(claims: Claims, rules: ClaimRules): Caller["queues"] {
  const queues = ownClaim(claims, rules.queuesClaim);
  if (queues === undefined) return rules.defaultQueues;
  if (!Array.isArray(queues) || queues.length > QUEUES_MAX || !queues.every(isName)) {
    throw wrong(rules.queuesClaim);
  }
  return queues.includes("*") ? "all" : new Set(queues);
}

/** A text of words, or a list of them. */
function readWords(claims: Claims, name: string): readonly string[] | undefined {
  const value = ownClaim(claims, name);
  if (value === undefined) return undefined;
  if (typeof value === "string") return value.split(" ").filter((word) => word !== "");
  if (Array.isArray(value) && value.every((word) => typeof word === "string")) return value;
  throw wrong(name);
}

/** A claim may have the name of something that every object has. */
function ownClaim(claims: Claims, name: string): unknown {
  return Object.hasOwn(claims, name) ? claims[name] : undefined;
}

const SHAPE = "not of the expected shape";

/** Names the claim and never what is in it. */
const wrong = (claim: string): UnauthenticatedError =>
  new UnauthenticatedError("claim", `${claim}: ${SHAPE}`);

/** CodeQ's clients are told when it is the tenant. */
const noTenant = (claim: string, why: string): UnauthenticatedError =>
  new UnauthenticatedError("tenant", `${claim}: ${why}`);
