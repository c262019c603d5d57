import { InvalidInputError } from "../../base/errors.ts";
import { refuseUnknown } from "../../base/options.ts";
import { activeTrace } from "../../base/trace-context.ts";
import { uuidv4 } from "../../base/uuid.ts";
import { TASK_KEYS } from "../../tasks/new-task.ts";
import { Queue } from "../../tasks/queue.ts";
import { validated } from "../../tasks/schema.ts";
import type { TaskState } from "../../tasks/task.ts";
import type { EnqueuedTask } from "../producer/calls.ts";
import type { RemoteNewTask, RemoteTaskOptions } from "../producer/producer-options.ts";
import { RemoteError } from "../remote-error.ts";
import type { HttpCaller } from "./http-call.ts";

/** A queue as it was defined, or its name. */
export type QueueLike<Input = unknown, Result = unknown> = Queue<unknown, Result, Input> | string;

/** A task as the server shows it. */
export interface TaskRecord {
  readonly id: string;
  readonly state: TaskState;
  readonly queue: string;
  readonly tenant: string;
  readonly kind?: string;
  readonly priority: number;
  readonly partitionKey?: string;
  readonly payload?: unknown;
  /** Of a payload that is not JSON. */
  readonly payloadBase64?: string;
  readonly contentType: string;
  readonly attempt: number;
  readonly maxAttempts: number;
  readonly createdAt: string;
  readonly runAt: string;
  readonly claimedAt?: string;
  readonly finishedAt?: string;
  readonly leaseUntil?: string;
  readonly workerId?: string;
  readonly progress?: unknown;
  readonly result?: unknown;
  readonly reason?: string;
  readonly cause?: string;
  readonly webhook?: string;
  readonly targetUrl?: string;
  /** Position of the event that caused it. */
  readonly causedBy?: string;
  readonly traceParent?: string;
}

/** An attempt that did not complete a task. */
export interface FailureRecord {
  readonly at: string;
  readonly attempt: number;
  readonly outcome: string;
  readonly reason: string;
  readonly stack?: string;
  readonly workerId?: string;
}

export interface TaskFilter {
  readonly queue?: string;
  readonly state?: TaskState;
  readonly partitionKey?: string;
  /** Of the page before. */
  readonly cursor?: string;
  readonly limit?: number;
}

/** How a task ended, or where it is. */
export interface TaskOutcome<Result = unknown> {
  readonly id: string;
  readonly state: TaskState;
  /** Of a completed task. */
  readonly result?: Result;
  readonly reason?: string;
}

export interface WaitOptions {
  /** How long the server waits for the end, in whole seconds. Defaults to 0. */
  readonly waitSeconds?: number;
  readonly signal?: AbortSignal;
}

export const pathOf = (...parts: readonly string[]): string =>
  `/v1/${parts.map((part) => encodeURIComponent(part)).join("/")}`;

const TASK_OPTIONS = TASK_KEYS.filter((key) => key !== "tenant" && key !== "payload");

/** Tasks, over HTTP. */
export class RestTasks {
  readonly #http: HttpCaller;

  constructor(http: HttpCaller) {
    this.#http = http;
  }

  /** Stores a task. It has a key, so that a lost answer is asked for again. */
  async create<Input, Result>(
    queue: QueueLike<Input, Result>,
    payload: Input | Uint8Array,
    options: RemoteTaskOptions = {},
  ): Promise<EnqueuedTask> {
    const { idempotencyKey = uuidv4(), ...rest } = options;
    const { body } = await this.#http.call({
      method: "POST",
      path: "/v1/tasks",
      headers: { "idempotency-key": idempotencyKey },
      body: { queue: nameOf(queue), ...(await toBody(queue, { ...rest, payload })) },
      isRepeatable: true,
    });
    return body as EnqueuedTask;
  }

  /** Stores up to 1,000 tasks of one queue, all of them or none. Their ids, in their order. */
  async createMany<Input, Result>(
    queue: QueueLike<Input, Result>,
    tasks: readonly RemoteNewTask<Input>[],
  ): Promise<string[]> {
    const call = uuidv4();
    const given: object[] = [];
    for (const [place, task] of tasks.entries()) {
      given.push({ idempotencyKey: `${call}:${place}`, ...(await toBody(queue, task)) });
    }
    const { body } = await this.#http.call({
      method: "POST",
      path: "/v1/tasks/batch",
      body: { queue: nameOf(queue), tasks: given },
      isRepeatable: true,
    });
    return [...(body as { ids: string[] }).ids];
  }

  async get(id: string): Promise<TaskRecord> {
    return (await this.#http.call({ path: pathOf("tasks", id) })).body as TaskRecord;
  }

  /** A page, newest first. While there are more, it has a cursor for the next. */
  async list(filter: TaskFilter = {}): Promise<{ tasks: TaskRecord[]; cursor?: string }> {
    refuseUnknown("filter", filter, ["queue", "state", "partitionKey", "cursor", "limit"]);
    const { body } = await this.#http.call({ path: "/v1/tasks", query: { ...filter } });
    return body as { tasks: TaskRecord[]; cursor?: string };
  }

  /** Every attempt that did not complete it, oldest first. */
  async failures(id: string): Promise<FailureRecord[]> {
    const { body } = await this.#http.call({ path: pathOf("tasks", id, "failures") });
    return (body as { failures: FailureRecord[] }).failures;
  }

  /** Why it does not run, in a sentence. */
  async why(id: string): Promise<string> {
    const { body } = await this.#http.call({ path: pathOf("tasks", id, "why") });
    return (body as { why: string }).why;
  }

  /** Keeps it from running, or tells its handler to stop. */
  async cancel(id: string, reason?: string): Promise<"cancelled" | "cancelling"> {
    const { body } = await this.#http.call({
      method: "POST",
      path: pathOf("tasks", id, "cancel"),
      body: reason === undefined ? {} : { reason },
    });
    return (body as { state: "cancelled" | "cancelling" }).state;
  }

  /** Runs now what waits for its time, or gives what ended another life. */
  async retry(id: string): Promise<void> {
    await this.#http.call({ method: "POST", path: pathOf("tasks", id, "retry") });
  }

  /** How it ended, or where it is when it has not ended in time. */
  async result<Result = unknown>(
    id: string,
    options: WaitOptions = {},
  ): Promise<TaskOutcome<Result>> {
    refuseUnknown("result", options, ["waitSeconds", "signal"]);
    const { waitSeconds = 0, signal } = options;
    const { body } = await this.#http.call({
      path: pathOf("tasks", id, "result"),
      query: { waitSeconds: waitSeconds === 0 ? undefined : waitSeconds },
      waitSeconds,
      ...(signal === undefined ? {} : { signal }),
    });
    return body as TaskOutcome<Result>;
  }

  /** Its result once it has completed. Throws TM_TASK_FAILED when it will not, or TM_TIMEOUT. */
  async completed<Result = unknown>(
    id: string,
    options: { readonly withinSeconds?: number; readonly signal?: AbortSignal } = {},
  ): Promise<Result | undefined> {
    refuseUnknown("completed", options, ["withinSeconds", "signal"]);
    const { withinSeconds = 60, signal } = options;
    let left = Math.max(1, Math.ceil(withinSeconds));
    while (left > 0) {
      const waitSeconds = Math.min(left, WAIT_SECONDS);
      const end = await this.result<Result>(id, {
        waitSeconds,
        ...(signal === undefined ? {} : { signal }),
      });
      if (end.state === "completed") return end.result;
      if (ENDED.has(end.state)) throw notCompleted(end);
      left -= waitSeconds;
    }
    throw new RemoteError({
      code: "TM_TIMEOUT",
      message: `task ${id} has not ended within ${withinSeconds} s`,
      retryable: true,
      retryAfterMs: 0,
    });
  }
}

/** One request waits so long at most; servers allow 60 unless told otherwise. */
const WAIT_SECONDS = 30;
const ENDED = new Set<TaskState>(["failed", "dead", "cancelled"]);

function notCompleted({ id, state, reason }: TaskOutcome): RemoteError {
  const why = reason === undefined ? "" : `: ${reason}`;
  const message = `task ${id} is ${state}${why}`;
  return new RemoteError({ code: "TM_TASK_FAILED", message, retryable: false, retryAfterMs: 0 });
}

const nameOf = (queue: QueueLike<never, never> | QueueLike): string =>
  typeof queue === "string" ? queue : queue.name;

async function toBody(queue: unknown, task: RemoteNewTask): Promise<object> {
  const { payload, ...given } = task;
  refuseUnknown("task", given, TASK_OPTIONS);
  // A task that names no trace belongs to that of its caller.
  const options = given.traceParent === undefined ? { ...given, ...activeTrace() } : given;
  const schema = queue instanceof Queue ? queue.schema : undefined;
  if (payload instanceof Uint8Array) {
    if (schema !== undefined) {
      throw new InvalidInputError("the queue has a schema, which bytes cannot fit; send JSON");
    }
    return { ...options, payloadBase64: Buffer.from(payload).toString("base64") };
  }
  if (schema !== undefined) await validated(schema, payload, "the payload");
  return { ...options, payload: payload ?? null };
}
