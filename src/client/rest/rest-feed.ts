import { exponentialMs, withJitter } from "../../base/backoff.ts";
import { chance, pause, systemClock } from "../../base/clock.ts";
import { TidemillError, UnavailableError } from "../../base/errors.ts";
import { refuseUnknown } from "../../base/options.ts";
import type { HttpCaller } from "./http-call.ts";
import { SseParser } from "./sse-parser.ts";

/** What became of a task; `purged` ones are gone from the dead letters or from history. */
export type FeedState =
  | "scheduled"
  | "pending"
  | "running"
  | "completed"
  | "failed"
  | "dead"
  | "cancelled"
  | "purged";

export interface FeedOptions {
  /** Only tasks of this queue. Defaults to all that the token is for. */
  readonly queue?: string;
  /** Only these. Defaults to all. */
  readonly states?: readonly FeedState[];
  /** Only the task with this id. Defaults to all. */
  readonly task?: string;
  /** Goes on behind the event with this id. Defaults to the present. */
  readonly after?: string;
  /** Ends the feed. Defaults to never. */
  readonly signal?: AbortSignal;
}

/** A change of a task. */
export interface FeedTask {
  readonly id: string;
  readonly queue: string;
  readonly tenant: string;
  readonly state: FeedState;
  readonly attempt: number;
  /** ISO 8601, by the clock of the database. */
  readonly at: string;
  readonly worker?: string;
  readonly reason?: string;
}

/** docs/reference/feed.md says what each one means. */
export type FeedEvent =
  | { readonly event: "task"; readonly id: string; readonly data: FeedTask }
  | {
      readonly event: "ready";
      readonly id: string;
      readonly data: { readonly after: string; readonly replay: boolean };
    }
  | {
      readonly event: "lagged";
      readonly id: string;
      readonly data: { readonly missed: number; readonly after?: string };
    }
  | { readonly event: "reset"; readonly id: ""; readonly data: { readonly reason: string } }
  | {
      readonly event: "worker" | "consumer" | "ring" | "gap" | "act";
      readonly id: string;
      readonly data: Readonly<Record<string, unknown>>;
    };

/** Heartbeats come every 15 seconds: a server that says nothing for so long is gone. */
const SILENCE_MS = 45_000;
const BASE_MS = 200;
const MAX_MS = 5_000;

/**
 * What becomes of tasks, as it happens. When the stream breaks it goes on at the server where it
 * was, which is told by another `ready`, or by `reset` when too much has happened since. Ends with
 * the signal or the loop; throws what the server refuses for good.
 */
export async function* readFeed(
  http: HttpCaller,
  options: FeedOptions = {},
): AsyncGenerator<FeedEvent, void, undefined> {
  refuseUnknown("feed", options, ["queue", "states", "task", "after", "signal"]);
  const { signal = NEVER } = options;
  let { after } = options;
  let failures = 0;
  for (;;) {
    try {
      for await (const event of readOnce(http, { ...options, signal }, after)) {
        failures = 0;
        if (event.id !== "") after = event.id;
        yield event;
      }
    } catch (error) {
      if (error instanceof TidemillError && !error.retryable) throw error;
    }
    failures += 1;
    await pause(withJitter(exponentialMs(failures, BASE_MS, MAX_MS), chance), systemClock, signal);
    if (signal.aborted) return;
  }
}

const NEVER = new AbortController().signal;

/** One stream, until it ends. */
async function* readOnce(
  http: HttpCaller,
  { queue, states, task, signal }: FeedOptions & { readonly signal: AbortSignal },
  after: string | undefined,
): AsyncGenerator<FeedEvent, void, undefined> {
  const silence = new AbortController();
  const over = AbortSignal.any([signal, silence.signal]);
  const listen = (): (() => void) => systemClock.after(SILENCE_MS, () => silence.abort());
  let cancel = listen();
  let pieces: ReadableStreamDefaultReader<Uint8Array> | undefined;
  try {
    const body = await http.open({
      path: "/v1/feed",
      query: { queue, state: states?.join(","), task },
      headers: { "last-event-id": after, accept: "text/event-stream" },
      signal: over,
    });
    const parser = new SseParser();
    const decoder = new TextDecoder();
    pieces = body.getReader();
    for (;;) {
      const { done, value: piece } = await pieces.read();
      cancel(); // Whoever takes the events may take its time.
      if (done) break;
      for (const { id = "", event, data } of parser.take(decoder.decode(piece, { stream: true }))) {
        yield { event, id, data: JSON.parse(data) as unknown } as FeedEvent;
      }
      cancel = listen();
    }
    throw new UnavailableError("the feed has ended");
  } finally {
    cancel();
    silence.abort();
    pieces?.cancel().catch(() => {});
  }
}
