import { isDeepStrictEqual } from "node:util";
import { ConfigError, InvalidInputError } from "../base/errors.ts";
import { JsonText } from "../base/json-text.ts";
import { refuseUnknown, requireNumber, requireOneOf, withoutUndefined } from "../base/options.ts";
import type { QueueDirectory } from "../tasks/directory.ts";
import { TaskEncoder } from "../tasks/encode.ts";
import type { HttpCall } from "../tasks/http-call.ts";
import type { TaskOptions } from "../tasks/new-task.ts";
import { type Queue, type QueueDefinition, requireName } from "../tasks/queue.ts";
import { DEFAULT_TENANT } from "../tasks/task.ts";
import { CATCH_UP_LIMIT, type CatchUpPolicy, type CronTable, parseCron } from "./cron.ts";
import type { FiringRow } from "./sql/firings.ts";
import type { ScheduleDefinitionRow, ScheduleRow } from "./sql/schedules.ts";

/** What happens to ticks that nobody was there to fire. */
export type CatchUp = CatchUpPolicy["catchUp"];

/**
 * What each task of a schedule is given. A schedule has its own times, and a key that makes
 * enqueues idempotent would make all its tasks one.
 */
export type ScheduleTaskOptions = Omit<
  TaskOptions,
  | "runAt"
  | "delaySeconds"
  | "idempotencyKey"
  | "idempotencySeconds"
  | "contentType"
  | "tenant"
  | "causedBy"
>;

interface ScheduleTimes {
  /** Five fields, six with seconds in front, or a nickname such as `@daily`. */
  readonly cron: string;
  /** IANA name of the zone in which the cron expression is read. Defaults to "UTC". */
  readonly timeZone?: string;
  /**
   * Of ticks that passed while no worker ran, "skip" fires none (unless the latest is less than a
   * minute old), "once" the latest and "all" every one.
   *
   * Defaults to "once".
   */
  readonly catchUp?: CatchUp;
  /** Ticks that "all" makes up for in one transaction; the rest follow. Defaults to 100. */
  readonly catchUpMax?: number;
}

export interface ScheduleOptions<Payload = unknown, Result = unknown, Input = Payload>
  extends ScheduleTaskOptions,
    ScheduleTimes {
  /** A definition, or the name of a queue that is registered. */
  readonly queue: Queue<Payload, Result, Input> | string;
  /** JSON, the same for every task. Defaults to null. */
  readonly payload?: Input | JsonText;
  /** Whose schedule it is, and its tasks. Defaults to "default". */
  readonly tenant?: string;
}

/** The same, whatever the types of the queue. */
interface AnyScheduleOptions extends ScheduleTaskOptions, ScheduleTimes {
  readonly queue: QueueDefinition | string;
  readonly payload?: unknown;
  readonly tenant?: string;
}

/** Of headers the names only, because they may be secret. */
export interface ShownTaskOptions extends Omit<ScheduleTaskOptions, "http"> {
  readonly http?: Omit<HttpCall, "headers"> & { readonly headers?: readonly string[] };
}

/** A schedule as it stands. */
export interface Schedule {
  readonly tenant: string;
  /** Once per tenant. */
  readonly name: string;
  readonly cron: string;
  readonly timeZone: string;
  readonly queue: string;
  readonly payload: unknown;
  readonly options: ShownTaskOptions;
  readonly catchUp: CatchUp;
  readonly catchUpMax: number;
  /** The tick it waits for; undefined when there is none any more. */
  readonly nextAt: Date | undefined;
  /** The last tick that fired, and its task. */
  readonly lastAt: Date | undefined;
  readonly lastTaskId: string | undefined;
  /** Ticks that never fired; a lower bound after a long absence. */
  readonly missed: number;
  readonly pausedAt: Date | undefined;
  /** Why the tick it waits for could not fire yet, and when it is tried again. */
  readonly lastError: string | undefined;
  readonly retryAt: Date | undefined;
  readonly createdAt: Date;
  readonly updatedAt: Date;
}

export interface ScheduleFiring {
  readonly tenant: string;
  readonly schedule: string;
  readonly kind: "tick" | "run-now";
  /** The instant that the cron expression names, or that of the call for "run-now". */
  readonly tick: Date;
  readonly taskId: string;
  readonly firedAt: Date;
}

const TASK_KEYS = [
  "kind",
  "priority",
  "partitionKey",
  "maxAttempts",
  "backoff",
  "timeoutSeconds",
  "webhook",
  "http",
  "traceParent",
  "traceState",
];
const OWN_KEYS = ["cron", "timeZone", "queue", "payload", "catchUp", "catchUpMax", "tenant"];
const KEYS = [...OWN_KEYS, ...TASK_KEYS];
const CATCH_UP_MAX = 100;

/** A definition that was checked, with what its expression means. */
export interface CheckedSchedule {
  readonly row: ScheduleDefinitionRow;
  readonly cron: CronTable;
}

/** Refuses whatever could not fire. Registers the queue if its definition is given. */
export async function checkSchedule(
  directory: QueueDirectory,
  name: string,
  given: AnyScheduleOptions,
): Promise<CheckedSchedule> {
  requireScheduleName(name);
  refuseUnknown("schedule", given, KEYS);
  const { cron, timeZone, queue, payload, ...others } = withoutUndefined(given);
  const { catchUp, catchUpMax, tenant = DEFAULT_TENANT, ...rest } = others;
  const table = parseCron(requireString("cron", cron), requireString("timeZone", timeZone, "UTC"));
  const policy = {
    catch_up: requireOneOf("catchUp", catchUp ?? "once", ["skip", "once", "all"]),
    catch_up_max: requireNumber("catchUpMax", catchUpMax ?? CATCH_UP_MAX, {
      min: 1,
      max: CATCH_UP_LIMIT,
      integer: true,
    }),
  };
  if (payload instanceof Uint8Array) {
    throw new InvalidInputError("the payload of a schedule must be JSON, not bytes");
  }
  const options: ScheduleTaskOptions = rest;
  const known = await directory.find(requireQueue(queue));
  const encoder = new TaskEncoder(directory, known, undefined);
  const task = await encoder.encode({ ...options, tenant, payload });
  return {
    row: {
      tenant,
      name,
      cron: table.expression,
      time_zone: table.timeZone,
      queue: known.name,
      payload: task.payload,
      options,
      ...policy,
    },
    cron: table,
  };
}

/** Makes the task without enqueuing it: what the directory then knows, it need not ask again. */
export async function rehearse(
  directory: QueueDirectory,
  schedule: Pick<ScheduleRow, "tenant" | "queue" | "options" | "payload">,
): Promise<void> {
  const { tenant, queue, options, payload } = schedule;
  const encoder = new TaskEncoder(directory, await directory.find(queue), undefined);
  await encoder.encode({ ...options, tenant, payload: new JsonText(payload) });
}

function requireScheduleName(name: string): void {
  requireName("a schedule", name);
  // UTF-8 has no half characters: the driver would replace them, and two names would be one.
  if (/\p{Surrogate}/u.test(name)) {
    throw new ConfigError("the name of a schedule must not hold half a character");
  }
}

function requireString(option: string, value: unknown, fallback?: string): string {
  const text = value ?? fallback;
  if (typeof text === "string") return text;
  throw new InvalidInputError(`a schedule needs ${option} as a text`);
}

function requireQueue<Given extends object | string>(queue: Given | undefined): Given {
  const name: unknown = typeof queue === "object" ? Reflect.get(queue, "name") : queue;
  if (queue !== undefined && typeof name === "string") return queue;
  throw new InvalidInputError("a schedule needs a queue: its definition, or its name");
}

/** Whether the row says what the definition says. */
export function isSameSchedule(row: ScheduleRow, wanted: ScheduleDefinitionRow): boolean {
  const parts = (definition: ScheduleDefinitionRow): unknown => [
    definition.cron,
    definition.time_zone,
    definition.queue,
    definition.payload,
    JSON.parse(JSON.stringify(definition.options)),
    definition.catch_up,
    definition.catch_up_max,
  ];
  return isDeepStrictEqual(parts(row), parts(wanted));
}

function shownOptions({ http, ...options }: ScheduleTaskOptions): ShownTaskOptions {
  if (http === undefined) return options;
  const { headers, ...call } = http;
  const names = headers === undefined ? {} : { headers: Object.keys(headers) };
  return { ...options, http: { ...call, ...names } };
}

export function toSchedule(row: ScheduleRow): Schedule {
  return {
    tenant: row.tenant,
    name: row.name,
    cron: row.cron,
    timeZone: row.time_zone,
    queue: row.queue,
    payload: JSON.parse(row.payload),
    options: shownOptions(row.options),
    catchUp: row.catch_up,
    catchUpMax: row.catch_up_max,
    nextAt: row.next_at ?? undefined,
    lastAt: row.last_at ?? undefined,
    lastTaskId: row.last_task_id ?? undefined,
    missed: row.missed,
    pausedAt: row.paused_at ?? undefined,
    lastError: row.last_error ?? undefined,
    retryAt: row.retry_at ?? undefined,
    createdAt: row.created_at,
    updatedAt: row.updated_at,
  };
}

export function toFiring(row: FiringRow): ScheduleFiring {
  return {
    tenant: row.tenant,
    schedule: row.name,
    kind: row.kind,
    tick: row.tick,
    taskId: row.task_id,
    firedAt: row.fired_at,
  };
}
