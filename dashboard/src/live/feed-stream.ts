import { authorization } from "../api/http.ts";
import { type LiveEvent, toLiveEvent } from "./events.ts";
import { SseParser } from "./sse-parser.ts";

const PATH = "/v1/feed?view=summary";
const BACKOFF_MS = [500, 1_000, 2_000, 5_000, 10_000];
/** The server says something every 15 seconds. */
const SILENCE_MS = 40_000;

/**
 * Reads the feed for as long as it lives: it comes back by itself, and goes on where it was. By
 * fetch and not by EventSource, which could send the token in the address only.
 */
export class FeedStream {
  readonly #token: string;
  readonly #tell: (event: LiveEvent) => void;
  readonly #over = new AbortController();
  #lastId: string | undefined;
  #failures = 0;
  #wake: (() => void) | undefined;

  constructor(token: string, tell: (event: LiveEvent) => void) {
    this.#token = token;
    this.#tell = tell;
    void this.#run();
  }

  close(): void {
    this.#over.abort();
    this.#wake?.();
  }

  /** Tries again now instead of later. */
  hurry(): void {
    this.#wake?.();
  }

  async #run(): Promise<void> {
    while (!this.#over.signal.aborted) {
      this.#tell({ kind: "connection", connection: { state: "connecting" } });
      const reason = await this.#read().catch((error: unknown) => String(error));
      if (this.#over.signal.aborted || reason === undefined) return;
      const ms = BACKOFF_MS[Math.min(this.#failures, BACKOFF_MS.length - 1)] ?? 1_000;
      this.#failures += 1;
      const waitMs = ms / 2 + (Math.random() * ms) / 2; // Not all browsers in the same moment.
      const retryAtMs = Date.now() + waitMs;
      this.#tell({ kind: "connection", connection: { state: "lost", retryAtMs, reason } });
      await this.#sleep(waitMs);
    }
  }

  /** Why it ended; undefined when there is no use in trying again. */
  async #read(): Promise<string | undefined> {
    const silence = new AbortController();
    const signal = AbortSignal.any([this.#over.signal, silence.signal]);
    let timer = setTimeout(() => silence.abort(), SILENCE_MS);
    try {
      const place = this.#lastId === undefined ? {} : { "last-event-id": this.#lastId };
      const headers = { ...authorization(this.#token), ...place };
      const response = await fetch(PATH, { headers, signal, cache: "no-store" });
      if (!response.ok || response.body === null) return this.#refused(response);
      const parser = new SseParser();
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      for (;;) {
        const { value, done } = await reader.read();
        if (done) return "the server ended the stream";
        clearTimeout(timer);
        timer = setTimeout(() => silence.abort(), SILENCE_MS);
        for (const message of parser.push(value)) this.#take(message);
      }
    } finally {
      clearTimeout(timer);
    }
  }

  #take({ event, data, id }: { event: string; data: string; id: string | undefined }): void {
    if (id !== undefined) this.#lastId = id;
    if (event === "ready") this.#failures = 0;
    if (event === "reset") this.#lastId = undefined;
    const told = toLiveEvent(event, data, Date.now());
    if (told !== undefined) this.#tell(told);
  }

  async #refused(response: Response): Promise<string | undefined> {
    const { status } = response;
    await response.body?.cancel();
    if (status === 400) this.#lastId = undefined; // A place of a feed that was before this one.
    if (status !== 401 && status !== 403) return `the server answered ${status}`;
    const reason = status === 401 ? "the token is no longer accepted" : "the token may not read it";
    this.#tell({ kind: "connection", connection: { state: "refused", reason } });
    return undefined;
  }

  async #sleep(ms: number): Promise<void> {
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, ms);
      this.#wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
    this.#wake = undefined;
  }
}
