import { validateHeaderName, validateHeaderValue } from "node:http";
import { messageOf } from "../../base/errors.ts";
import { VERSION } from "../../base/version.ts";
import { EgressRefusedError } from "./errors.ts";
import type { ResolvedEgressOptions } from "./options.ts";

const METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] as const;

export interface EgressRequest {
  readonly url: string;
  /** Defaults to GET. */
  readonly method?: (typeof METHODS)[number];
  /** Defaults to none beyond those that every call has. */
  readonly headers?: Readonly<Record<string, string>>;
  /** Sent as it is. Defaults to none. */
  readonly body?: string | Uint8Array;
}

/** One request of a call, checked: the first, or where a redirect leads. */
export interface Hop {
  readonly url: string;
  readonly method: string;
  /** By names in lower case. */
  readonly headers: ReadonlyMap<string, string>;
  readonly body: Uint8Array | undefined;
}

/** With these a caller could speak to another host, or smuggle a second request. */
const OURS = new Set([
  "host",
  "connection",
  "content-length",
  "transfer-encoding",
  "expect",
  "keep-alive",
  "te",
  "trailer",
  "upgrade",
]);

/** Refuses what must not be sent, before anything is resolved. */
export function firstHop(
  { url, method = "GET", headers = {}, body }: EgressRequest,
  { requestBytesMax, headerBytesMax }: ResolvedEgressOptions,
): Hop {
  if (!METHODS.includes(method)) {
    throw refused(`the method of a call must be one of ${METHODS.join(", ")}`);
  }
  const bytes = typeof body === "string" ? Buffer.from(body) : body;
  if (bytes !== undefined && (method === "GET" || method === "HEAD")) {
    throw refused(`a ${method} cannot have a body: use POST`);
  }
  if (bytes !== undefined && bytes.byteLength > requestBytesMax) {
    throw refused(
      `the body has ${bytes.byteLength} bytes and requestBytesMax allows ${requestBytesMax}`,
    );
  }
  return { url, method, headers: checkedHeaders(headers, headerBytesMax), body: bytes };
}

function checkedHeaders(
  given: Readonly<Record<string, string>>,
  bytesMax: number,
): ReadonlyMap<string, string> {
  const headers = new Map([
    ["user-agent", `tidemill/${VERSION}`],
    ["accept", "*/*"],
    ["accept-encoding", "identity"],
  ]);
  for (const [givenName, value] of Object.entries(given)) {
    const name = givenName.toLowerCase();
    try {
      if (typeof value !== "string") throw new TypeError(`the value of ${name} must be a string`);
      validateHeaderName(name);
      validateHeaderValue(name, value);
    } catch (cause) {
      throw refused(`a header cannot be sent: ${messageOf(cause)}`, { cause });
    }
    if (OURS.has(name) || name.startsWith("proxy-")) {
      throw refused(`the header ${name} is not yours to set: leave it out`);
    }
    headers.set(name, value);
  }
  const bytes = [...headers].reduce((sum, [name, value]) => sum + name.length + value.length, 0);
  if (bytes > bytesMax) {
    throw refused(`the headers have ${bytes} bytes and headerBytesMax allows ${bytesMax}`);
  }
  return headers;
}

function refused(message: string, options?: ErrorOptions): EgressRefusedError {
  return new EgressRefusedError("request", message, options);
}
