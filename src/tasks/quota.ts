import { InvalidInputError, LimitError } from "../base/errors.ts";
import { refuseUnknown, requireNumber } from "../base/options.ts";
import { requireText } from "./encode.ts";
import type { Rate, RateOptions } from "./limits.ts";

/**
 * The tenant has as much as it may have, or creates faster than it may. Nothing was stored. The
 * same call may succeed when tasks of the tenant have ended, or a little later.
 */
export class QuotaError extends LimitError {
  override readonly code = "TM_QUOTA";
}

/** What a person changes: what is left out stays as it is, `null` lifts it. */
export interface QuotaChanges {
  /** Tasks that wait or run. */
  readonly pendingTasks?: number | null;
  /** Bytes of their payloads. */
  readonly pendingBytes?: number | null;
  /** Creates per period. */
  readonly rate?: RateOptions | null;
}

export interface Quota {
  readonly pendingTasks: number | null;
  readonly pendingBytes: number | null;
  readonly rate: Rate | null;
}

export interface Amount {
  readonly tasks: number;
  readonly bytes: number;
}

/** Bytes as they are sent, which are those of base64 where a payload is binary. */
export function amountOf(tasks: readonly { readonly payload: string }[]): Amount {
  let bytes = 0;
  for (const { payload } of tasks) bytes += Buffer.byteLength(payload);
  return { tasks: tasks.length, bytes };
}

export const NOTHING: Amount = Object.freeze({ tasks: 0, bytes: 0 });

const TENANT_BYTES_MAX = 200;
const AMOUNT_MAX = Number.MAX_SAFE_INTEGER;

/** Undefined for what stays as it is. Refuses nonsense. */
export function checkQuota(tenant: string, changes: QuotaChanges): Partial<Quota> {
  requireText("tenant", tenant, TENANT_BYTES_MAX);
  refuseUnknown("quota", changes, ["pendingTasks", "pendingBytes", "rate"]);
  const { pendingTasks, pendingBytes, rate } = changes;
  const range = { min: 0, max: AMOUNT_MAX, integer: true };
  for (const [name, value] of Object.entries({ pendingTasks, pendingBytes })) {
    if (value !== undefined && value !== null) requireNumber(name, value, range);
  }
  return {
    ...(pendingTasks === undefined ? {} : { pendingTasks }),
    ...(pendingBytes === undefined ? {} : { pendingBytes }),
    ...(rate === undefined ? {} : { rate: rate === null ? null : checkRate(rate) }),
  };
}

function checkRate(rate: RateOptions): Rate {
  if (typeof rate !== "object") throw new InvalidInputError("rate must be { count, seconds }");
  refuseUnknown("rate", rate, ["count", "seconds"]);
  const { count, seconds = 1 } = rate;
  return {
    count: requireNumber("rate.count", count, { min: 1, max: 1_000_000_000, integer: true }),
    seconds: requireNumber("rate.seconds", seconds, { min: 0.001, max: 86_400 }),
  };
}

/** What is known of a tenant when a server asks for a grant. */
export interface Usage {
  /** What is in the tables. */
  readonly used: Amount;
  /** What other servers may still store, or have under way. */
  readonly others: Amount;
  /** What this server has under way. */
  readonly inFlight: Amount;
  /** What it was asked for. */
  readonly wanted: Amount;
}

/** Half of what is left, so that something is left for others; all of it if that is wanted. */
export function grantFor(quota: Quota, { used, others, inFlight, wanted }: Usage): Amount {
  const part = (max: number | null, name: keyof Amount): number => {
    if (max === null) return Infinity;
    const left = Math.max(0, max - used[name] - others[name] - inFlight[name]);
    return Math.max(Math.ceil(left / 2), Math.min(left, wanted[name]));
  };
  return {
    tasks: part(quota.pendingTasks, "tasks"),
    bytes: part(quota.pendingBytes, "bytes"),
  };
}
