import { type Clock, chance, pause, systemClock } from "../../base/clock.ts";
import {
  ConfigError,
  messageOf,
  type TidemillError,
  TimeoutError,
  UnavailableError,
} from "../../base/errors.ts";
import { refuseUnknown, requireNumber } from "../../base/options.ts";
import type { TokenSource } from "../line.ts";
import { errorOf, RemoteError } from "../remote-error.ts";
import { retryWaitMs } from "./retry.ts";

export interface RestOptions {
  /** Where the server's HTTP is, such as "https://tasks.example.com". */
  readonly url: string;
  /** Who is calling. A function is asked before every call, for tokens that expire. */
  readonly token: TokenSource;
  /** How long one attempt may take, beside the wait that a call asks for. Defaults to 30. */
  readonly timeoutSeconds?: number;
  /** Attempts of a call that may be repeated. Defaults to 4. */
  readonly attemptsMax?: number;
  /** Defaults to that of Node. */
  readonly fetch?: typeof globalThis.fetch;
}

/** Something to ask of the server. */
export interface RestCall {
  readonly method?: "GET" | "POST" | "PUT" | "DELETE";
  /** Such as "/v1/tasks"; each part percent-encoded. */
  readonly path: string;
  /** What is undefined is left out. */
  readonly query?: Readonly<Record<string, string | number | undefined>>;
  readonly headers?: Readonly<Record<string, string | undefined>>;
  readonly body?: unknown;
  /** Defaults to true for GET, PUT and DELETE. */
  readonly isRepeatable?: boolean;
  /** How long the server may take on top. Defaults to 0. */
  readonly waitSeconds?: number;
  readonly signal?: AbortSignal;
}

export interface RestAnswer {
  readonly status: number;
  /** Undefined where there is none. */
  readonly body: unknown;
}

const ANSWER_BYTES_MAX = 64 * 1024 * 1024;
const UNSENT = new Set(["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "EHOSTUNREACH", "ENETUNREACH"]);

interface Attempted {
  readonly answer?: RestAnswer;
  readonly error?: TidemillError;
  readonly status?: number;
  readonly retryAfterMs: number;
  readonly isUnsent: boolean;
}

/** Calls the HTTP interface: problems become errors, and what may be repeated is. */
export class HttpCaller {
  readonly #base: string;
  readonly #token: TokenSource;
  readonly #timeoutMs: number;
  readonly #attemptsMax: number;
  readonly #fetch: typeof globalThis.fetch;
  readonly #clock: Clock;
  readonly #random: () => number;

  constructor(
    options: RestOptions,
    { clock = systemClock, random = chance }: { clock?: Clock; random?: () => number } = {},
  ) {
    refuseUnknown("rest", options, ["url", "token", "timeoutSeconds", "attemptsMax", "fetch"]);
    this.#base = requireUrl(options.url);
    const { token, timeoutSeconds = 30, attemptsMax = 4 } = options;
    if (typeof token !== "function" && (typeof token !== "string" || token === "")) {
      throw new ConfigError("token must be a text that is not empty, or a function that gives one");
    }
    this.#token = token;
    this.#timeoutMs =
      requireNumber("timeoutSeconds", timeoutSeconds, { min: 0.1, max: 3600 }) * 1e3;
    const count = { min: 1, max: 100, integer: true };
    this.#attemptsMax = requireNumber("attemptsMax", attemptsMax, count);
    this.#fetch = options.fetch ?? globalThis.fetch;
    this.#clock = clock;
    this.#random = random;
  }

  /** The answer of the server. Throws what it refused with. */
  async call(call: RestCall): Promise<RestAnswer> {
    const { method = "GET", signal = NEVER } = call;
    const rules = {
      attemptsMax: this.#attemptsMax,
      isRepeatable: call.isRepeatable ?? method !== "POST",
      random: this.#random,
    };
    for (let attempt = 1; ; attempt += 1) {
      const made = await this.#attempt(call, method);
      if (made.answer !== undefined) return made.answer;
      const { status, retryAfterMs, isUnsent } = made;
      const waitMs = retryWaitMs({ attempt, status, retryAfterMs, isUnsent }, rules);
      if (waitMs === undefined || signal.aborted) throw made.error ?? unexplained();
      await pause(waitMs, this.#clock, signal);
    }
  }

  /** An answer that has no end, once, until the signal of the call aborts. */
  async open(call: RestCall): Promise<ReadableStream<Uint8Array>> {
    const { signal = NEVER } = call;
    let response: Response;
    try {
      response = await this.#fetch(this.#base + call.path + queryOf(call.query), {
        headers: headersOf(call, await this.#tokenNow()),
        signal,
        redirect: "error", // The token is for this server only.
      });
    } catch (error) {
      if (signal.aborted) throw error;
      throw unreached(error, undefined).error ?? error;
    }
    if (response.ok && response.body !== null) return response.body;
    throw (await toAttempted(response)).error ?? unexplained();
  }

  async #tokenNow(): Promise<string> {
    return typeof this.#token === "string" ? this.#token : await this.#token();
  }

  async #attempt(call: RestCall, method: string): Promise<Attempted> {
    const token = await this.#tokenNow();
    const timeoutMs = this.#timeoutMs + (call.waitSeconds ?? 0) * 1000;
    const own = new AbortController();
    const cancel = this.#clock.after(timeoutMs, () => own.abort());
    const given = call.signal;
    const onAbort = (): void => own.abort(given?.reason);
    given?.addEventListener("abort", onAbort, { once: true });
    if (given?.aborted === true) onAbort();
    try {
      const response = await this.#fetch(this.#base + call.path + queryOf(call.query), {
        method,
        headers: headersOf(call, token),
        signal: own.signal,
        redirect: "error", // The token is for this server only.
        ...(call.body === undefined ? {} : { body: JSON.stringify(call.body) }),
      });
      return await toAttempted(response);
    } catch (error) {
      if (given?.aborted === true) throw error;
      return unreached(error, own.signal.aborted ? timeoutMs : undefined);
    } finally {
      cancel();
      given?.removeEventListener("abort", onAbort);
    }
  }
}

const NEVER = new AbortController().signal;

function requireUrl(given: unknown): string {
  const url = typeof given === "string" && URL.canParse(given) ? new URL(given) : undefined;
  const isFine = url !== undefined && /^https?:$/.test(url.protocol);
  if (isFine && url.username === "" && url.search === "" && url.hash === "") {
    return url.href.replace(/\/+$/, "");
  }
  throw new ConfigError(
    'url must be the address of a server, such as "https://tasks.example.com", without a password',
  );
}

function queryOf(query: RestCall["query"] = {}): string {
  const given = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined) given.set(name, String(value));
  }
  return given.size === 0 ? "" : `?${given.toString()}`;
}

function headersOf({ headers = {}, body }: RestCall, token: string): Record<string, string> {
  const given = Object.entries(headers).filter(([, value]) => value !== undefined);
  return {
    accept: "application/json",
    ...(Object.fromEntries(given) as Record<string, string>),
    authorization: `Bearer ${token}`,
    ...(body === undefined ? {} : { "content-type": "application/json" }),
  };
}

async function toAttempted(response: Response): Promise<Attempted> {
  const { status } = response;
  const body = await readBody(response);
  if (response.ok) return { answer: { status, body }, retryAfterMs: 0, isUnsent: false };
  const seconds = Number(response.headers.get("retry-after") ?? 0);
  const retryAfterMs = Number.isFinite(seconds) ? Math.max(0, seconds * 1000) : 0;
  const error = problemError(status, body, retryAfterMs);
  return { error, status, retryAfterMs, isUnsent: false };
}

/** What the server refused with, in the words of RFC 9457. */
function problemError(status: number, body: unknown, retryAfterMs: number): TidemillError {
  const problem = (typeof body === "object" && body !== null ? body : {}) as {
    readonly code?: unknown;
    readonly detail?: unknown;
    readonly title?: unknown;
  };
  const texts = [problem.detail, problem.title].filter((text) => typeof text === "string");
  return errorOf({
    code: typeof problem.code === "string" ? problem.code : "TM_UNAVAILABLE",
    message: texts[0] ?? `the server answered ${status}`,
    retryable: status === 429 || status >= 502,
    retryAfterMs,
  });
}

async function readBody(response: Response): Promise<unknown> {
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of response.body ?? []) {
    const part = chunk as Uint8Array;
    bytes += part.byteLength;
    if (bytes > ANSWER_BYTES_MAX) throw new RangeError("the answer is too large");
    chunks.push(part);
  }
  if (bytes === 0) return undefined;
  const text = Buffer.concat(chunks).toString("utf8");
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return response.ok ? Promise.reject(new SyntaxError("the answer is not JSON")) : undefined;
  }
}

function unreached(error: unknown, timeoutMs: number | undefined): Attempted {
  const cause = error instanceof Error ? error.cause : undefined;
  const code = cause instanceof Error && "code" in cause ? String(cause.code) : "";
  const why = cause instanceof Error ? messageOf(cause) || code : messageOf(error);
  return {
    error:
      timeoutMs === undefined
        ? new UnavailableError(`the server cannot be reached: ${why}`, { cause: error })
        : new TimeoutError(`the server did not answer within ${timeoutMs / 1000} s`),
    retryAfterMs: 0,
    isUnsent: UNSENT.has(code),
  };
}

const unexplained = (): TidemillError =>
  new RemoteError({
    code: "TM_INTERNAL",
    message: "the server refused without a reason",
    retryable: false,
    retryAfterMs: 0,
  });
