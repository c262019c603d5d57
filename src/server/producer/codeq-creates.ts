import { InvalidInputError } from "../../base/errors.ts";
import { JsonText } from "../../base/json-text.ts";
import type { TaskOptions } from "../../tasks/new-task.ts";
import { FieldReader } from "../../wire/field-reader.ts";
import { CreateTask, Hello } from "../../wire/generated/codeq/producer.ts";
import { isName } from "../auth/caller.ts";
import type { GivenTask, Move, SoundTask } from "./dialect.ts";
import { jsonOf } from "./payload.ts";

/** Fields with their kinds: of an event, of a batch, of a create. */
const HELLO = 0x0a;
const CREATE = 0x12;
const CREATE_BATCH = 0x1a;
const TASK = 0x0a;
const SEQ = 0x08;
const COMMAND = 0x12;
const PAYLOAD = 0x1a;
const PRIORITY = 0x20;
const MAX_ATTEMPTS = 0x30;

const PRIORITY_MAX = 9;
const NULL = new JsonText("null");

/**
 * What a client says. Read by hand, because creates come in thousands, and nearly all of them have
 * a command, a payload and two numbers. One that has more is left to generated code.
 */
export function readEvent(bytes: Buffer): Move {
  const reader = new FieldReader(bytes);
  let move: Move = { kind: "unknown" };
  for (let tag = reader.tag(); tag !== 0; tag = reader.tag()) {
    if (tag === HELLO) {
      const { token } = Hello.decode(bytes.subarray(reader.pass(), reader.at));
      move = { kind: "hello", hello: { token, producerId: "" } };
    } else if (tag === CREATE) move = new CreateReader(reader, false).read();
    else if (tag === CREATE_BATCH) move = new CreateReader(reader, true).read();
    else reader.skip(tag);
  }
  return move;
}

/** Reads the creates of one event. */
class CreateReader {
  readonly #reader: FieldReader;
  readonly #isBatch: boolean;
  readonly #seqs: (number | bigint)[] = [];
  readonly #tasks: GivenTask[] = [];
  /** The last plain one, as it was sent and as it was understood: the next is often like it. */
  #last = { command: "", priority: 0, maxAttempts: 0 };
  #lastTask: SoundTask | undefined;

  constructor(reader: FieldReader, isBatch: boolean) {
    this.#reader = reader;
    this.#isBatch = isBatch;
  }

  read(): Move {
    if (this.#isBatch) this.#readBatch();
    else this.#readTask();
    const [seqs, tasks, isBatch] = [this.#seqs, this.#tasks, this.#isBatch];
    return { kind: "create", create: { seq: 0n, seqs, tasks, isAtomic: false, isBatch } };
  }

  #readBatch(): void {
    const reader = this.#reader;
    const outer = reader.enter();
    for (let tag = reader.tag(); tag !== 0; tag = reader.tag()) {
      if (tag === TASK) this.#readTask();
      else reader.skip(tag);
    }
    reader.leave(outer);
  }

  #readTask(): void {
    const reader = this.#reader;
    const outer = reader.enter();
    const begin = reader.at;
    let seq: number | bigint = 0;
    const sent = { command: "", priority: 0, maxAttempts: 0 };
    let from = 0;
    let to = 0;
    let isPlain = true;
    for (let tag = reader.tag(); tag !== 0; tag = reader.tag()) {
      if (tag === SEQ) seq = reader.uint64();
      else if (tag === COMMAND) sent.command = reader.text(this.#last.command);
      else if (tag === PAYLOAD) {
        from = reader.pass();
        to = reader.at;
      } else if (tag === PRIORITY) sent.priority = reader.int32();
      else if (tag === MAX_ATTEMPTS) sent.maxAttempts = reader.int32();
      else {
        isPlain = false;
        reader.skip(tag);
      }
    }
    reader.leave(outer);
    this.#seqs.push(seq);
    const { bytes } = reader;
    if (!isPlain) this.#tasks.push(toTask(CreateTask.decode(bytes.subarray(begin, reader.at))));
    else this.#tasks.push(this.#toPlain(sent, payloadOf(bytes, from, to)));
  }

  #toPlain(sent: PlainTask, payload: SoundTask["payload"]): GivenTask {
    const [last, like] = [this.#last, this.#lastTask];
    const isLike =
      sent.command === last.command &&
      sent.priority === last.priority &&
      sent.maxAttempts === last.maxAttempts;
    if (isLike && like !== undefined) return { queue: like.queue, payload, options: like.options };
    const fault = faultOf(sent.command);
    if (fault !== undefined) return fault;
    this.#last = sent;
    this.#lastTask = { queue: sent.command, payload, options: optionsOf(sent) };
    return this.#lastTask;
  }
}

type PlainTask = Pick<CreateTask, "command" | "priority" | "maxAttempts">;

function optionsOf({ priority, maxAttempts }: PlainTask): TaskOptions {
  return {
    priority: Math.min(PRIORITY_MAX, Math.max(0, priority)),
    ...(maxAttempts > 0 ? { maxAttempts } : {}),
  };
}

const payloadOf = (bytes: Buffer, from = 0, to = bytes.length): SoundTask["payload"] =>
  from === to ? NULL : (jsonOf(bytes, from, to) ?? bytes.subarray(from, to));

function faultOf(command: string): InvalidInputError | undefined {
  if (command.trim() === "") return new InvalidInputError("command is required");
  return isName(command) ? undefined : new InvalidInputError("invalid command");
}

/** A create with whatever it may have. */
export function toTask(given: CreateTask): GivenTask {
  const { command, payload, delaySeconds, runAt } = given;
  const fault = faultOf(command);
  if (fault !== undefined) return fault;
  if (delaySeconds < 0) return new InvalidInputError("delaySeconds must be >= 0");
  if (given.webhook !== "" && !isHttpUrl(given.webhook)) {
    return new InvalidInputError("invalid webhook url");
  }
  const refusal = refusalOf(given);
  if (refusal !== undefined) return new InvalidInputError(refusal);
  const key = given.idempotencyKey;
  const options: TaskOptions = {
    ...optionsOf(given),
    ...(key === "" ? {} : { idempotencyKey: key }),
    ...(given.webhook === "" ? {} : { webhook: given.webhook }),
    ...(given.traceParent === "" ? {} : { traceParent: given.traceParent }),
    ...(given.traceState === "" ? {} : { traceState: given.traceState }),
    ...(runAt === undefined ? (delaySeconds > 0 ? { delaySeconds } : {}) : { runAt }),
  };
  return { queue: command, payload: payloadOf(payload), options };
}

/**
 * What later releases of CodeQ know and this server does not. Taken for an idempotency key, a
 * deduplication key would be answered with a task that has ended, and nobody would do the work.
 */
const NOT_TAKEN = {
  taskId: "task_id is not taken: the server numbers tasks; use a key",
  deduplicationKey:
    "deduplication_key is not taken: no create joins a task that waits; leave it out, or use " +
    "idempotency_key for a create that may be sent again",
} as const;

/** Empty counts as not given. */
export function refusalOf(given: {
  readonly taskId?: string | undefined;
  readonly deduplicationKey?: string | undefined;
}): string | undefined {
  if ((given.taskId ?? "") !== "") return NOT_TAKEN.taskId;
  return (given.deduplicationKey ?? "") === "" ? undefined : NOT_TAKEN.deduplicationKey;
}

function isHttpUrl(text: string): boolean {
  return URL.canParse(text) && /^https?:$/.test(new URL(text).protocol);
}
