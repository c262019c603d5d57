import { ConfigError } from "../../base/errors.ts";
import { refuseUnknown, requireNumber, withoutUndefined } from "../../base/options.ts";
import { PRIORITY_NAMES } from "../../tasks/priority.ts";
import { Queue } from "../../tasks/queue.ts";
import { type SlotReserve, shareOfReserve } from "../../tasks/slots.ts";
import { type EgressOptions, resolveEgressOptions } from "../egress/options.ts";
import type { TargetRules } from "./targets.ts";

/** How a worker makes the calls of `http` queues. */
export interface HttpJobsOptions {
  /** Calls in a row that find a host dead before it is left alone for a while. Defaults to 5. */
  readonly breakerFailures?: number;
  /**
   * How long it is left alone the first time; then twice as long, at most 30 times as long.
   *
   * Defaults to 10.
   */
  readonly breakerSeconds?: number;
  /** Calls under way at once in this worker. Defaults to 64. */
  readonly concurrency?: number;
  /**
   * What may be called: see `docs/explanation/egress.md`. Of calls of tasks, `callSeconds` is 300
   * unless given: the queue's `timeoutSeconds` ends them before.
   *
   * Defaults to public `https:` addresses only.
   */
  readonly egress?: EgressOptions;
  /** Calls under way at once to one host, for one tenant. Defaults to half of `concurrency`. */
  readonly hostConcurrency?: number;
  /** Queues that are worked, by definition or by name. Defaults to all that are of kind http. */
  readonly queues?: readonly (Queue | string)[];
  /**
   * Of `concurrency`, for tasks of priority "high" and above; of `hostConcurrency`, the same share.
   *
   * Defaults to an eighth of it.
   */
  readonly reservedForHigh?: number;
}

export interface ResolvedHttpJobs {
  readonly concurrency: number;
  readonly reserve: SlotReserve;
  readonly rules: TargetRules;
  readonly egress: EgressOptions;
  /** Registered when the worker starts. */
  readonly definitions: readonly Queue[];
  /** Undefined: every queue of kind http. */
  readonly names: readonly string[] | undefined;
}

const KEYS = [
  "breakerFailures",
  "breakerSeconds",
  "concurrency",
  "egress",
  "hostConcurrency",
  "queues",
  "reservedForHigh",
];
const CALL_SECONDS = 300;
const TARGETS_MAX = 10_000;
const OPEN_TIMES_MAX = 30;

/** Undefined when this worker makes none. Refuses nonsense at start-up. */
export function resolveHttpJobs(given: boolean | HttpJobsOptions): ResolvedHttpJobs | undefined {
  if (given === false) return undefined;
  if (typeof given !== "boolean" && (typeof given !== "object" || given === null)) {
    throw new ConfigError("httpJobs must be true, false or an object with its options");
  }
  const options: HttpJobsOptions = given === true ? {} : withoutUndefined(given);
  refuseUnknown("httpJobs", options, KEYS);
  const whole = { min: 1, max: 10_000, integer: true };
  const concurrency = requireNumber("concurrency", options.concurrency ?? 64, whole);
  const half = Math.ceil(concurrency / 2);
  const callsMax = requireNumber("hostConcurrency", options.hostConcurrency ?? half, whole);
  const reserved = options.reservedForHigh ?? Math.floor(concurrency / 8);
  requireNumber("reservedForHigh", reserved, { min: 0, max: concurrency - 1, integer: true });
  const reserve = { count: reserved, priority: PRIORITY_NAMES.high };
  const openMs = 1_000 * requireSeconds("breakerSeconds", options.breakerSeconds ?? 10);
  const egress = { callSeconds: CALL_SECONDS, ...options.egress };
  resolveEgressOptions(egress);
  return {
    concurrency,
    reserve,
    rules: {
      callsMax,
      targetsMax: TARGETS_MAX,
      highCallsMin: shareOfReserve(reserve, concurrency, callsMax),
      // Half of the reserve is left for those whose host has a place.
      highWaitersMax: Math.ceil(reserved / 2),
      failuresMax: requireNumber("breakerFailures", options.breakerFailures ?? 5, whole),
      openMs,
      openMsMax: openMs * OPEN_TIMES_MAX,
    },
    egress,
    ...resolveQueues(options.queues),
  };
}

function requireSeconds(name: string, value: unknown): number {
  return requireNumber(name, value, { min: 0.1, max: 3_600 });
}

function resolveQueues(
  queues: HttpJobsOptions["queues"],
): Pick<ResolvedHttpJobs, "definitions" | "names"> {
  if (queues === undefined) return { definitions: [], names: undefined };
  if (!Array.isArray(queues) || queues.length === 0) {
    throw new ConfigError("httpJobs.queues must be a list of queues that is not empty");
  }
  const definitions = queues.filter((one) => one instanceof Queue);
  for (const { name, settings } of definitions) {
    if (settings.http !== undefined) continue;
    throw new ConfigError(`queue "${name}" is not of kind http: define it with httpQueue`);
  }
  const names = queues.map((one: Queue | string) => (one instanceof Queue ? one.name : one));
  if (!names.every((name) => typeof name === "string" && name !== "")) {
    throw new ConfigError("httpJobs.queues must be queues, or their names");
  }
  return { definitions, names };
}
