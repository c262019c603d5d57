import { isUtf8 } from "node:buffer";
import { JsonText } from "../../base/json-text.ts";

/** JSON as it was sent, every byte of it; undefined when it is none. */
export function jsonOf(bytes: Buffer): JsonText | undefined {
  if (!isUtf8(bytes)) return undefined;
  const text = bytes.toString("utf8");
  try {
    JSON.parse(text);
    return new JsonText(text);
  } catch {
    return undefined;
  }
}
