import { InvalidInputError } from "../../base/errors.ts";
import { refuseUnknown } from "../../base/options.ts";
import { activeTrace } from "../../base/trace-context.ts";
import { type NewTask as GivenTask, TASK_KEYS, toJson } from "../../tasks/new-task.ts";
import { priorityNumber } from "../../tasks/priority.ts";
import type { QueueDefinition } from "../../tasks/queue.ts";
import { describeIssues, type StandardResult } from "../../tasks/schema.ts";
import type { Backoff, NewTask } from "../../wire/generated/tidemill/v1/producer.ts";

const BYTES_TYPE = "application/octet-stream";
const REFUSED = ["tenant", "http", "causedBy"];
const KNOWN = TASK_KEYS.filter((key) => !REFUSED.includes(key));

/** The task as it is sent, checked by the schema of its queue. Most schemas need no waiting. */
export function toWire(queue: QueueDefinition, task: GivenTask): NewTask | Promise<NewTask> {
  if (task.tenant !== undefined) {
    throw new InvalidInputError("the tenant of a task is that of the token: leave tenant out");
  }
  if (task.http !== undefined) {
    throw new InvalidInputError(
      "a stream carries no http of a task: create it by HTTP, or let its queue name the target",
    );
  }
  if (task.causedBy !== undefined) {
    throw new InvalidInputError("a stream carries no causedBy of a task: create it by HTTP");
  }
  refuseUnknown("task", task, KNOWN);
  const { schema } = queue;
  if (schema === undefined) return encode(queue, task);
  if (task.payload instanceof Uint8Array) {
    throw new InvalidInputError(
      `queue "${queue.name}" has a schema, which bytes cannot fit; enqueue JSON`,
    );
  }
  const validating = schema["~standard"].validate(task.payload);
  if (!("then" in validating)) {
    refuseInvalid(queue, validating);
    return encode(queue, task);
  }
  return Promise.resolve(validating).then((result) => {
    refuseInvalid(queue, result);
    return encode(queue, task);
  });
}

// What is sent is the input: the schema runs again where the task is run, and may change it.
function refuseInvalid({ name }: QueueDefinition, result: StandardResult<unknown>): void {
  if (result.issues === undefined) return;
  throw new InvalidInputError(
    `the payload does not fit the schema of queue "${name}": ${describeIssues(result.issues)}`,
  );
}

function encode({ name, settings }: QueueDefinition, task: GivenTask): NewTask {
  const isBytes = task.payload instanceof Uint8Array;
  const payload = isBytes ? Buffer.from(task.payload) : Buffer.from(toJson(task.payload));
  if (payload.length > settings.payloadBytesMax) {
    throw new InvalidInputError(
      `the payload has ${payload.length} bytes, over the ${settings.payloadBytesMax} of ` +
        `queue "${name}"; store it elsewhere and enqueue a reference`,
    );
  }
  // A task that names no trace belongs to that of its caller.
  const trace = task.traceParent === undefined ? activeTrace() : task;
  return {
    queue: name,
    payload,
    contentType: isBytes ? (task.contentType ?? BYTES_TYPE) : "",
    kind: task.kind ?? "",
    priority: task.priority === undefined ? undefined : priorityNumber(task.priority),
    partitionKey: task.partitionKey ?? "",
    runAt: toDate(task.runAt),
    delaySeconds: task.delaySeconds ?? 0,
    maxAttempts: task.maxAttempts === undefined ? 0 : whole("maxAttempts", task.maxAttempts),
    backoff: task.backoff === undefined ? undefined : toBackoff(task.backoff),
    timeoutSeconds: task.timeoutSeconds ?? 0,
    idempotencyKey: task.idempotencyKey ?? "",
    idempotencySeconds: task.idempotencySeconds ?? 0,
    webhook: task.webhook ?? "",
    traceParent: trace.traceParent ?? "",
    traceState: trace.traceState ?? task.traceState ?? "",
  };
}

/** What has 0 for "the queue's" on the wire. */
function whole(name: string, value: number): number {
  if (Number.isInteger(value) && value >= 1 && value <= 2 ** 31 - 1) return value;
  throw new InvalidInputError(`${name} must be a whole number of at least 1, not ${value}`);
}

function toDate(runAt: Date | string | undefined): Date | undefined {
  if (runAt === undefined) return undefined;
  const date = new Date(runAt);
  if (!Number.isNaN(date.getTime())) return date;
  throw new InvalidInputError(
    `runAt must be a Date or an ISO 8601 text such as 2026-01-31T09:00:00Z, not ` +
      JSON.stringify(runAt),
  );
}

function toBackoff({ kind, baseSeconds, maxSeconds }: NonNullable<GivenTask["backoff"]>): Backoff {
  return { kind: kind ?? "", baseSeconds, maxSeconds };
}

/** What a field costs beside its bytes, and a few of them. */
const OVERHEAD_BYTES = 96;

/** No less than what it takes in a message. */
export function weightOf(task: NewTask): number {
  const { payload, queue, kind, partitionKey, idempotencyKey, webhook } = task;
  const { traceParent, traceState, contentType } = task;
  const units =
    queue.length +
    kind.length +
    partitionKey.length +
    idempotencyKey.length +
    webhook.length +
    traceParent.length +
    traceState.length +
    contentType.length;
  return payload.length + 3 * units + OVERHEAD_BYTES;
}
