import { ConfigError } from "../base/errors.ts";
import { type NumberRule, requireNumber } from "../base/options.ts";

/** How long a worker that falls silent keeps its tasks, in three parts. */
export interface Silence {
  /** How often a connection is asked for a sign of life. */
  readonly keepaliveSeconds: number;
  /** How long the sign may take. */
  readonly keepaliveTimeoutSeconds: number;
  /** How long the tasks of a stream that broke wait for their worker. */
  readonly graceSeconds: number;
}

type Part = keyof Silence;

const HOUR = 3_600;
/** Shorter than this is noise of a busy machine. */
const KEEPALIVE = { min: 0.1, max: HOUR };
const RULES: Readonly<Record<Part, NumberRule>> = {
  keepaliveSeconds: KEEPALIVE,
  keepaliveTimeoutSeconds: KEEPALIVE,
  graceSeconds: { min: 0, max: HOUR },
};

/** Of a lease that has room for them. */
const LONGEST: Silence = { keepaliveSeconds: 30, keepaliveTimeoutSeconds: 10, graceSeconds: 2 };
/** Of a shorter lease. */
const GRACE_SHARE = 1 / 4;
/** Of what the grace leaves. To ask often costs little; to give up too soon costs the stream. */
const TIMEOUT_SHARE = 2 / 3;

/**
 * Fills in what was not given, such that all three fit into a lease. A server renews the leases of
 * a worker as long as it believes in the connection, and only keepalive finds out that a machine
 * has gone without a word. So the work of such a worker is free after the sum of the three,
 * whatever the lease is, and "it runs again when the lease is over" is true only if the sum is no
 * longer.
 *
 * @param leaseSeconds Infinity where no worker is served: then nothing has to fit
 */
export function resolveSilence(
  leaseSeconds: number,
  given: Readonly<Partial<Record<Part, unknown>>>,
): Silence {
  const told = (part: Part): number | undefined =>
    given[part] === undefined ? undefined : requireNumber(part, given[part], RULES[part]);
  const [asked, waited] = [told("keepaliveSeconds"), told("keepaliveTimeoutSeconds")];
  const graceSeconds =
    told("graceSeconds") ?? atMost(LONGEST.graceSeconds, leaseSeconds * GRACE_SHARE);
  const room = leaseSeconds - graceSeconds;
  const share = asked === undefined ? room * TIMEOUT_SHARE : room - asked;
  const keepaliveTimeoutSeconds = waited ?? atMost(LONGEST.keepaliveTimeoutSeconds, share);
  const rest = room - keepaliveTimeoutSeconds;
  const keepaliveSeconds = asked ?? atMost(LONGEST.keepaliveSeconds, rest);
  const isTooShort = Math.min(keepaliveSeconds, keepaliveTimeoutSeconds) < KEEPALIVE.min;
  if (isTooShort || Math.round((rest - keepaliveSeconds) * 1000) < 0) {
    throw tooLong(leaseSeconds, { asked, waited, graceSeconds });
  }
  return { keepaliveSeconds, keepaliveTimeoutSeconds, graceSeconds };
}

/** In whole milliseconds, cut: what is derived must not exceed the lease by a rounding. */
const atMost = (longest: number, seconds: number): number =>
  Math.min(longest, Math.floor(seconds * 1000 + 1e-6) / 1000);

function tooLong(
  leaseSeconds: number,
  told: { asked: number | undefined; waited: number | undefined; graceSeconds: number },
): ConfigError {
  const [asked, waited] = [told.asked, told.waited].map((one) => one ?? `>= ${KEEPALIVE.min}`);
  return new ConfigError(
    `keepaliveSeconds (${asked}), keepaliveTimeoutSeconds (${waited}) and graceSeconds ` +
      `(${told.graceSeconds}) must together be at most leaseSeconds (${leaseSeconds}), or a ` +
      "worker that falls silent keeps its tasks past their lease: lower them or leave them out, " +
      "or raise leaseSeconds",
  );
}
