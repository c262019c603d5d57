/** An answer that says no, in the words of the server. */
export class ApiError extends Error {
  readonly status: number;
  readonly code: string;
  readonly requestId: string | undefined;

  constructor(status: number, code: string, message: string, requestId?: string) {
    super(message);
    this.status = status;
    this.code = code;
    this.requestId = requestId;
  }

  /** Whether the same call may be answered in a while. */
  get isPassing(): boolean {
    return this.status === 0 || this.status === 429 || this.status >= 500;
  }
}

export type Query = Readonly<Record<string, string | number | undefined>>;

interface Problem {
  readonly code?: string;
  readonly title?: string;
  readonly detail?: string;
  readonly requestId?: string;
}

/** The token goes into a header and nowhere else: addresses end up in logs and histories. */
export const authorization = (token: string): Record<string, string> =>
  token === "" ? {} : { authorization: `Bearer ${token}` };

/** Calls the server of this page, in the name of one token. */
export class Api {
  readonly #token: string;
  readonly #onRefused: () => void;

  constructor(token: string, onRefused: () => void = () => {}) {
    this.#token = token;
    this.#onRefused = onRefused;
  }

  async get<T>(path: string, query: Query = {}, signal?: AbortSignal): Promise<T> {
    const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== "");
    const search = new URLSearchParams(given.map(([name, value]) => [name, String(value)]));
    const suffix = given.length === 0 ? "" : `?${search}`;
    return JSON.parse(await this.getText(path + suffix, signal)) as T;
  }

  /** An answer as it was written. */
  async getText(path: string, signal?: AbortSignal): Promise<string> {
    return await this.#send("GET", path, signal === undefined ? {} : { signal });
  }

  async post<T>(path: string, body?: unknown): Promise<T> {
    return await this.#call<T>("POST", path, toBody(body));
  }

  async put<T>(path: string, body?: unknown): Promise<T> {
    return await this.#call<T>("PUT", path, toBody(body));
  }

  /** The body is JSON already: numbers of twenty digits stay as they were typed. */
  async putText<T>(path: string, json: string): Promise<T> {
    return await this.#call<T>("PUT", path, toText(json));
  }

  async delete(path: string): Promise<void> {
    await this.#call("DELETE", path, {});
  }

  async #call<T>(method: string, path: string, options: RequestInit): Promise<T> {
    const text = await this.#send(method, path, options);
    return (text === "" ? undefined : JSON.parse(text)) as T;
  }

  async #send(method: string, path: string, options: RequestInit): Promise<string> {
    let response: Response;
    try {
      const headers = { ...authorization(this.#token), ...(options.headers as object) };
      response = await fetch(path, { ...options, method, headers, cache: "no-store" });
    } catch (error) {
      if (options.signal?.aborted === true) throw error;
      throw new ApiError(0, "UNREACHABLE", "The server cannot be reached.");
    }
    const text = await response.text();
    if (response.ok) return text;
    if (response.status === 401) this.#onRefused();
    throw toError(response.status, text);
  }
}

function toBody(body: unknown): RequestInit {
  return body === undefined ? {} : toText(JSON.stringify(body));
}

function toText(body: string): RequestInit {
  return { body, headers: { "content-type": "application/json" } };
}

function toError(status: number, text: string): ApiError {
  let problem: Problem = {};
  try {
    problem = JSON.parse(text) as Problem;
  } catch {
    // A proxy in between answered, in its own words.
  }
  const message = problem.detail ?? problem.title ?? `The server answered ${status}.`;
  return new ApiError(status, problem.code ?? "UNKNOWN", message, problem.requestId);
}

/** A name as one part of a path. */
export const part = (name: string): string => encodeURIComponent(name);
