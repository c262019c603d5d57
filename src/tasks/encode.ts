import { resolveBackoff } from "../base/backoff.ts";
import { hasReserved, InvalidInputError, messageOf, TidemillError } from "../base/errors.ts";
import { JsonText } from "../base/json-text.ts";
import { refuseUnknown, requireNumber } from "../base/options.ts";
import { bucketOf } from "../cluster/ring.ts";
import type { Queryable } from "../db/database.ts";
import type { KnownQueue, QueueDirectory } from "./directory.ts";
import { checkHttpCall, resolveCall } from "./http-call.ts";
import {
  hasDefaultAttempts,
  type NewTask,
  TASK_KEYS,
  type TaskOptions,
  toJson,
} from "./new-task.ts";
import { priorityNumber } from "./priority.ts";
import { describeIssues, type StandardResult, type StandardSchema } from "./schema.ts";
import type { TaskShape } from "./sql/enqueue.ts";
import { DEFAULT_TENANT } from "./task.ts";
import { checkWebhook } from "./webhook-name.ts";

export const KEY_BYTES_MAX = 1024;
export const NAME_BYTES_MAX = 200;
/** Before the base64 of bytes: of no bytes it is no text, and a list of one such would be empty. */
const BYTES_MARK = "=";
const TEXT_BYTES_MAX = 1024;
const YEARS_100_SECONDS = 100 * 366 * 86_400;

/** One task, checked and written down: everything but its shape's number. */
export interface EncodedTask {
  readonly payload: string;
  readonly key: string;
  readonly bucket: number | undefined;
  readonly shape: Omit<TaskShape, "shape" | "count">;
  /** Enqueues of its key wait for each other. */
  readonly isSerial: boolean;
  readonly idempotency: Idempotency | undefined;
}

interface Idempotency {
  readonly key: string;
  readonly seconds: number;
  /** What was given, without what settings of the queue add: those may change meanwhile. */
  readonly given: string;
}

/** Turns tasks of one call into rows. Equal options share one shape, found again by identity. */
export class TaskEncoder {
  readonly #directory: QueueDirectory;
  readonly #queue: KnownQueue;
  readonly #tx: Queryable | undefined;
  readonly #isMetered: boolean;
  readonly #shapes = new Map<string, EncodedTask["shape"]>();
  readonly #given = new Map<EncodedTask["shape"], string>();
  #last: { tenant: string; options: TaskOptions; task: EncodedTask } | undefined;

  /** @param isMetered whether the tasks count against a quota of their tenant */
  constructor(
    directory: QueueDirectory,
    queue: KnownQueue,
    tx: Queryable | undefined,
    isMetered = false,
  ) {
    this.#directory = directory;
    this.#queue = queue;
    this.#tx = tx;
    this.#isMetered = isMetered;
  }

  /** Kinds of options that it remembers; whoever keeps it for long begins anew at some point. */
  get shapeCount(): number {
    return this.#shapes.size;
  }

  /** Most tasks need nothing that must be waited for, and thousands come at once. */
  encode(task: NewTask): EncodedTask | Promise<EncodedTask> {
    refuseUnknown("task", task, TASK_KEYS);
    const schema = this.#queue.definition?.schema;
    if (schema === undefined) return this.#withShape(task);
    if (task.payload instanceof Uint8Array) {
      throw new InvalidInputError(
        `queue "${this.#queue.name}" has a schema, which bytes cannot fit; enqueue JSON`,
      );
    }
    const given = task.payload instanceof JsonText ? task.payload.value : task.payload;
    const validating = this.#validate(schema, given);
    if (!("then" in validating)) {
      this.#refuseInvalid(validating);
      return this.#withShape(task);
    }
    return validating.then((result) => {
      this.#refuseInvalid(result);
      return this.#withShape(task);
    });
  }

  /**
   * As `encode`, for who has many tasks with the same options, by identity: those that differ in
   * nothing but their JSON have the shape of the last one.
   */
  encodeAs(
    tenant: string,
    options: TaskOptions,
    payload: JsonText | Uint8Array,
  ): EncodedTask | Promise<EncodedTask> {
    const last = this.#last;
    if (last?.options === options && last.tenant === tenant && payload instanceof JsonText) {
      this.#checkText(payload.text);
      return { ...last.task, payload: payload.text };
    }
    const encoded = this.encode({ ...options, payload, tenant });
    if (!(encoded instanceof Promise) && this.#mayRepeat(encoded)) {
      this.#last = { tenant, options, task: encoded };
    }
    return encoded;
  }

  /** Whether tasks with the same options are the same but for their payloads. */
  #mayRepeat({ key, idempotency, shape }: EncodedTask): boolean {
    const isOfItsOwn = key !== "" || idempotency !== undefined || shape.is_binary === true;
    return !isOfItsOwn && this.#queue.definition?.schema === undefined;
  }

  /** A schema that stumbles over a payload refuses it: nobody may take that for an outage. */
  #validate(
    schema: StandardSchema,
    given: unknown,
  ): StandardResult<unknown> | Promise<StandardResult<unknown>> {
    const refuse = (error: unknown): never => {
      if (error instanceof TidemillError) throw error;
      const why = `the schema of queue "${this.#queue.name}" failed: ${messageOf(error)}`;
      throw new InvalidInputError(why, { cause: error });
    };
    try {
      const validating = schema["~standard"].validate(given);
      return "then" in validating ? Promise.resolve(validating).catch(refuse) : validating;
    } catch (error) {
      return refuse(error);
    }
  }

  // What is stored is the input: the schema runs again at the claim, and may change it.
  #refuseInvalid(result: StandardResult<unknown>): void {
    if (result.issues === undefined) return;
    throw new InvalidInputError(
      `the payload does not fit the schema of queue "${this.#queue.name}": ` +
        describeIssues(result.issues),
    );
  }

  #withShape(task: NewTask): EncodedTask | Promise<EncodedTask> {
    const key = this.#checkKey(task.partitionKey);
    const isBytes = task.payload instanceof Uint8Array;
    const payload = isBytes
      ? BYTES_MARK + Buffer.from(task.payload).toString("base64")
      : toJson(task.payload);
    if (isBytes) this.#checkBytes(task.payload.byteLength);
    else this.#checkText(payload);
    const bucket = key === "" ? undefined : bucketOf(key);
    const isSerial = key !== "" && this.#queue.settings.serialize;
    const shape = this.#shape(task, isBytes, key !== "");
    const encoded = (found: EncodedTask["shape"]): EncodedTask => {
      const idempotency = this.#idempotency(task, found);
      return { payload, key, bucket, isSerial, idempotency, shape: found };
    };
    return shape instanceof Promise ? shape.then(encoded) : encoded(shape);
  }

  #checkText(payload: string): void {
    // No character takes more than three bytes for each of its units.
    if (payload.length * 3 <= this.#queue.settings.payloadBytesMax) return;
    this.#checkBytes(Buffer.byteLength(payload));
  }

  #checkBytes(bytes: number): void {
    const max = this.#queue.settings.payloadBytesMax;
    if (bytes <= max) return;
    throw new InvalidInputError(
      `the payload has ${bytes} bytes, over the ${max} that queue "${this.#queue.name}" takes; ` +
        "store it elsewhere and enqueue a reference, or raise payloadBytesMax",
    );
  }

  #checkKey(key: string | undefined): string {
    if (key === undefined) return "";
    requireText("partitionKey", key, KEY_BYTES_MAX);
    return key;
  }

  #shape(
    task: NewTask,
    isBytes: boolean,
    isKeyed: boolean,
  ): EncodedTask["shape"] | Promise<EncodedTask["shape"]> {
    const id = shapeId(task, isBytes, isKeyed);
    return this.#shapes.get(id) ?? this.#makeShape(task, isBytes, isKeyed, id);
  }

  async #makeShape(
    task: NewTask,
    isBytes: boolean,
    isKeyed: boolean,
    id: string,
  ): Promise<EncodedTask["shape"]> {
    const { settings } = this.#queue;
    this.#checkHttp(task);
    const tenant = task.tenant ?? DEFAULT_TENANT;
    requireText("tenant", tenant, NAME_BYTES_MAX);
    if (task.kind !== undefined) requireText("kind", task.kind, NAME_BYTES_MAX);
    const priority =
      task.priority === undefined ? settings.priority : priorityNumber(task.priority);
    const maxAttempts = checkNumber("maxAttempts", task.maxAttempts ?? settings.maxAttempts, 1);
    const shape = {
      lane: isKeyed
        ? await this.#directory.keyLane(this.#queue, tenant, this.#tx)
        : await this.#directory.lane(this.#queue, tenant, priority, this.#tx),
      queue: this.#queue.name,
      tenant,
      priority,
      max_attempts: maxAttempts,
      ...(task.kind === undefined ? {} : { kind: task.kind }),
      ...timing(task),
      ...(isBytes
        ? { is_binary: true, content_type: task.contentType ?? "application/octet-stream" }
        : {}),
      ...rareOptions(task, this.#isMetered),
    };
    this.#shapes.set(id, shape);
    return shape;
  }

  /** A call without a target, or for handlers, would only be found out when it runs. */
  #checkHttp({ http }: NewTask): void {
    const { name, settings } = this.#queue;
    if (settings.http !== undefined) {
      resolveCall(settings.http, http === undefined ? undefined : checkHttpCall(http));
    } else if (http !== undefined) {
      throw new InvalidInputError(
        `queue "${name}" is not of kind http, so its tasks cannot have http: define it with ` +
          "httpQueue, or leave http out",
      );
    }
  }

  #idempotency(task: NewTask, shape: EncodedTask["shape"]): Idempotency | undefined {
    if (task.idempotencyKey === undefined) return undefined;
    requireText("idempotencyKey", task.idempotencyKey, KEY_BYTES_MAX);
    const seconds = task.idempotencySeconds ?? this.#queue.settings.idempotencySeconds;
    checkNumber("idempotencySeconds", seconds, 1);
    return { key: task.idempotencyKey, seconds, given: this.#givenOf(task, shape) };
  }

  #givenOf(task: NewTask, shape: EncodedTask["shape"]): string {
    const known = this.#given.get(shape);
    if (known !== undefined) return known;
    const { lane: _lane, priority, max_attempts, options: _options, ...rest } = shape;
    // Another trace or cause, or a quota that came meanwhile, makes it no other task.
    const { traceParent: _parent, traceState: _state, causedBy: _cause, ...untraced } = task;
    const given = JSON.stringify({
      ...rest,
      ...rareOptions(untraced),
      ...(task.priority === undefined ? {} : { priority }),
      ...(task.maxAttempts === undefined || hasDefaultAttempts(task) ? {} : { max_attempts }),
    });
    this.#given.set(shape, given);
    return given;
  }
}

/** Equal for tasks that differ in payload and key only. */
function shapeId(task: NewTask, isBytes: boolean, isKeyed: boolean): string {
  let isPlain = true;
  for (const name in task) {
    if (name !== "payload" && name !== "partitionKey" && name !== "idempotencyKey") isPlain = false;
  }
  const sort = isBytes ? (isKeyed ? "keyed bytes" : "bytes") : isKeyed ? "keyed" : "plain";
  if (isPlain) return sort;
  const { payload: _payload, partitionKey: _key, idempotencyKey: _once, ...options } = task;
  // What was given is remembered by shape.
  return (hasDefaultAttempts(task) ? `default ${sort}` : sort) + JSON.stringify(options);
}

function timing({ runAt, delaySeconds }: NewTask): { run_at?: string; delay?: number } {
  if (runAt !== undefined && delaySeconds !== undefined) {
    throw new InvalidInputError("give runAt or delaySeconds, not both");
  }
  if (delaySeconds !== undefined) {
    const isDelay = Number.isFinite(delaySeconds) && delaySeconds >= 0;
    if (isDelay && delaySeconds <= YEARS_100_SECONDS) return { delay: delaySeconds };
    throw new InvalidInputError(
      `delaySeconds must be a number from 0 to ${YEARS_100_SECONDS}, not ${delaySeconds}`,
    );
  }
  if (runAt === undefined) return {};
  const date = new Date(runAt);
  const year = date.getUTCFullYear();
  if (Number.isNaN(date.getTime()) || year < 1 || year > 9999) {
    throw new InvalidInputError(
      `runAt must be a Date or an ISO 8601 text such as 2026-01-31T09:00:00Z, not ` +
        JSON.stringify(runAt),
    );
  }
  return { run_at: date.toISOString() };
}

/** What few tasks have goes into one column. */
function rareOptions(task: NewTask, isMetered = false): { options?: object } {
  for (const name of ["traceParent", "traceState", "contentType", "webhook"] as const) {
    if (task[name] !== undefined) requireText(name, task[name], TEXT_BYTES_MAX);
  }
  if (task.causedBy !== undefined && !/^[1-9]\d{0,18}$/.test(task.causedBy)) {
    throw new InvalidInputError('causedBy is the position of an event as a text, such as "4711"');
  }
  const options = {
    ...(task.backoff === undefined ? {} : { backoff: resolveBackoff(task.backoff) }),
    ...(task.timeoutSeconds === undefined
      ? {}
      : { timeoutSeconds: requireNumber("timeoutSeconds", task.timeoutSeconds, { min: 0.001 }) }),
    ...(task.webhook === undefined ? {} : { webhook: checkWebhook(task.webhook) }),
    ...(task.http === undefined ? {} : { http: checkHttpCall(task.http) }),
    ...(task.causedBy === undefined ? {} : { causedBy: task.causedBy }),
    ...(task.traceParent === undefined ? {} : { traceParent: task.traceParent }),
    ...(task.traceState === undefined ? {} : { traceState: task.traceState }),
    ...(isMetered ? { metered: true } : {}),
  };
  return Object.keys(options).length === 0 ? {} : { options };
}

function checkNumber(name: string, value: number, min: number): number {
  if (Number.isInteger(value) && value >= min && value <= 2 ** 31 - 1) return value;
  throw new InvalidInputError(`${name} must be a whole number of at least ${min}, not ${value}`);
}

/** As nearly all keys are, which come in thousands: nothing in it needs a closer look. */
function isPlainAscii(text: string): boolean {
  for (let at = 0; at < text.length; at += 1) {
    const unit = text.charCodeAt(at);
    if (unit < 0x20 || unit > 0x7e) return false;
  }
  return true;
}

export function requireText(name: string, text: unknown, bytesMax: number): void {
  if (typeof text !== "string" || text === "") {
    throw new InvalidInputError(`${name} must be a text that is not empty`);
  }
  if (text.length * 3 > bytesMax && Buffer.byteLength(text) > bytesMax) {
    throw new InvalidInputError(`${name} must have at most ${bytesMax} bytes`);
  }
  if (isPlainAscii(text)) return;
  // UTF-8 has no half characters: the driver would replace them, and two keys would be one.
  if (hasReserved(text) || /\p{Surrogate}/u.test(text)) {
    throw new InvalidInputError(
      `${name} must not hold half a character, a zero byte or the separators U+001D to U+001F`,
    );
  }
}
