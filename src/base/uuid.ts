import { createHash, randomBytes, randomUUID } from "node:crypto";

let lastMs = 0;
let sequence = 0;

/** A time-ordered UUID (version 7): strictly increasing within this process. */
export function uuidv7(nowMs: number = Date.now()): string {
  const random = randomBytes(10);
  if (nowMs > lastMs) {
    lastMs = nowMs;
    sequence = random.readUInt16BE(0) & 0x7ff;
  } else {
    sequence += 1;
    if (sequence > 0xfff) {
      lastMs += 1;
      sequence = random.readUInt16BE(0) & 0x7ff;
    }
  }
  const time = lastMs.toString(16).padStart(12, "0");
  const rest = random.subarray(2);
  rest[0] = ((rest[0] ?? 0) & 0x3f) | 0x80;
  const tail = rest.toString("hex");
  return [
    time.slice(0, 8),
    time.slice(8),
    `7${sequence.toString(16).padStart(3, "0")}`,
    tail.slice(0, 4),
    tail.slice(4),
  ].join("-");
}

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

export function isUuid(text: string): boolean {
  return UUID.test(text);
}

/** A UUID (version 8) that is the same for the same text. */
export function uuidOf(text: string): string {
  const bytes = createHash("sha256").update(text).digest().subarray(0, 16);
  bytes[6] = ((bytes[6] ?? 0) & 0x0f) | 0x80;
  bytes[8] = ((bytes[8] ?? 0) & 0x3f) | 0x80;
  const hex = bytes.toString("hex");
  const ends = [8, 12, 16, 20, 32];
  return ends.map((end, at) => hex.slice(ends[at - 1] ?? 0, end)).join("-");
}

/** A random UUID (version 4), for what must not tell when it was made or in which order. */
export function uuidv4(): string {
  return randomUUID();
}
