/** Of the message in which the list is: its tag and its length come last, and first. */
const HEAD_BYTES = 16;
const ROOM_BYTES = 64 * 1024;
/** What a list of entries is in every message that has nothing else: field 1, a message. */
const ENTRY = 0x0a;
/** Shorter texts are written sooner letter by letter than by a call. */
const SHORT = 24;

/** The bytes that a number takes. */
export function varintSize(value: number | bigint): number {
  let size = 1;
  if (typeof value === "bigint") for (let rest = value; rest >= 0x80n; rest >>= 7n) size += 1;
  else for (let rest = value; rest >= 0x80; rest = Math.floor(rest / 0x80)) size += 1;
  return size;
}

/** The bytes that a field takes whose value has so many, with a tag of one byte. */
export const fieldSize = (bytes: number): number => 1 + varintSize(bytes) + bytes;

/**
 * Writes messages that hold one list of messages, as all batches of CodeQ do, one after another in
 * the same buffer. Generated code makes an object for every entry first, and writes what they have
 * in common again for each. Who begins an entry says how large it is, and then writes as much.
 */
export class BatchWriter {
  readonly #tag: number;
  #buffer = Buffer.allocUnsafeSlow(ROOM_BYTES);
  #at = HEAD_BYTES;

  /** @param tag of the field that the message with the list is in; less than 128 */
  constructor(tag: number) {
    this.#tag = tag;
  }

  /** Whatever was left of a message that failed is not part of the next one. */
  begin(): this {
    this.#at = HEAD_BYTES;
    return this;
  }

  entry(bytes: number): void {
    this.#reserve(fieldSize(bytes));
    this.#buffer[this.#at++] = ENTRY;
    this.#varint(bytes);
  }

  /** A tag of one byte, and a number that is not negative. */
  number(tag: number, value: number | bigint): void {
    this.#buffer[this.#at++] = tag;
    if (typeof value === "number") this.#varint(value);
    else this.#long(value);
  }

  /** @param bytes that the text takes */
  text(tag: number, text: string, bytes: number): void {
    this.#buffer[this.#at++] = tag;
    this.#varint(bytes);
    const isAscii = bytes === text.length;
    if (isAscii && bytes <= SHORT) {
      for (let nth = 0; nth < bytes; nth += 1) this.#buffer[this.#at++] = text.charCodeAt(nth);
    } else this.#at += this.#buffer.write(text, this.#at, bytes, isAscii ? "latin1" : "utf8");
  }

  bytes(tag: number, value: Uint8Array): void {
    this.#buffer[this.#at++] = tag;
    this.#varint(value.length);
    this.raw(value);
  }

  /** Fields that were written before. */
  raw(fields: Uint8Array): void {
    this.#buffer.set(fields, this.#at);
    this.#at += fields.length;
  }

  /** The message with all entries since it was begun. */
  finish(): Buffer {
    const end = this.#at;
    const list = end - HEAD_BYTES;
    const from = HEAD_BYTES - 1 - varintSize(list);
    this.#at = from;
    this.#buffer[this.#at++] = this.#tag;
    this.#varint(list);
    return Buffer.from(this.#buffer.subarray(from, end));
  }

  #varint(value: number): void {
    let rest = value;
    while (rest >= 0x80) {
      this.#buffer[this.#at++] = (rest % 0x80) | 0x80;
      rest = Math.floor(rest / 0x80);
    }
    this.#buffer[this.#at++] = rest;
  }

  #long(value: bigint): void {
    let rest = value;
    for (; rest >= 0x80n; rest >>= 7n) this.#buffer[this.#at++] = Number(rest & 0x7fn) | 0x80;
    this.#buffer[this.#at++] = Number(rest);
  }

  #reserve(bytes: number): void {
    const least = this.#at + bytes;
    if (least <= this.#buffer.length) return;
    const larger = Buffer.allocUnsafeSlow(Math.max(least, 2 * this.#buffer.length));
    this.#buffer.copy(larger, 0, 0, this.#at);
    this.#buffer = larger;
  }
}
