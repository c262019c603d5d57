import type { HttpSettings } from "../../tasks/http-call.ts";
import type { HttpResult } from "../../tasks/http-queue.ts";
import type { EgressResponse } from "../egress/guard.ts";

const HEADER_CHARS_MAX = 1_024;

/** What is kept of an answer, within what its queue allows. */
export function toResult(response: EgressResponse, settings: HttpSettings): HttpResult {
  const { status, isTruncated } = response;
  const headers = settings.resultHeaders.flatMap((name) => {
    const value = response.headers.get(name);
    return value === undefined ? [] : [[name, value.slice(0, HEADER_CHARS_MAX)] as const];
  });
  const kept = response.body.subarray(0, settings.resultBytesMax);
  const isCut = isTruncated || kept.length < response.body.length;
  return {
    status,
    headers: Object.fromEntries(headers),
    ...bodyOf(kept, isCut),
    isTruncated: isCut,
  };
}

/** As text where it is text. A cut may go through a character, of which nothing is kept then. */
function bodyOf(bytes: Buffer, isCut: boolean): { body?: string; bodyBase64?: string } {
  if (bytes.length === 0) return {};
  const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  try {
    const body = decoder.decode(bytes, { stream: isCut });
    // No text of ours can hold it, and where there is one it is no text.
    if (!body.includes("\u0000")) return { body };
  } catch {
    // It is kept as it is.
  }
  return { bodyBase64: bytes.toString("base64") };
}
