import type { LeaseToken } from "../../tasks/task.ts";
import { FieldReader } from "../../wire/field-reader.ts";

/** What is needed of every task when it comes. The rest is read when a handler asks for it. */
export interface ReadTask {
  /** All of it. */
  readonly bytes: Buffer;
  readonly token: LeaseToken;
  /** Of the lease, when it was sent. */
  readonly remainingMs: number;
  readonly queue: string;
  readonly payload: Buffer;
  /** "" and "application/json" are JSON. */
  readonly contentType: string;
  /** 0: no limit. */
  readonly timeoutSeconds: number;
}

// Numbers of fields, as in proto/tidemill/v1/worker.proto, and wire types of protobuf.
const TASKS_OF_MESSAGE = (2 << 3) | 2;
const TASK_OF_TASKS = (1 << 3) | 2;
const LEASE = (1 << 3) | 2;
const QUEUE = (2 << 3) | 2;
const PAYLOAD = (4 << 3) | 2;
const CONTENT_TYPE = (5 << 3) | 2;
const TIMEOUT = (15 << 3) | 1;
const TOKEN_OF_LEASE = (1 << 3) | 2;
const REMAINING = 3 << 3;
const TASK_ID = (1 << 3) | 2;
const GENERATION = 2 << 3;
const CLAIM_ID = (3 << 3) | 2;

const EMPTY = Buffer.alloc(0);
const NO_TOKEN: LeaseToken = { taskId: "", generation: 0, claimId: "" };

/**
 * Tasks come in thousands, and most handlers ask for little of them: decoding every field of each
 * took half of a worker's time. Undefined: the message is of another kind. Throws
 * RangeError when it cannot be read.
 */
export function readTasks(message: Buffer): ReadTask[] | undefined {
  if (message[0] !== TASKS_OF_MESSAGE) return undefined;
  const reader = new FieldReader(message);
  reader.tag();
  const from = reader.pass();
  if (reader.at < message.length) return undefined; // There is what this version does not know.
  reader.at = from;
  const tasks: ReadTask[] = [];
  for (let tag = reader.tag(); tag !== 0; tag = reader.tag()) {
    if (tag === TASK_OF_TASKS) tasks.push(readTask(reader, tasks.at(-1)));
    else reader.skip(tag);
  }
  return tasks;
}

/** @param before often has the same texts */
function readTask(reader: FieldReader, before: ReadTask | undefined): ReadTask {
  const outer = reader.enter();
  const from = reader.at;
  let token = NO_TOKEN;
  let remainingMs = 0;
  let queue = "";
  let payload: Buffer = EMPTY;
  let contentType = "";
  let timeoutSeconds = 0;
  for (let tag = reader.tag(); tag !== 0; tag = reader.tag()) {
    if (tag === LEASE) {
      const around = reader.enter();
      for (let field = reader.tag(); field !== 0; field = reader.tag()) {
        if (field === TOKEN_OF_LEASE) token = readToken(reader, before?.token.claimId);
        else if (field === REMAINING) remainingMs = reader.uint32();
        else reader.skip(field);
      }
      reader.leave(around);
    } else if (tag === QUEUE) queue = reader.text(before?.queue);
    else if (tag === PAYLOAD) payload = reader.part();
    else if (tag === CONTENT_TYPE) contentType = reader.text(before?.contentType);
    else if (tag === TIMEOUT) timeoutSeconds = reader.double();
    else reader.skip(tag);
  }
  reader.leave(outer);
  const bytes = reader.bytes.subarray(from, reader.at);
  return { bytes, token, remainingMs, queue, payload, contentType, timeoutSeconds };
}

function readToken(reader: FieldReader, claimBefore: string | undefined): LeaseToken {
  const outer = reader.enter();
  let taskId = "";
  let generation = 0;
  let claimId = "";
  for (let tag = reader.tag(); tag !== 0; tag = reader.tag()) {
    if (tag === TASK_ID) taskId = reader.text();
    else if (tag === GENERATION) generation = reader.uint32();
    else if (tag === CLAIM_ID) claimId = reader.text(claimBefore);
    else reader.skip(tag);
  }
  reader.leave(outer);
  return { taskId, generation, claimId };
}
