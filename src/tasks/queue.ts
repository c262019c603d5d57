import { type BackoffPolicy, resolveBackoff } from "../base/backoff.ts";
import { ConfigError, hasReserved } from "../base/errors.ts";
import { refuseUnknown, requireNumber, requireOneOf, withoutUndefined } from "../base/options.ts";
import type { TaskContext } from "./context.ts";
import { type HttpQueueCalls, type HttpSettings, resolveHttpSettings } from "./http-call.ts";
import { type LimitOptions, type Limits, resolveLimits } from "./limits.ts";
import type { Outcome } from "./outcome.ts";
import { type Priority, priorityNumber } from "./priority.ts";
import type { InputOf, OutputOf, StandardSchema } from "./schema.ts";
import type { Task } from "./task.ts";

/** What happens to the tasks behind one that died. */
export type OnDeath = "continue" | "park";

export interface QueueOptions {
  /** Checked when a task is enqueued and again when it is claimed. Defaults to none: any JSON. */
  readonly schema?: StandardSchema;
  /** Checked when a handler completes a task. Defaults to none: any JSON. */
  readonly resultSchema?: StandardSchema;
  /**
   * Queues that share a key space share the order of their keys. Every worker that is to own keys
   * of it must handle all of its queues.
   *
   * Defaults to a space of the queue's own.
   */
  readonly keySpace?: string;
  /** Defaults to "normal". */
  readonly priority?: Priority;
  /** Claims of one task before it is dead-lettered. Defaults to 5. */
  readonly maxAttempts?: number;
  /** Defaults to full jitter over an exponential pause of 5 s, at most 15 min. */
  readonly backoff?: Partial<BackoffPolicy>;
  /** A handler that takes longer has failed. Defaults to none. */
  readonly timeoutSeconds?: number;
  /**
   * "park" holds back the later tasks of a key whose head died, until a person redrives or purges
   * it; "continue" goes on with the next.
   *
   * Defaults to "continue".
   */
  readonly onFailure?: OnDeath;
  /** Losses of its worker on probation before a task is dead-lettered. Defaults to 3. */
  readonly maxLosses?: number;
  /** A longer nack is cut to this. Defaults to 86,400. */
  readonly nackSecondsMax?: number;
  /** Tasks of one key that may run at once. Above 1 their order is given up. Defaults to 1. */
  readonly keyConcurrency?: number;
  /** Enqueues of one key wait for each other, so that their order is total. Defaults to false. */
  readonly serialize?: boolean;
  /** How long an idempotency key is remembered. Defaults to 86,400. */
  readonly idempotencySeconds?: number;
  /** Larger payloads are refused. Defaults to 1 MiB. */
  readonly payloadBytesMax?: number;
  /**
   * Its tasks are HTTP calls, made by workers with `httpJobs`; this is what they have in common.
   * See `httpQueue`.
   *
   * Defaults to none: its tasks are for handlers.
   */
  readonly http?: HttpQueueCalls;
  /** Limits across the whole cluster. Defaults to none. */
  readonly limits?: LimitOptions;
  /** Shares of tenants that compete; one that is not named has 1. Defaults to none. */
  readonly tenantWeights?: Readonly<Record<string, number>>;
}

/** What the definition says, with defaults, as it is stored with the queue. */
export interface QueueSettings {
  readonly priority: number;
  readonly maxAttempts: number;
  readonly backoff: BackoffPolicy;
  readonly timeoutSeconds: number | null;
  readonly onFailure: OnDeath;
  readonly maxLosses: number;
  readonly nackSecondsMax: number;
  readonly keyConcurrency: number;
  readonly serialize: boolean;
  readonly idempotencySeconds: number;
  readonly payloadBytesMax: number;
  readonly tenantWeights: Readonly<Record<string, number>>;
  /** Only of a queue whose tasks are HTTP calls. */
  readonly http?: HttpSettings;
}

export type TaskFunction<Payload, Result> = (
  task: Task<Payload>,
  context: TaskContext<Result>,
) => Outcome<Result> | undefined | void | Promise<Outcome<Result> | undefined | void>;

export interface HandleOptions {
  /** Tasks of this queue that run at once in one worker. Defaults to the worker's concurrency. */
  readonly concurrency?: number;
}

/** A queue whatever its types: what the engine needs of it. */
export interface QueueDefinition {
  readonly name: string;
  readonly keySpace: string;
  readonly settings: QueueSettings;
  readonly limits: Limits;
  readonly schema: StandardSchema | undefined;
  readonly resultSchema: StandardSchema | undefined;
}

/** How a task ended, in the store. */
export type WrittenEnd = "complete" | "put-back" | "end" | "bury";

/**
 * Returned by a handler that says later how the task ended, to whoever runs it (`ended`), once. A
 * promise of each would be dear for who has thousands under way.
 */
export const LATER = Symbol("how the task ended is told later");

/** A queue with the function that runs its tasks. */
export interface TaskHandler {
  readonly queue: QueueDefinition;
  readonly concurrency: number | undefined;
  /** The same, when it changes: asked whenever a task might start. */
  readonly concurrencyNow?: () => number;
  /** The queue is used as it is stored, and not registered: others define it. */
  readonly isStored?: boolean;
  run(task: Task, context: TaskContext): unknown;
  /** What was written of the end of a task, or was not, because its lease was lost. */
  settled?(task: Task, written: WrittenEnd | undefined): void;
  /** Its lease lasts longer now. */
  renewed?(task: Task): void;
  /** Its signal has aborted. For who would listen to every one: a signal is dear. */
  aborted?(task: Task, why: Error): void;
}

const OPTION_KEYS = [
  "schema",
  "resultSchema",
  "keySpace",
  "priority",
  "maxAttempts",
  "backoff",
  "timeoutSeconds",
  "onFailure",
  "maxLosses",
  "nackSecondsMax",
  "keyConcurrency",
  "serialize",
  "idempotencySeconds",
  "payloadBytesMax",
  "http",
  "limits",
  "tenantWeights",
];
const NAME_BYTES_MAX = 200;
const DAY_SECONDS = 86_400;

/** A named line of tasks: what producers enqueue to and workers handle. */
export class Queue<Payload = unknown, Result = unknown, Input = Payload>
  implements QueueDefinition
{
  declare readonly payloadType: Payload;
  declare readonly resultType: Result;
  declare readonly inputType: Input;
  readonly name: string;
  readonly keySpace: string;
  readonly settings: QueueSettings;
  readonly limits: Limits;
  readonly schema: StandardSchema | undefined;
  readonly resultSchema: StandardSchema | undefined;

  constructor(name: string, options: QueueOptions) {
    requireName("a queue", name);
    refuseUnknown(`queue "${name}"`, options, OPTION_KEYS);
    const given = withoutUndefined(options);
    this.name = name;
    this.keySpace = given.keySpace ?? name;
    requireName("a key space", this.keySpace);
    this.schema = requireSchema(name, "schema", given.schema);
    this.resultSchema = requireSchema(name, "resultSchema", given.resultSchema);
    this.settings = resolveSettings(name, given);
    this.limits = resolveLimits(name, given.limits ?? {});
    Object.freeze(this);
  }

  /** Binds the function that runs this queue's tasks in a worker. */
  handle(run: TaskFunction<Payload, Result>, options: HandleOptions = {}): TaskHandler {
    if (typeof run !== "function") {
      throw new ConfigError(`queue "${this.name}": handle needs a function`);
    }
    refuseUnknown(`handler of queue "${this.name}"`, options, ["concurrency"]);
    const { concurrency } = options;
    if (concurrency !== undefined) {
      requireNumber("concurrency", concurrency, { min: 1, max: 10_000, integer: true });
    }
    return { queue: this, run, concurrency };
  }
}

export function queue<
  Schema extends StandardSchema,
  ResultSchema extends StandardSchema = StandardSchema,
>(
  name: string,
  options: QueueOptions & { readonly schema: Schema; readonly resultSchema?: ResultSchema },
): Queue<OutputOf<Schema>, OutputOf<ResultSchema>, InputOf<Schema>>;
export function queue<Payload = unknown, Result = unknown>(
  name: string,
  options?: QueueOptions,
): Queue<Payload, Result>;
/** Defines a queue. Refuses names and options that could not work. */
export function queue(name: string, options: QueueOptions = {}): Queue {
  return new Queue(name, options);
}

export function requireName(what: string, name: unknown): asserts name is string {
  if (typeof name !== "string" || name.trim() === "") {
    throw new ConfigError(`${what} needs a name that is not empty`);
  }
  if (Buffer.byteLength(name) > NAME_BYTES_MAX || hasReserved(name)) {
    throw new ConfigError(
      `${what} needs a name of at most ${NAME_BYTES_MAX} bytes, not ${JSON.stringify(name)}`,
    );
  }
}

function requireSchema(name: string, option: string, schema: unknown): StandardSchema | undefined {
  if (schema === undefined) return undefined;
  const standard = (schema as Partial<StandardSchema>)?.["~standard"];
  if (typeof standard?.validate === "function") return schema as StandardSchema;
  throw new ConfigError(
    `${option} of queue "${name}" must be a Standard Schema validator, such as one of zod, ` +
      "valibot or arktype",
  );
}

/** A tenant may have the name of something that every object has. */
export function tenantWeight({ tenantWeights }: QueueSettings, tenant: string): number {
  return Object.hasOwn(tenantWeights, tenant) ? (tenantWeights[tenant] ?? 1) : 1;
}

function resolveSettings(name: string, given: QueueOptions): QueueSettings {
  const whole = (option: keyof QueueOptions, fallback: number, max: number): number =>
    requireNumber(`${option} of queue "${name}"`, given[option] ?? fallback, {
      min: 1,
      max,
      integer: true,
    });
  const { timeoutSeconds = null } = given;
  if (timeoutSeconds !== null) {
    requireNumber(`timeoutSeconds of queue "${name}"`, timeoutSeconds, { min: 0.001, max: 1e9 });
  }
  const tenantWeights = given.tenantWeights ?? {};
  for (const [tenant, weight] of Object.entries(tenantWeights)) {
    requireNumber(`tenantWeights.${tenant} of queue "${name}"`, weight, { min: 0.01, max: 1000 });
  }
  return Object.freeze({
    priority: priorityNumber(given.priority ?? "normal"),
    maxAttempts: whole("maxAttempts", 5, 1_000_000),
    backoff: resolveBackoff(given.backoff),
    timeoutSeconds,
    onFailure: requireOneOf(`onFailure of queue "${name}"`, given.onFailure ?? "continue", [
      "continue",
      "park",
    ]),
    maxLosses: whole("maxLosses", 3, 1000),
    nackSecondsMax: whole("nackSecondsMax", DAY_SECONDS, 365 * DAY_SECONDS),
    keyConcurrency: whole("keyConcurrency", 1, 10_000),
    serialize: given.serialize === true,
    idempotencySeconds: whole("idempotencySeconds", DAY_SECONDS, 3650 * DAY_SECONDS),
    payloadBytesMax: whole("payloadBytesMax", 1024 * 1024, 256 * 1024 * 1024),
    tenantWeights,
    // Others have no such key, so that what is stored of them stays as it is.
    ...(given.http === undefined ? {} : { http: resolveHttpSettings(name, given.http) }),
  });
}
