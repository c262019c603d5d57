import type { LiveEvent } from "./events.ts";
import { fold, type LiveState, NOTHING_YET } from "./live-state.ts";
import { ALIVE_MS, type ToReader, type ToTab } from "./messages.ts";
import { SharedReader } from "./reader.ts";

/** What one tab hears of the feed, whoever reads it. */
export interface TabLine {
  /** Tries a lost connection again now. */
  hurry(): void;
  close(): void;
}

type Hear = (message: ToTab) => void;

/** By the worker that all tabs share, or where there is none, by one of the tabs. */
export function openLine(token: string, hear: Hear): TabLine {
  if (typeof SharedWorker !== "undefined") return viaWorker(token, hear);
  if (typeof BroadcastChannel !== "undefined" && navigator.locks !== undefined) {
    return viaLeader(token, hear);
  }
  return alone(token, hear);
}

function viaWorker(token: string, hear: Hear): TabLine {
  const worker = new SharedWorker(new URL("./shared-worker.ts", import.meta.url), {
    type: "module",
    name: "tidemill-feed",
  });
  const say = (message: ToReader): void => worker.port.postMessage(message);
  const hello = (): void => say({ type: "hello", token });
  worker.port.addEventListener("message", ({ data }: MessageEvent<ToTab>) => {
    if (data.type === "who") hello();
    else hear(data);
  });
  worker.port.start();
  hello();
  const timer = setInterval(() => say({ type: "alive" }), ALIVE_MS);
  const bye = (): void => say({ type: "bye" });
  // From the browser's memory, as it was when it was left.
  const back = ({ persisted }: PageTransitionEvent): void => {
    if (persisted) hello();
  };
  addEventListener("pagehide", bye);
  addEventListener("pageshow", back);
  return {
    hurry: () => say({ type: "hurry" }),
    close() {
      clearInterval(timer);
      removeEventListener("pagehide", bye);
      removeEventListener("pageshow", back);
      bye();
    },
  };
}

function alone(token: string, hear: Hear): TabLine {
  const reader = new SharedReader(token);
  reader.add((event) => hear({ type: "event", event }));
  return { hurry: () => reader.hurry(), close: () => reader.close() };
}

/** From a tab to the others. */
type OnChannel = ToTab | { readonly type: "hello" } | { readonly type: "hurry" };

/** Whoever has the lock reads, and tells the others; when it goes, the next one has it. */
function viaLeader(token: string, hear: Hear): TabLine {
  const name = `tidemill-feed-${fingerprint(token)}`;
  const channel = new BroadcastChannel(name);
  const over = new AbortController();
  const post = (message: OnChannel): void => channel.postMessage(message);
  let reader: SharedReader | undefined;
  let isWaiting = true;
  const tell = (event: LiveEvent): void => {
    hear({ type: "event", event });
    post({ type: "event", event });
  };
  channel.addEventListener("message", ({ data }: MessageEvent<OnChannel>) => {
    if (data.type === "hurry") reader?.hurry();
    else if (data.type === "hello") {
      if (reader !== undefined) post({ type: "state", state: reader.state });
    } else if (reader === undefined) {
      // Every tab that comes is answered on the same channel: a state is for whoever has none.
      if (data.type === "state" && !isWaiting) return;
      if (data.type === "state") isWaiting = false;
      hear(data);
    }
  });
  const lead = async (): Promise<void> => {
    reader = new SharedReader(token);
    reader.add(tell);
    await new Promise<void>((resolve) => over.signal.addEventListener("abort", () => resolve()));
    reader.close();
  };
  navigator.locks.request(name, { signal: over.signal }, lead).catch(() => {}); // It was closed.
  post({ type: "hello" });
  return {
    hurry: () => (reader === undefined ? post({ type: "hurry" }) : reader.hurry()),
    close() {
      over.abort();
      channel.close();
    },
  };
}

/** Tells tokens apart without naming them. */
function fingerprint(token: string): string {
  let hash = 0x811c9dc5;
  for (const character of token) {
    hash = Math.imul(hash ^ (character.codePointAt(0) ?? 0), 0x01000193) >>> 0;
  }
  return hash.toString(36);
}

/** What a tab knows, and whom it tells when that changes. */
export class LiveStore {
  readonly #line: TabLine;
  readonly #watchers = new Set<() => void>();
  readonly #listeners = new Set<(event: LiveEvent) => void>();
  #state: LiveState = NOTHING_YET;
  #hasJoined = false;

  constructor(token: string, open: typeof openLine = openLine) {
    this.#line = open(token, (message) => this.#hear(message));
  }

  readonly state = (): LiveState => this.#state;

  readonly watch = (watcher: () => void): (() => void) => {
    this.#watchers.add(watcher);
    return () => void this.#watchers.delete(watcher);
  };

  readonly listen = (listener: (event: LiveEvent) => void): (() => void) => {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  };

  hurry(): void {
    this.#line.hurry();
  }

  close(): void {
    this.#line.close();
  }

  #hear(message: ToTab): void {
    if (message.type === "who") return;
    this.#state = message.type === "state" ? message.state : fold(this.#state, message.event);
    for (const watcher of this.#watchers) watcher();
    if (message.type === "event") {
      this.#tell(message.event);
      return;
    }
    // It was away from a reader that went on: what it has missed may be anything.
    if (this.#hasJoined) this.#tell({ kind: "reset" });
    this.#hasJoined = true;
  }

  #tell(event: LiveEvent): void {
    for (const listener of this.#listeners) listener(event);
  }
}
