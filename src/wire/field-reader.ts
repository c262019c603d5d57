const VARINT = 0;
const FIXED_64 = 1;
const LENGTH = 2;
const FIXED_32 = 5;

/** Seven bits each: a number of so many bytes is exact. */
const EXACT_BYTES = 7;
const BYTES_MAX = 10;

/**
 * Reads the fields of a protobuf message one by one. For messages of many like entries: generated
 * code makes a buffer for each of their payloads, and each of their texts anew. Throws when a value
 * ends behind its message.
 */
export class FieldReader {
  readonly bytes: Buffer;
  /** Where it reads next. */
  at = 0;
  /** Where the message ends that is being read. */
  #end: number;

  constructor(bytes: Buffer) {
    this.bytes = bytes;
    this.#end = bytes.length;
  }

  /** Number and kind of the next field; 0 behind the last one. */
  tag(): number {
    if (this.at >= this.#end) return 0;
    const tag = this.uint32();
    if (tag < 8) throw new RangeError("a field has no number");
    return tag;
  }

  /** Reads the message that is the value of this field, from here on. Gives what `leave` takes. */
  enter(): number {
    const outer = this.#end;
    const from = this.pass();
    this.#end = this.at;
    this.at = from;
    return outer;
  }

  /** All of the message was read: goes on with the one around it. */
  leave(outer: number): void {
    this.#end = outer;
  }

  /** Passes over a value of bytes, and gives where it begins; it ends at `at`. */
  pass(): number {
    const size = this.uint32();
    const from = this.at;
    if (size > this.#end - from) throw new RangeError("a value ends behind its message");
    this.at = from + size;
    return from;
  }

  /** A value of bytes. Not a copy. */
  part(): Buffer {
    return this.bytes.subarray(this.pass(), this.at);
  }

  double(): number {
    const from = this.at;
    if (this.#end - from < 8) throw new RangeError("a value ends behind its message");
    this.at = from + 8;
    return this.bytes.readDoubleLE(from);
  }

  /** The last 32 bits of a number. */
  uint32(): number {
    let byte = this.#next();
    let value = byte & 0x7f;
    for (let nth = 1; byte >= 0x80; nth += 1) {
      if (nth === BYTES_MAX) throw new RangeError("a number does not end");
      byte = this.#next();
      if (nth < 5) value |= (byte & 0x7f) << (7 * nth);
    }
    return value >>> 0;
  }

  int32(): number {
    return this.uint32() | 0;
  }

  /** A bigint only when it is too large for a number. */
  uint64(): number | bigint {
    let value = 0;
    let factor = 1;
    for (let nth = 0; nth < EXACT_BYTES; nth += 1) {
      const byte = this.#next();
      value += (byte & 0x7f) * factor;
      if (byte < 0x80) return value;
      factor *= 0x80;
    }
    let whole = BigInt(value);
    for (let nth = EXACT_BYTES; nth < BYTES_MAX; nth += 1) {
      const byte = this.#next();
      whole |= BigInt(byte & 0x7f) << BigInt(7 * nth);
      if (byte < 0x80) return narrow(BigInt.asUintN(64, whole));
    }
    throw new RangeError("a number does not end");
  }

  /** @param like what it often is: then it is that same text, and no new one is made */
  text(like = ""): string {
    const from = this.pass();
    return this.#isAt(from, like) ? like : this.bytes.toString("utf8", from, this.at);
  }

  /** Whether the value that ends here is this text. False when it is not plain ASCII. */
  #isAt(from: number, text: string): boolean {
    if (this.at - from !== text.length) return false;
    for (let nth = 0; nth < text.length; nth += 1) {
      const unit = text.charCodeAt(nth);
      if (unit > 0x7f || unit !== this.bytes[from + nth]) return false;
    }
    return true;
  }

  skip(tag: number): void {
    const kind = tag & 7;
    if (kind === VARINT) this.uint32();
    else if (kind === LENGTH) this.pass();
    else if (kind === FIXED_64 || kind === FIXED_32) {
      this.at += kind === FIXED_64 ? 8 : 4;
      if (this.at > this.#end) throw new RangeError("a value ends behind its message");
    } else throw new RangeError("a field of this kind cannot be read");
  }

  #next(): number {
    const byte = this.bytes[this.at];
    if (byte === undefined || this.at >= this.#end) {
      throw new RangeError("a value ends behind its message");
    }
    this.at += 1;
    return byte;
  }
}

const narrow = (value: bigint): number | bigint =>
  value <= Number.MAX_SAFE_INTEGER ? Number(value) : value;
