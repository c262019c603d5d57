import type { ClaimedTask, TaskPack } from "../../tasks/claimed-task.ts";
import type { Outcome } from "../../tasks/outcome.ts";
import { BatchWriter, fieldSize } from "../../wire/batch-writer.ts";
import { FieldReader } from "../../wire/field-reader.ts";
import { type ServerEvent, Task, WorkerEvent } from "../../wire/generated/codeq/worker.ts";
import { encoderOf } from "../grpc/encoder.ts";
import type { Assignment } from "./assignment.ts";
import { faultOf, toCommon, toOutcome } from "./codeq-messages.ts";

/*
 * The messages of CodeQ's worker stream that carry many tasks, read and written by hand. All others
 * are left to generated code, and so is what is common to the tasks of a message.
 */

/** Fields with their kinds: of events, of a batch, of a task, a result and an ack. */
const RESULT_BATCH = 0x3a;
const TASK_BATCH = 0x42;
const RESULT_ACK_BATCH = 0x4a;
const ENTRY = 0x0a;
const ID = 0x0a;
const PAYLOAD = 0x1a;
const STATUS = 0x12;
const RESULT_JSON = 0x1a;
const ERROR = 0x22;
const OK = 0x10;
const ERROR_MESSAGE = 0x1a;

/** What a client says of many tasks: of each its id and how it ended, or why that is not heard. */
export interface ResultList {
  readonly ids: readonly string[];
  readonly outcomes: readonly (Outcome | string)[];
}

type OtherEvent = Exclude<WorkerEvent["event"], { $case: "resultBatch" }>;
export type Said = OtherEvent | { readonly $case: "results"; readonly value: ResultList };

/** What a client is told. What is written by hand is so when it is sent. */
export type Told = ServerEvent | (() => Buffer);

/** What a client says. Of several events in one message the last counts. */
export function readEvent(bytes: Buffer): Said {
  const reader = new FieldReader(bytes);
  let said: Said;
  for (let from = 0, tag = reader.tag(); tag !== 0; from = reader.at, tag = reader.tag()) {
    if (tag === RESULT_BATCH) said = { $case: "results", value: readResults(reader) };
    else {
      reader.skip(tag);
      const { event } = WorkerEvent.decode(bytes.subarray(from, reader.at));
      if (event !== undefined) said = event as OtherEvent;
    }
  }
  return said;
}

function readResults(reader: FieldReader): ResultList {
  const ids: string[] = [];
  const outcomes: (Outcome | string)[] = [];
  const outer = reader.enter();
  for (let tag = reader.tag(); tag !== 0; tag = reader.tag()) {
    if (tag === ENTRY) readResult(reader, ids, outcomes);
    else reader.skip(tag);
  }
  reader.leave(outer);
  return { ids, outcomes };
}

function readResult(reader: FieldReader, ids: string[], outcomes: (Outcome | string)[]): void {
  const { bytes } = reader;
  const result = { status: "", bytes, from: 0, to: 0, error: "" };
  let id = "";
  const outer = reader.enter();
  for (let tag = reader.tag(); tag !== 0; tag = reader.tag()) {
    if (tag === ID) id = reader.text();
    else if (tag === STATUS) result.status = reader.text("COMPLETED");
    else if (tag === RESULT_JSON) {
      result.from = reader.pass();
      result.to = reader.at;
    } else if (tag === ERROR) result.error = reader.text();
    else reader.skip(tag);
  }
  reader.leave(outer);
  ids.push(id);
  outcomes.push(toOutcome(result));
}

const ackWriter = new BatchWriter(RESULT_ACK_BATCH);

/** The acks of results, in their order. */
export function writeAcks(ids: readonly string[], answers: readonly string[]): Buffer {
  ackWriter.begin();
  for (let place = 0; place < ids.length; place += 1) {
    const id = ids[place] ?? "";
    const answer = answers[place] ?? "";
    const isOk = answer === "accepted";
    const fault = isOk ? "" : faultOf(answer);
    const faultBytes = Buffer.byteLength(fault);
    const idBytes = Buffer.byteLength(id);
    const idSize = idBytes === 0 ? 0 : fieldSize(idBytes);
    ackWriter.entry(idSize + (isOk ? 2 : fieldSize(faultBytes)));
    if (idBytes > 0) ackWriter.text(ID, id, idBytes);
    if (isOk) ackWriter.number(OK, 1);
    else ackWriter.text(ERROR_MESSAGE, fault, faultBytes);
  }
  return ackWriter.finish();
}

const taskWriter = new BatchWriter(TASK_BATCH);
const encodeTask = encoderOf(Task);

/** Writes the tasks for one worker. */
export class TaskBatches {
  readonly #workerId: string;
  /** Of the last task: what it has in common with the others of its pack, as long as they last. */
  #common: Uint8Array = new Uint8Array();
  #pack: TaskPack | undefined;
  #until: Date | undefined;

  constructor(workerId: string) {
    this.#workerId = workerId;
  }

  write(assignments: readonly Assignment[]): Buffer {
    taskWriter.begin();
    for (const { task } of assignments) this.#write(task);
    return taskWriter.finish();
  }

  #write(task: ClaimedTask): void {
    const { id, payloadText } = task;
    const common = this.#commonOf(task);
    const payload = payloadText ?? task.payloadBytes;
    const bytes = typeof payload === "string" ? Buffer.byteLength(payload) : payload.length;
    const payloadSize = bytes === 0 ? 0 : fieldSize(bytes);
    taskWriter.entry(fieldSize(id.length) + payloadSize + common.length);
    taskWriter.text(ID, id, id.length); // Digits.
    if (typeof payload === "string") taskWriter.text(PAYLOAD, payload, bytes);
    else if (bytes > 0) taskWriter.bytes(PAYLOAD, payload);
    taskWriter.raw(common);
  }

  #commonOf(task: ClaimedTask): Uint8Array {
    const { pack, leaseUntil } = task;
    const isSame = pack !== undefined && pack === this.#pack && leaseUntil === this.#until;
    if (!isSame) {
      this.#common = encodeTask(toCommon(task, this.#workerId));
      this.#pack = pack;
      this.#until = leaseUntil;
    }
    return this.#common;
  }
}
