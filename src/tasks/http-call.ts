import { ConfigError, InvalidInputError } from "../base/errors.ts";
import { refuseUnknown, requireNumber, withoutUndefined } from "../base/options.ts";
import { DEFAULT_ENDPOINT, isEndpointId } from "./webhook-name.ts";

const METHODS = ["POST", "PUT", "PATCH", "DELETE", "GET"] as const;

/** DELETE and GET send no body. */
export type HttpMethod = (typeof METHODS)[number];

/** What a task of an `http` queue calls, and how. What it leaves out is the queue's. */
export interface HttpCall {
  /** Begins with https:// or http://, and holds no password. */
  readonly targetUrl?: string;
  /** Defaults to "POST". */
  readonly method?: HttpMethod;
  /**
   * Sent beside our own, which cannot be replaced. Those of a queue go to the origin of its
   * `targetUrl` only; a queue without one must not have any that look like a secret.
   *
   * Defaults to none.
   */
  readonly headers?: Readonly<Record<string, string>>;
  /** The only answers that complete the task. Defaults to any 2xx. */
  readonly expectedStatus?: number | readonly number[];
  /** The endpoint of the tenant whose secret signs the call. Defaults to "default". */
  readonly endpoint?: string;
}

/** What all tasks of an `http` queue have in common, unless they say otherwise. */
export interface HttpQueueCalls extends HttpCall {
  /** Headers of the answer that are kept with the result. Defaults to content-type. */
  readonly resultHeaders?: readonly string[];
  /** What is kept of the body of an answer. Defaults to 16 KiB. */
  readonly resultBytesMax?: number;
}

/** As it is stored: with a task in its options, with a queue in its settings. */
export interface StoredCall {
  readonly targetUrl?: string;
  readonly method?: HttpMethod;
  /** By names in lower case. */
  readonly headers?: Readonly<Record<string, string>>;
  readonly expectedStatus?: readonly number[];
  readonly endpoint?: string;
}

export interface HttpSettings extends StoredCall {
  readonly resultHeaders: readonly string[];
  readonly resultBytesMax: number;
}

/** One call, with everything that was left out. */
export interface ResolvedCall {
  readonly targetUrl: string;
  readonly method: HttpMethod;
  readonly headers: Readonly<Record<string, string>>;
  /** Undefined: any 2xx. */
  readonly expectedStatus: readonly number[] | undefined;
  readonly endpoint: string;
}

const CALL_KEYS = ["targetUrl", "method", "headers", "expectedStatus", "endpoint"];
const QUEUE_KEYS = [...CALL_KEYS, "resultHeaders", "resultBytesMax"];
export const TARGET_LENGTH_MAX = 2_048;
const HEADERS_MAX = 32;
const HEADER_BYTES_MAX = 8 * 1024;
const STATUSES_MAX = 20;
const REDIRECTS = [301, 302, 303, 307, 308];
const RESULT_HEADERS_MAX = 20;
const RESULT_BYTES = 16 * 1024;
const RESULT_BYTES_MAX = 1024 * 1024;
const HEADER_NAME = /^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}$/;
const HEADER_VALUE = /^[\t\x20-\x7e]*$/;
/** With these a task could speak to another host, or smuggle a second request. */
const TRANSPORT = new Set([
  "host",
  "connection",
  "content-length",
  "transfer-encoding",
  "expect",
  "keep-alive",
  "te",
  "trailer",
  "upgrade",
  "http2-settings",
]);
/** Receivers rely on these being ours. */
const OURS = /^(idempotency-key|traceparent|tracestate|webhook-.*|tidemill-.*)$/;
/** By their names, in lower case: what whoever names the target must not be handed. */
const SECRET = /auth|cookie|token|secret|key|pass|credential|session|signature|jwt/;

/** Refuses a call that could never be made, and writes it as it is stored. */
export function checkHttpCall(given: unknown): StoredCall {
  requireObject(given);
  refuseUnknown("http", given, CALL_KEYS);
  return checkCall(given);
}

/** What a definition says of its calls. Refuses nonsense. */
export function resolveHttpSettings(queue: string, given: unknown): HttpSettings {
  try {
    requireObject(given);
    const calls: HttpQueueCalls = given;
    refuseUnknown("http", calls, QUEUE_KEYS);
    const { resultHeaders = ["content-type"], resultBytesMax = RESULT_BYTES } = calls;
    const shared = checkCall(calls);
    refuseSharedSecrets(shared);
    return Object.freeze({
      ...shared,
      resultHeaders: checkResultHeaders(resultHeaders),
      resultBytesMax: requireNumber("resultBytesMax", resultBytesMax, {
        min: 0,
        max: RESULT_BYTES_MAX,
        integer: true,
      }),
    });
  } catch (error) {
    if (!(error instanceof InvalidInputError || error instanceof ConfigError)) throw error;
    throw new ConfigError(`queue "${queue}": ${error.message}`);
  }
}

/** The task's own words before the queue's. Refuses a call without a target. */
export function resolveCall(settings: StoredCall, own: StoredCall | undefined): ResolvedCall {
  const { targetUrl, method, expectedStatus, endpoint } = { ...settings, ...own };
  if (targetUrl === undefined) {
    throw new InvalidInputError(
      "the queue names no target for its tasks: give http.targetUrl with the task",
    );
  }
  return {
    targetUrl,
    method: method ?? "POST",
    headers: { ...sharedHeaders(settings, targetUrl), ...own?.headers },
    expectedStatus,
    endpoint: endpoint ?? DEFAULT_ENDPOINT,
  };
}

/** Whoever may enqueue may name a target, and must not have the queue's password sent there. */
function sharedHeaders(settings: StoredCall, targetUrl: string): Record<string, string> {
  const { targetUrl: own, headers = {} } = settings;
  if (own !== undefined) {
    return new URL(own).origin === new URL(targetUrl).origin ? { ...headers } : {};
  }
  return Object.fromEntries(Object.entries(headers).filter(([name]) => !SECRET.test(name)));
}

function refuseSharedSecrets({ targetUrl, headers = {} }: StoredCall): void {
  const secret = Object.keys(headers).find((name) => SECRET.test(name));
  if (targetUrl !== undefined || secret === undefined) return;
  throw new InvalidInputError(
    `http.headers must not have ${secret} without http.targetUrl: it would be sent to whatever ` +
      "target a task names; name the queue's target, or give the header with each task",
  );
}

function requireObject(given: unknown): asserts given is object {
  if (typeof given === "object" && given !== null && !Array.isArray(given)) return;
  throw new InvalidInputError("http must be an object such as { targetUrl: 'https://…' }");
}

function checkCall({ targetUrl, method, headers, expectedStatus, endpoint }: HttpCall): StoredCall {
  if (targetUrl !== undefined) checkTargetUrl(targetUrl);
  if (method !== undefined && !METHODS.includes(method)) {
    throw new InvalidInputError(
      `http.method must be one of ${METHODS.join(", ")}, not ${JSON.stringify(method)}`,
    );
  }
  if (endpoint !== undefined && !isEndpointId(endpoint)) {
    throw new InvalidInputError("http.endpoint must be the id of a webhook endpoint");
  }
  return withoutUndefined({
    targetUrl,
    method,
    headers: headers === undefined ? undefined : checkHeaders(headers),
    expectedStatus: expectedStatus === undefined ? undefined : checkStatuses(expectedStatus),
    endpoint,
  });
}

/** Only its text. Whether it may be called is for the egress guard of whoever calls. */
function checkTargetUrl(text: unknown): void {
  if (typeof text !== "string" || text === "") {
    throw new InvalidInputError("http.targetUrl must be a text that is not empty");
  }
  if (text.length > TARGET_LENGTH_MAX) {
    throw new InvalidInputError(
      `http.targetUrl must have at most ${TARGET_LENGTH_MAX} characters, not ${text.length}`,
    );
  }
  // The URL standard would drop some of these silently.
  const isPlain = !/[\p{Cc}\p{Surrogate}\s\\]/u.test(text);
  const url = isPlain && URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined || !/^https?:$/.test(url.protocol)) {
    throw new InvalidInputError("http.targetUrl must be a whole URL of http or https");
  }
  if (url.username !== "" || url.password !== "") {
    throw new InvalidInputError("http.targetUrl must not hold a password: send a header");
  }
}

function checkHeaders(headers: unknown): Readonly<Record<string, string>> {
  if (typeof headers !== "object" || headers === null || Array.isArray(headers)) {
    throw new InvalidInputError("http.headers must be an object of names and texts");
  }
  const entries = Object.entries(headers);
  if (entries.length > HEADERS_MAX) {
    throw new InvalidInputError(`http.headers must have at most ${HEADERS_MAX} names`);
  }
  const checked = new Map<string, string>();
  let bytes = 0;
  for (const [name, value] of entries) {
    const lower = checkHeaderName("http.headers", name);
    if (typeof value !== "string" || !HEADER_VALUE.test(value)) {
      throw new InvalidInputError(
        `http.headers: ${lower} must be a text of printable ASCII characters in one line`,
      );
    }
    if (checked.has(lower)) throw new InvalidInputError(`http.headers has ${lower} twice`);
    checked.set(lower, value);
    bytes += lower.length + value.length;
  }
  if (bytes > HEADER_BYTES_MAX) {
    throw new InvalidInputError(`http.headers must have at most ${HEADER_BYTES_MAX} bytes`);
  }
  return Object.fromEntries(checked);
}

function checkHeaderName(where: string, name: string): string {
  const lower = name.toLowerCase();
  if (!HEADER_NAME.test(name) || lower === "__proto__") {
    throw new InvalidInputError(`${where}: ${JSON.stringify(name)} is no name of a header`);
  }
  if (where === "http.resultHeaders") return lower;
  if (TRANSPORT.has(lower) || lower.startsWith("proxy-")) {
    throw new InvalidInputError(
      `${where} must not have ${lower}: it belongs to the connection, and is set by whoever calls`,
    );
  }
  if (OURS.test(lower)) {
    throw new InvalidInputError(
      `${where} must not have ${lower}: it is set for every call, and receivers rely on it`,
    );
  }
  return lower;
}

function checkStatuses(given: unknown): readonly number[] {
  const list: unknown[] = Array.isArray(given) ? given : [given];
  const isStatus = (value: unknown): value is number =>
    Number.isInteger(value) && Number(value) >= 200 && Number(value) <= 599;
  const redirect = list.map(Number).find((status) => REDIRECTS.includes(status));
  if (redirect !== undefined) {
    throw new InvalidInputError(
      `http.expectedStatus must not have ${redirect}: a redirect is followed or refused, ` +
        "and never completes a task; name the final address as http.targetUrl",
    );
  }
  if (list.length > 0 && list.length <= STATUSES_MAX && list.every(isStatus)) return list;
  throw new InvalidInputError(
    `http.expectedStatus must be a status from 200 to 599, or up to ${STATUSES_MAX} of them`,
  );
}

function checkResultHeaders(given: unknown): readonly string[] {
  if (!Array.isArray(given) || given.length > RESULT_HEADERS_MAX) {
    throw new InvalidInputError(
      `http.resultHeaders must be a list of at most ${RESULT_HEADERS_MAX} names`,
    );
  }
  return given.map((name) => checkHeaderName("http.resultHeaders", String(name)));
}
