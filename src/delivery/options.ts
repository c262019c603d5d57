import { ConfigError } from "../base/errors.ts";
import { refuseUnknown, requireNumber } from "../base/options.ts";
import { type EgressOptions, resolveEgressOptions } from "./egress/options.ts";
import type { CallLimits } from "./in-flight.ts";
import { ATTEMPTS_MAX } from "./verdict.ts";

/** How a worker delivers webhooks. */
export interface DeliverOptions {
  /** Calls of one delivery before it is dead; 16 take about a day. Defaults to 16. */
  readonly attemptsMax?: number;
  /** Calls under way at once in this worker. Defaults to 64. */
  readonly concurrency?: number;
  /**
   * What may be called: see `docs/explanation/egress.md`. Of webhooks, `callSeconds` is 15 and
   * `responseBytesMax` 4 KiB unless given.
   *
   * Defaults to public `https:` addresses only.
   */
  readonly egress?: EgressOptions;
  /**
   * Calls under way at once to one endpoint, or to one host that tasks of a tenant name.
   *
   * Defaults to 4.
   */
  readonly endpointConcurrency?: number;
  /** Calls under way at once for one tenant. Defaults to half of `concurrency`. */
  readonly tenantConcurrency?: number;
}

export interface ResolvedDeliverOptions {
  readonly attemptsMax: number;
  readonly limits: CallLimits;
  readonly callSeconds: number;
  readonly egress: EgressOptions;
}

const KEYS = ["attemptsMax", "concurrency", "egress", "endpointConcurrency", "tenantConcurrency"];
const CALL_SECONDS = 15;
const RESPONSE_BYTES_MAX = 4_096;

/** Undefined when this worker delivers none. Refuses nonsense at start-up. */
export function resolveDeliverOptions(
  given: boolean | DeliverOptions,
): ResolvedDeliverOptions | undefined {
  if (given === false) return undefined;
  if (typeof given !== "boolean" && (typeof given !== "object" || given === null)) {
    throw new ConfigError("deliverWebhooks must be true, false or an object with its options");
  }
  const options: DeliverOptions = given === true ? {} : given;
  refuseUnknown("deliverWebhooks", options, KEYS);
  const whole = { min: 1, max: 10_000, integer: true };
  const total = requireNumber("concurrency", options.concurrency ?? 64, whole);
  const lane = requireNumber("endpointConcurrency", options.endpointConcurrency ?? 4, whole);
  const half = Math.ceil(total / 2);
  const tenant = requireNumber("tenantConcurrency", options.tenantConcurrency ?? half, whole);
  const egress = {
    callSeconds: CALL_SECONDS,
    responseBytesMax: RESPONSE_BYTES_MAX,
    ...options.egress,
  };
  const { callSeconds } = resolveEgressOptions(egress);
  const attemptsMax = options.attemptsMax ?? ATTEMPTS_MAX;
  requireNumber("attemptsMax", attemptsMax, { ...whole, max: 1_000 });
  return { attemptsMax, limits: { total, lane, tenant }, callSeconds, egress };
}
