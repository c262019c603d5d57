import { hostname } from "node:os";
import { ConfigError } from "../../base/errors.ts";
import { refuseUnknown, requireNumber } from "../../base/options.ts";
import { uuidv7 } from "../../base/uuid.ts";
import type { TaskHandler } from "../../tasks/queue.ts";
import type { Task, TaskState } from "../../tasks/task.ts";
import { WorkerStreamService } from "../../wire/generated/tidemill/v1/worker.ts";
import {
  type Ambience,
  CONNECTION_KEYS,
  type ConnectionOptions,
  resolveConnection,
} from "../connection-options.ts";
import type { LineOptions } from "../line.ts";

/** What a server answered to the end of a task. */
export interface TaskAck {
  readonly task: Task;
  /** What was asked for. */
  readonly act: "complete" | "fail" | "nack" | "abandon";
  /** Where the task is now. Undefined: it was refused, and `error` says why. */
  readonly state: TaskState | undefined;
  /** Of a task that was put back: when it may run again. */
  readonly delaySeconds: number;
  /** A LeaseLostError when somebody else has the task. */
  readonly error: Error | undefined;
}

export interface RemoteWorkerOptions extends ConnectionOptions {
  /** Queues with the functions that run their tasks, as `queue.handle(…)` gives them. */
  readonly handlers: readonly TaskHandler[];
  /** Those of the handlers that are run here. Defaults to all. */
  readonly queues?: readonly string[];
  /** One for each incarnation of a process, for people. Defaults to a new UUID. */
  readonly workerId?: string;
  /** Handlers that run at once. Defaults to 10. */
  readonly concurrency?: number;
  /**
   * Tasks that are ordered for each of them. Above 1 some wait here for a slot while the others
   * run: fast for short tasks, unfair for long ones.
   *
   * Defaults to 1.
   */
  readonly batchSize?: number;
  /** How long a claim stands without a sign of life. Defaults to the server's. */
  readonly leaseSeconds?: number;
  /**
   * How long handlers go on without a stream. After the server's grace another worker may have been
   * given their tasks.
   *
   * Defaults to the server's grace.
   */
  readonly orphanSeconds?: number;
  /** How long a stop waits for handlers before it aborts them. Defaults to 30. */
  readonly drainSeconds?: number;
  /** Told of every answer to the end of a task. Defaults to nobody. */
  readonly onAck?: (ack: TaskAck) => void;
}

const KEYS = [
  ...CONNECTION_KEYS,
  "handlers",
  "queues",
  "workerId",
  "concurrency",
  "batchSize",
  "leaseSeconds",
  "orphanSeconds",
  "drainSeconds",
  "onAck",
];
const PORT = 9_091;
/** As many as a server lets one stream hold. */
const TASKS_MAX = 10_000;
const DAY = 86_400;

export interface ResolvedWorkerOptions {
  readonly line: LineOptions;
  readonly handlers: readonly TaskHandler[];
  readonly workerId: string;
  readonly host: string;
  readonly concurrency: number;
  readonly batchSize: number;
  /** 0: the server's. */
  readonly leaseSeconds: number;
  /** Undefined: the server's grace. */
  readonly orphanMs: number | undefined;
  readonly drainMs: number;
  readonly onAck: ((ack: TaskAck) => void) | undefined;
}

/** Applies defaults and refuses nonsense at the start, where a person is watching. */
export function resolveWorkerOptions(
  options: RemoteWorkerOptions,
  ambience: Ambience = {},
): ResolvedWorkerOptions {
  refuseUnknown("worker", options, KEYS);
  const count = { min: 1, max: TASKS_MAX, integer: true };
  const concurrency = requireNumber("concurrency", options.concurrency ?? 10, count);
  const batchSize = requireNumber("batchSize", options.batchSize ?? 1, count);
  if (concurrency * batchSize > TASKS_MAX) {
    throw new ConfigError(
      `concurrency × batchSize is ${concurrency * batchSize}, over the ${TASKS_MAX} tasks that a ` +
        "worker may hold; lower one of them",
    );
  }
  const { leaseSeconds, orphanSeconds, workerId = uuidv7(), onAck } = options;
  if (leaseSeconds !== undefined) requireNumber("leaseSeconds", leaseSeconds, { min: 1, max: DAY });
  if (orphanSeconds !== undefined) {
    requireNumber("orphanSeconds", orphanSeconds, { min: 0, max: DAY });
  }
  if (typeof workerId !== "string" || workerId.trim() === "" || workerId.length > 200) {
    throw new ConfigError("workerId must be a text of 1 to 200 characters");
  }
  if (onAck !== undefined && typeof onAck !== "function") {
    throw new ConfigError("onAck must be a function");
  }
  return {
    line: resolveConnection(options, WorkerStreamService.stream.path, PORT, ambience),
    handlers: resolveHandlers(options.handlers, options.queues),
    workerId,
    host: hostname(),
    concurrency,
    batchSize,
    leaseSeconds: leaseSeconds ?? 0,
    orphanMs: orphanSeconds === undefined ? undefined : orphanSeconds * 1000,
    drainMs: requireNumber("drainSeconds", options.drainSeconds ?? 30, { min: 0, max: DAY }) * 1000,
    onAck,
  };
}

function resolveHandlers(given: unknown, queues: unknown): TaskHandler[] {
  if (!Array.isArray(given) || given.length === 0) {
    throw new ConfigError("a worker needs handlers: give those of queue.handle(…)");
  }
  const handlers = new Map<string, TaskHandler>();
  for (const handler of given as Partial<TaskHandler>[]) {
    const name: unknown = handler?.queue?.name;
    if (typeof name !== "string" || typeof handler.run !== "function") {
      throw new ConfigError("handlers must be what queue.handle(…) gives");
    }
    if (handlers.has(name)) throw new ConfigError(`queue "${name}" has two handlers`);
    handlers.set(name, handler as TaskHandler);
  }
  if (queues === undefined) return [...handlers.values()];
  if (!Array.isArray(queues) || queues.length === 0) {
    throw new ConfigError("queues must be a list of names that is not empty");
  }
  return [...new Set<unknown>(queues)].map((name) => {
    const handler = typeof name === "string" ? handlers.get(name) : undefined;
    if (handler !== undefined) return handler;
    throw new ConfigError(`there is no handler of queue ${JSON.stringify(name)}`);
  });
}
