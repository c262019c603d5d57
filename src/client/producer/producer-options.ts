import { ConfigError } from "../../base/errors.ts";
import { refuseUnknown, requireNumber } from "../../base/options.ts";
import type { NewTask, TaskOptions } from "../../tasks/new-task.ts";
import { ProducerStreamService } from "../../wire/generated/tidemill/v1/producer.ts";
import {
  type Ambience,
  CONNECTION_KEYS,
  type ConnectionOptions,
  resolveConnection,
} from "../connection-options.ts";
import type { LineOptions } from "../line.ts";

export interface ProducerOptions extends ConnectionOptions {
  /** Tasks in one message at most. Defaults to 256. */
  readonly batchTasks?: number;
  /** Tasks that wait for their answer; whoever enqueues more waits. Defaults to 8,192. */
  readonly windowTasks?: number;
  /** What those weigh together. Defaults to 16 MiB. */
  readonly windowBytes?: number;
  /** How long an enqueue may take, with the wait for room and reconnects. Defaults to 30. */
  readonly withinSeconds?: number;
  /**
   * Gives every task an idempotency key, so that one whose answer was lost is sent again and stored
   * once. Without, such a task fails with CommitUnknownError unless it has a key of its own.
   *
   * Defaults to true.
   */
  readonly automaticKeys?: boolean;
}

export interface RemoteEnqueueOptions {
  /** How long the call may take. Defaults to the producer's. */
  readonly withinSeconds?: number;
}

/** Of tasks that are enqueued remotely: the tenant is that of the token. */
export type RemoteTaskOptions = Omit<TaskOptions, "tenant">;
export type RemoteNewTask<Payload = unknown> = Omit<NewTask<Payload>, "tenant">;

const KEYS = [
  ...CONNECTION_KEYS,
  "batchTasks",
  "windowTasks",
  "windowBytes",
  "withinSeconds",
  "automaticKeys",
];
const PORT = 9_092;
/** With defaults. */
export interface ResolvedProducerOptions {
  readonly line: LineOptions;
  readonly batchTasks: number;
  readonly windowTasks: number;
  readonly windowBytes: number;
  readonly withinMs: number;
  readonly automaticKeys: boolean;
}

/** Applies defaults and refuses nonsense at the start, where a person is watching. */
export function resolveProducerOptions(
  options: ProducerOptions,
  ambience: Ambience,
): ResolvedProducerOptions {
  refuseUnknown("producer", options, KEYS);
  const whole = (name: "batchTasks" | "windowTasks" | "windowBytes", range: number[]): number =>
    requireNumber(name, options[name] ?? range[0], {
      min: range[1] ?? 1,
      max: range[2] ?? 1,
      integer: true,
    });
  const { automaticKeys = true } = options;
  if (typeof automaticKeys !== "boolean") throw new ConfigError("automaticKeys is true or false");
  return {
    line: resolveConnection(options, ProducerStreamService.stream.path, PORT, ambience),
    batchTasks: whole("batchTasks", [256, 1, 1_000]),
    windowTasks: whole("windowTasks", [8_192, 1, 1_000_000]),
    windowBytes: whole("windowBytes", [16 * 1024 * 1024, 1024, 1024 * 1024 * 1024]),
    withinMs: requireWithin(options.withinSeconds ?? 30),
    automaticKeys,
  };
}

export const requireWithin = (seconds: number): number =>
  requireNumber("withinSeconds", seconds, { min: 0.001, max: 86_400 }) * 1000;
