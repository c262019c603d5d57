import { refuseUnknown, requireNumber, withoutUndefined } from "../../base/options.ts";

/** Limits of the REST API. */
export interface HttpLimits {
  /** A larger body is refused unread. Defaults to 8 MiB. */
  readonly bodyBytesMax?: number;
  /**
   * What the bodies of all calls under way may have together, on this server. One tenant has at
   * most half of it, and the last quarter is for tenants that have none; more are refused.
   *
   * Defaults to 128 MiB.
   */
  readonly bodiesBytesMax?: number;
  /** Objects and lists inside each other in a body. Defaults to 64. */
  readonly jsonDepthMax?: number;
  /** Members of all objects of a body together. Defaults to 100,000. */
  readonly jsonKeysMax?: number;
  /** Calls of one tenant per second that this server allows in the long run. Defaults to 500. */
  readonly callsPerSecond?: number;
  /** Calls of one tenant that may come at once after a rest. Defaults to 1,000. */
  readonly callsBurst?: number;
  /** Longest wait for the result of a task. Defaults to 60. */
  readonly waitSecondsMax?: number;
  /** Longest wait for a consumer that `x-wait-for` names. Defaults to 10. */
  readonly waitForSecondsMax?: number;
  /**
   * Calls that wait at the same time. One tenant has at most half of the places, and the last
   * quarter is for tenants that have none; more are refused.
   *
   * Defaults to 1,000.
   */
  readonly waitsMax?: number;
  /** Clients that read the feed at the same time; more are refused. Defaults to 1,000. */
  readonly feedClientsMax?: number;
  /** The same of one tenant. Defaults to 600. */
  readonly feedClientsPerTenantMax?: number;
}

export type ResolvedHttpLimits = Readonly<Required<HttpLimits>>;

const DEFAULTS: ResolvedHttpLimits = {
  bodyBytesMax: 8 * 1024 * 1024,
  bodiesBytesMax: 128 * 1024 * 1024,
  jsonDepthMax: 64,
  jsonKeysMax: 100_000,
  callsPerSecond: 500,
  callsBurst: 1_000,
  waitSecondsMax: 60,
  waitForSecondsMax: 10,
  waitsMax: 1_000,
  feedClientsMax: 1_000,
  feedClientsPerTenantMax: 600,
};

export function resolveHttpLimits(given: HttpLimits): ResolvedHttpLimits {
  refuseUnknown("HTTP", given, Object.keys(DEFAULTS));
  const limits = { ...DEFAULTS, ...withoutUndefined(given) };
  const whole = { min: 1, integer: true };
  requireNumber("bodyBytesMax", limits.bodyBytesMax, { ...whole, max: 256 * 1024 * 1024 });
  requireNumber("bodiesBytesMax", limits.bodiesBytesMax, { ...whole, max: 16 * 1024 ** 3 });
  requireNumber("jsonDepthMax", limits.jsonDepthMax, { ...whole, max: 1_000 });
  requireNumber("jsonKeysMax", limits.jsonKeysMax, { ...whole, max: 10_000_000 });
  requireNumber("callsPerSecond", limits.callsPerSecond, { min: 0.001, max: 1_000_000 });
  requireNumber("callsBurst", limits.callsBurst, { ...whole, max: 1_000_000 });
  requireNumber("waitSecondsMax", limits.waitSecondsMax, { ...whole, max: 600 });
  requireNumber("waitForSecondsMax", limits.waitForSecondsMax, { ...whole, max: 600 });
  requireNumber("waitsMax", limits.waitsMax, { ...whole, max: 100_000 });
  const clients = { ...whole, max: 100_000 };
  requireNumber("feedClientsMax", limits.feedClientsMax, clients);
  requireNumber("feedClientsPerTenantMax", limits.feedClientsPerTenantMax, clients);
  return Object.freeze(limits);
}
