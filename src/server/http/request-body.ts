import { InvalidInputError } from "../../base/errors.ts";
import { notJson, tooLarge } from "./problem.ts";

const JSON_TYPE = /^application\/(?:[\w.+-]+\+)?json(?:\s*;|$)/i;
/** Of a body that does not say how long it is. */
const FIRST_BYTES = 16 * 1024;

export interface BodyLimits {
  readonly bytesMax: number;
  /** Called before the body may become so long; may throw. */
  readonly take: (bytes: number) => void;
}

/**
 * The body as text; undefined when there is none. Neither its declared nor its real length may be
 * above the limit, and no more than was taken for it is ever held.
 */
export async function readBody(request: Request, limits: BodyLimits): Promise<string | undefined> {
  const { bytesMax, take } = limits;
  const declared = request.headers.get("content-length");
  if (declared !== null && Number(declared) > bytesMax) throw tooLarge(bytesMax);
  if (request.body === null || declared === "0") return undefined;
  const room = Math.min(Math.max(1, Number(declared) || FIRST_BYTES), bytesMax);
  take(room); // Before anything is read: what is refused here goes no further.
  const reader = request.body.getReader();
  let bytes: Buffer;
  try {
    bytes = await collect(reader, room, limits);
  } catch (error) {
    await reader.cancel().catch(() => {});
    throw error;
  }
  if (bytes.length === 0) return undefined;
  if (!JSON_TYPE.test(request.headers.get("content-type") ?? "")) throw notJson();
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    throw new InvalidInputError("the body is not UTF-8");
  }
}

/** In one piece, which doubles: a body of a million parts would weigh many times its bytes. */
async function collect(
  reader: ReadableStreamDefaultReader<Uint8Array>,
  first: number,
  { bytesMax, take }: BodyLimits,
): Promise<Buffer> {
  let room = first;
  let bytes = Buffer.allocUnsafe(room);
  let length = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return bytes.subarray(0, length);
    const needed = length + value.byteLength;
    if (needed > bytesMax) throw tooLarge(bytesMax);
    if (needed > room) {
      room = Math.min(Math.max(2 * room, needed), bytesMax);
      take(room);
      const larger = Buffer.allocUnsafe(room);
      bytes.copy(larger, 0, 0, length);
      bytes = larger;
    }
    bytes.set(value, length);
    length = needed;
  }
}
