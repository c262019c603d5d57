import { InvalidInputError } from "../../base/errors.ts";
import { notJson, tooLarge } from "./problem.ts";

const JSON_TYPE = /^application\/(?:[\w.+-]+\+)?json(?:\s*;|$)/i;

/**
 * The body as text; undefined when there is none. Neither its declared nor its real length may be
 * above the limit, and no more than that is ever held.
 */
export async function readBody(request: Request, bytesMax: number): Promise<string | undefined> {
  const declared = request.headers.get("content-length");
  if (declared !== null && Number(declared) > bytesMax) throw tooLarge(bytesMax);
  if (request.body === null || declared === "0") return undefined;
  const parts: Uint8Array[] = [];
  let length = 0;
  const reader = request.body.getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    length += value.byteLength;
    if (length > bytesMax) {
      await reader.cancel().catch(() => {});
      throw tooLarge(bytesMax);
    }
    parts.push(value);
  }
  if (length === 0) return undefined;
  if (!JSON_TYPE.test(request.headers.get("content-type") ?? "")) throw notJson();
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(Buffer.concat(parts));
  } catch {
    throw new InvalidInputError("the body is not UTF-8");
  }
}
