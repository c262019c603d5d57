import { isUtf8 } from "node:buffer";
import { z } from "zod";
import { BoundedMap } from "../base/bounded-map.ts";
import { messageOf } from "../base/errors.ts";
import { JsonText } from "../base/json-text.ts";
import { readTrace } from "../base/trace-context.ts";
import { NAME_BYTES_MAX, requireText } from "../tasks/encode.ts";
import type { HttpCall } from "../tasks/http-call.ts";
import type { NewTask } from "../tasks/new-task.ts";
import type { Priority } from "../tasks/priority.ts";
import { requireName } from "../tasks/queue.ts";
import { memberText } from "./job-text.ts";
import type { KafkaHeader, KafkaMessage } from "./source.ts";

/** What a message says: a task, and where it is to go. Names with underscores mean the same. */
export interface KafkaJob {
  /** Defaults to the ingest's `queue`. */
  readonly queue?: string | undefined;
  /** JSON, or bytes from a decoder of your own. Defaults to null. */
  readonly payload?: unknown;
  /** Tasks of one key run one after another. Also `partition_key`. Defaults to none. */
  readonly key?: string | undefined;
  readonly kind?: string | undefined;
  /** Defaults to that of the topic. */
  readonly priority?: Priority | undefined;
  /** Also `tenant_id`. Defaults to the ingest's `tenant`. */
  readonly tenant?: string | undefined;
  readonly idempotencyKey?: string | undefined;
  readonly idempotencySeconds?: number | undefined;
  readonly runAt?: string | undefined;
  readonly delaySeconds?: number | undefined;
  readonly maxAttempts?: number | undefined;
  /** One less than `maxAttempts`, as Foreman counts. */
  readonly maxRetries?: number | undefined;
  readonly timeoutSeconds?: number | undefined;
  readonly webhook?: string | undefined;
  /** What an `http` queue is to call with the payload. */
  readonly targetUrl?: string | undefined;
  /** Goes along with such a call, as `X-Correlation-Id`. */
  readonly correlationId?: string | undefined;
  /** What Foreman calls a job. An idempotency key, where there is no other. */
  readonly id?: string | undefined;
  /** Of a job of Foreman: others than pending ones are refused. */
  readonly state?: string | undefined;
}

const text = z.string().min(1);
const JOB = z.strictObject({
  queue: text.optional(),
  payload: z.unknown().optional(),
  key: text.optional(),
  kind: text.optional(),
  priority: z.union([z.int().min(0).max(9), z.enum(["high", "normal", "low"])]).optional(),
  tenant: text.optional(),
  idempotencyKey: text.optional(),
  idempotencySeconds: z.int().min(1).optional(),
  runAt: text.optional(),
  delaySeconds: z.number().min(0).optional(),
  maxAttempts: z.int().min(1).optional(),
  maxRetries: z.int().min(0).optional(),
  timeoutSeconds: z.number().min(0.001).optional(),
  webhook: text.optional(),
  targetUrl: text.optional(),
  correlationId: text.optional(),
  id: text.optional(),
  state: z.literal("pending").optional(),
});

/** Other names of members. */
const ALIASES: ReadonlyMap<string, string> = new Map([
  ["partition_key", "key"],
  ["partitionKey", "key"],
  ["tenant_id", "tenant"],
  ["tenantId", "tenant"],
  ["idempotency_key", "idempotencyKey"],
  ["idempotency_seconds", "idempotencySeconds"],
  ["run_at", "runAt"],
  ["delay_seconds", "delaySeconds"],
  ["max_attempts", "maxAttempts"],
  ["max_retries", "maxRetries"],
  ["timeout_seconds", "timeoutSeconds"],
  ["target_url", "targetUrl"],
  ["correlation_id", "correlationId"],
]);

/** A message with the place that it was found at. */
export interface PlacedMessage extends KafkaMessage {
  readonly topic: string;
  readonly partition: number;
}

export interface JobRules {
  readonly queue: string | undefined;
  readonly tenant: string | undefined;
  /** Whether the key of a message is the key of its task, where the job names none. */
  readonly keyOfMessage: boolean;
  /** Of messages that are not the JSON of a job. */
  readonly decode: ((message: PlacedMessage) => KafkaJob) | undefined;
}

/** A task, or why there is none. */
export type ReadJob =
  | { readonly queue: string; readonly tenant: string | undefined; readonly task: NewTask }
  | { readonly refusal: string };

/** Where a message was found, and the priority that its tasks have. */
export interface Place {
  readonly topic: string;
  readonly partition: number;
  readonly priority: Priority;
}

/** Says what task a message is, or why it is none. Never throws. */
export function readJob(message: KafkaMessage, place: Place, rules: JobRules): ReadJob {
  try {
    const { topic, partition } = place;
    const given: unknown =
      rules.decode === undefined ? parse(message) : rules.decode({ ...message, topic, partition });
    if (given === null || typeof given !== "object" || Array.isArray(given)) {
      return { refusal: "the message is not a JSON object" };
    }
    if (isPlain(given)) return toTask(message, place, rules, given);
    const job = JOB.safeParse(withoutAliases(given));
    if (!job.success) return { refusal: describe(job.error) };
    return toTask(message, place, rules, job.data);
  } catch (error) {
    return { refusal: messageOf(error) };
  }
}

/** Nothing but a queue and a payload, as most jobs are: a schema would find nothing else. */
function isPlain(job: object): job is CheckedJob {
  for (const name in job) {
    if (name === "payload") continue;
    if (name !== "queue" || typeof Reflect.get(job, name) !== "string") return false;
  }
  return true;
}

class Refused extends Error {}

function parse({ value }: KafkaMessage): KafkaJob {
  if (value === undefined) throw new Refused("the message has no value");
  if (!isUtf8(value)) throw new Refused("the message is not UTF-8");
  const json = value.toString();
  let job: unknown;
  try {
    job = JSON.parse(json);
  } catch (error) {
    throw new Refused(`the message is not JSON: ${messageOf(error)}`);
  }
  if (job === null || typeof job !== "object" || Array.isArray(job)) {
    throw new Refused("the message is not a JSON object");
  }
  const payload = memberText(json, "payload");
  if (payload !== undefined) Reflect.set(job, "payload", new JsonText(payload));
  return job;
}

function withoutAliases(given: object): object {
  if (!Object.keys(given).some((name) => ALIASES.has(name))) return given;
  const job: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(given)) {
    const known = ALIASES.get(name) ?? name;
    if (Object.hasOwn(job, known)) throw new Refused(`the job has ${known} twice, also as ${name}`);
    job[known] = value;
  }
  return job;
}

function describe(error: z.ZodError): string {
  const issues = error.issues.slice(0, 3).map(({ path, message }) => {
    const where = path.map(String).join(".");
    return where === "" ? message : `${where}: ${message}`;
  });
  return `the job does not fit: ${issues.join("; ")}`;
}

type CheckedJob = z.infer<typeof JOB>;

function toTask(message: KafkaMessage, place: Place, rules: JobRules, job: CheckedJob): ReadJob {
  const queue = job.queue ?? rules.queue;
  if (queue === undefined) return { refusal: "the job names no queue, and there is no default" };
  checkQueue(queue);
  if (rules.tenant !== undefined && job.tenant !== undefined && job.tenant !== rules.tenant) {
    return { refusal: `only jobs of tenant ${JSON.stringify(rules.tenant)} are taken in` };
  }
  if (job.maxAttempts !== undefined && job.maxRetries !== undefined) {
    return { refusal: "give maxAttempts or maxRetries, not both" };
  }
  const { maxRetries } = job;
  const { traceParent, traceState } = traceOf(message.headers);
  const tenant = job.tenant ?? rules.tenant;
  const given = {
    tenant,
    partitionKey: job.key ?? keyOf(message, rules),
    idempotencyKey: job.idempotencyKey ?? job.id,
    kind: job.kind,
    idempotencySeconds: job.idempotencySeconds,
    runAt: job.runAt,
    delaySeconds: job.delaySeconds,
    maxAttempts: maxRetries === undefined ? job.maxAttempts : maxRetries + 1,
    timeoutSeconds: job.timeoutSeconds,
    webhook: job.webhook,
    http: callOf(job),
    traceParent,
    traceState,
  };
  // Not by spreading: there are a hundred thousand in a second.
  const task: Record<string, unknown> = {
    payload: job.payload ?? null,
    priority: job.priority ?? place.priority,
  };
  for (const name in given) {
    const value: unknown = Reflect.get(given, name);
    if (value !== undefined) task[name] = value;
  }
  return { queue, tenant, task: task as NewTask & typeof task };
}

/** Names that are fine; there are few, and each comes thousands of times. */
const checkedQueues = new BoundedMap<string, true>(1_000);

function checkQueue(queue: string): void {
  if (checkedQueues.has(queue)) return;
  requireName("a queue", queue);
  requireText("queue", queue, NAME_BYTES_MAX);
  checkedQueues.set(queue, true);
}

/** What a queue of kind http is to call. */
function callOf({ targetUrl, correlationId }: CheckedJob): HttpCall | undefined {
  if (targetUrl === undefined) {
    if (correlationId === undefined) return undefined;
    throw new Refused("correlationId goes with a targetUrl; put it into the payload instead");
  }
  return correlationId === undefined
    ? { targetUrl }
    : { targetUrl, headers: { "x-correlation-id": correlationId } };
}

function keyOf({ key }: KafkaMessage, { keyOfMessage }: JobRules): string | undefined {
  if (!keyOfMessage || key === undefined || key.length === 0) return undefined;
  if (!isUtf8(key)) throw new Refused("the key of the message is not UTF-8");
  return key.toString();
}

function traceOf(headers: readonly KafkaHeader[]): ReturnType<typeof readTrace> {
  if (headers.length === 0) return {};
  const last = (name: string): string | undefined =>
    headers.findLast((header) => header.name === name)?.value.toString();
  return readTrace(last("traceparent"), last("tracestate"));
}
