import { ConfigError, InvalidInputError } from "../../base/errors.ts";
import { type Caller, isName, SCOPES, type Scope } from "./caller.ts";

/** One kind of token. */
export interface Credentials {
  /**
   * The caller whose token this is; undefined when it is none of this kind. Throws
   * UnauthenticatedError for one of this kind that is not good, and UnavailableError when that
   * cannot be known now.
   */
  find(bearer: string): Caller | undefined | Promise<Caller | undefined>;
}

/** What a token is given when it is configured or made. */
export interface Grant {
  readonly tenant: string;
  readonly scopes: readonly Scope[];
  /** Defaults to "all". */
  readonly queues?: "all" | readonly string[];
}

export interface CheckedGrant {
  readonly tenant: string;
  readonly scopes: ReadonlySet<Scope>;
  readonly queues: "all" | ReadonlySet<string>;
}

const QUEUES_MAX = 1_000;

/** Refuses what would make a token that can do nothing, or something that nobody meant. */
export function checkGrant(what: string, { tenant, scopes, queues = "all" }: Grant): CheckedGrant {
  if (!isName(tenant)) {
    throw new InvalidInputError(
      `${what} needs a tenant: 1 to 200 bytes, without control characters or blanks at the ends`,
    );
  }
  if (!Array.isArray(scopes) || scopes.length === 0) {
    throw new InvalidInputError(`${what} needs at least one scope: ${SCOPES.join(", ")}`);
  }
  for (const scope of scopes) {
    if (SCOPES.includes(scope)) continue;
    throw new InvalidInputError(
      `${what}: ${JSON.stringify(scope)} is not a scope; known are ${SCOPES.join(", ")}`,
    );
  }
  return { tenant, scopes: new Set(scopes), queues: checkQueues(what, queues) };
}

export function checkQueues(what: string, queues: unknown): "all" | ReadonlySet<string> {
  if (queues === "all") return queues;
  if (!Array.isArray(queues) || queues.length > QUEUES_MAX || !queues.every(isName)) {
    throw new InvalidInputError(
      `${what}: queues must be "all" or a list of at most ${QUEUES_MAX} names of queues`,
    );
  }
  return new Set(queues);
}

/** The same check, where a person configures: such a start is refused. */
export function configured<T>(check: () => T): T {
  try {
    return check();
  } catch (error) {
    if (error instanceof InvalidInputError) throw new ConfigError(error.message);
    throw error;
  }
}
