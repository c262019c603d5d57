import { isUtf8 } from "node:buffer";
import { JsonText } from "../../base/json-text.ts";

/** What stands in a text for bytes that are none. */
const REPLACED = "\ufffd";

/** JSON as it was sent, every byte of it; undefined when it is none. */
export function jsonOf(bytes: Buffer, from = 0, to = bytes.length): JsonText | undefined {
  const text = bytes.toString("utf8", from, to);
  // Nearly no text has this letter, and then there is no need to look at the bytes once more.
  if (text.includes(REPLACED) && !isUtf8(bytes.subarray(from, to))) return undefined;
  try {
    JSON.parse(text);
    return new JsonText(text);
  } catch {
    return undefined;
  }
}
