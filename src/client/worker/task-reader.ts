import type { LeaseToken } from "../../tasks/task.ts";

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

/**
 * Tasks come in thousands, and most handlers ask for little of them: decoding every field of each
 * took half of a worker's time. Undefined: the message is of another kind. Throws
 * RangeError when it cannot be read.
 */
export function readTasks(message: Buffer): ReadTask[] | undefined {
  if (message[0] !== TASKS_OF_MESSAGE) return undefined;
  const cursor = new Cursor(message, 1, message.length);
  const tasks: ReadTask[] = [];
  const inner = cursor.part();
  if (cursor.isLeft) return undefined; // Something is there that this version does not know.
  while (inner.isLeft) {
    const tag = inner.varint();
    if (tag === TASK_OF_TASKS) tasks.push(readTask(inner.part()));
    else inner.skip(tag);
  }
  return tasks;
}

function readTask(cursor: Cursor): ReadTask {
  const bytes = cursor.rest();
  let token: LeaseToken = NO_TOKEN;
  let remainingMs = 0;
  let queue = "";
  let payload: Buffer = EMPTY;
  let contentType = "";
  let timeoutSeconds = 0;
  while (cursor.isLeft) {
    const tag = cursor.varint();
    if (tag === LEASE) {
      const lease = cursor.part();
      while (lease.isLeft) {
        const field = lease.varint();
        if (field === TOKEN_OF_LEASE) token = readToken(lease.part());
        else if (field === REMAINING) remainingMs = lease.varint();
        else lease.skip(field);
      }
    } else if (tag === QUEUE) queue = cursor.part().text();
    else if (tag === PAYLOAD) payload = cursor.part().rest();
    else if (tag === CONTENT_TYPE) contentType = cursor.part().text();
    else if (tag === TIMEOUT) timeoutSeconds = cursor.double();
    else cursor.skip(tag);
  }
  return { bytes, token, remainingMs, queue, payload, contentType, timeoutSeconds };
}

const NO_TOKEN: LeaseToken = { taskId: "", generation: 0, claimId: "" };

function readToken(cursor: Cursor): LeaseToken {
  let taskId = "";
  let generation = 0;
  let claimId = "";
  while (cursor.isLeft) {
    const tag = cursor.varint();
    if (tag === TASK_ID) taskId = cursor.part().text();
    else if (tag === GENERATION) generation = cursor.varint();
    else if (tag === CLAIM_ID) claimId = cursor.part().text();
    else cursor.skip(tag);
  }
  return { taskId, generation, claimId };
}

/** A place in a message, and where the part ends that it is in. */
class Cursor {
  readonly #bytes: Buffer;
  readonly #end: number;
  #at: number;

  constructor(bytes: Buffer, at: number, end: number) {
    if (end > bytes.length) throw new RangeError("the message ends too early");
    this.#bytes = bytes;
    this.#at = at;
    this.#end = end;
  }

  get isLeft(): boolean {
    return this.#at < this.#end;
  }

  varint(): number {
    let value = 0;
    let scale = 1;
    for (let nth = 0; nth < 10 && this.#at < this.#end; nth += 1) {
      const byte = this.#bytes[this.#at] ?? 0;
      this.#at += 1;
      value += (byte & 0x7f) * scale;
      if (byte < 0x80) return value;
      scale *= 128;
    }
    throw new RangeError("the message holds a number without an end");
  }

  double(): number {
    const at = this.#take(8);
    return this.#bytes.readDoubleLE(at);
  }

  part(): Cursor {
    const size = this.varint();
    const at = this.#take(size);
    return new Cursor(this.#bytes, at, at + size);
  }

  /** Not a copy. */
  rest(): Buffer {
    return this.#bytes.subarray(this.#at, this.#end);
  }

  text(): string {
    return this.#bytes.toString("utf8", this.#at, this.#end);
  }

  skip(tag: number): void {
    const kind = tag & 7;
    if (kind === 0) this.varint();
    else if (kind === 1) this.#take(8);
    else if (kind === 2) this.#take(this.varint());
    else if (kind === 5) this.#take(4);
    else throw new RangeError("the message holds a field of no known kind");
  }

  #take(size: number): number {
    const at = this.#at;
    if (at + size > this.#end) throw new RangeError("the message ends too early");
    this.#at = at + size;
    return at;
  }
}
