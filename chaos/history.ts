import { appendFileSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

/**
 * What one process saw and did, a line each, in a file of its own. Its clock proves nothing: times
 * are for people. What is proven with is told by the database: ids, lease tokens, positions.
 */
export interface Entry {
  /** Milliseconds since 1970, by the clock of the process. */
  readonly t: number;
  readonly proc: string;
  readonly what: What;
}

export type What =
  | Enqueued
  | Appended
  | Started
  | Ended
  | { readonly op: "fault"; readonly fault: FaultRecord }
  | { readonly op: "sample"; readonly sample: Sample };

/**
 * How a call ended for the one who made it: `ok` is a promise of the system, `fail` means that
 * nothing may be there, `unknown` that all of it or nothing is.
 */
export type Phase = "ok" | "fail" | "unknown";

/** Tasks that were enqueued by one call. */
export interface Enqueued {
  readonly op: "enqueue";
  readonly phase: Phase;
  readonly queue: string;
  /** What each carries in its payload. */
  readonly names: readonly string[];
  /** As the system said, in the same order. Only when `ok`. */
  readonly ids?: readonly string[];
  /**
   * In the same order, of keyed tasks. One process enqueues all of a key, one call after another,
   * and none after a call whose outcome it does not know: so lines tell the order of a key.
   */
  readonly keys?: readonly string[];
}

/** Events of one transaction. */
export interface Appended {
  readonly op: "append";
  readonly phase: Phase;
  readonly names: readonly string[];
  /** Only when `ok`. */
  readonly positions?: readonly string[];
}

export interface Token {
  readonly id: string;
  readonly generation: number;
  readonly claimId: string;
}

/** A handler began. */
export interface Started {
  readonly op: "start";
  readonly queue: string;
  readonly task: Token;
}

/**
 * A handler returned, or its transaction committed with the completion; of a remote one, a server
 * acknowledged that it did.
 */
export interface Ended {
  readonly op: "end";
  readonly task: Token;
  readonly how: "returned" | "committed" | "refused" | "unknown" | "aborted" | "threw";
}

/** Something was broken, and mended. */
export interface FaultRecord {
  readonly kind: string;
  /** Worker ids, process names or whatever was hit. */
  readonly targets: readonly string[];
  /** By the clock of the harness. */
  readonly fromMs: number;
  readonly toMs: number;
  /** How long after it was mended tasks and events moved again; null when they did not. */
  readonly recoveredMs: number | null;
  readonly boundMs: number;
}

/** What the watcher saw in the database at one moment. */
export interface Sample {
  readonly atMs: number;
  /** Tasks that ended so far, and events that were handled. */
  readonly finished: number;
  readonly handled: number;
  /** Tasks that ended so far and were run through servers. */
  readonly remote: number;
  /** How many tasks of the limited queue run. */
  readonly limited: number;
}

const FLUSH_MS = 20;

/** Appends entries to the file of this process. A kill loses the last few milliseconds of it. */
export class HistoryWriter implements Disposable {
  readonly #file: string;
  readonly #proc: string;
  readonly #timer: NodeJS.Timeout;
  #lines: string[] = [];

  constructor(folder: string, proc: string) {
    this.#file = join(folder, `${proc}.jsonl`);
    this.#proc = proc;
    this.#timer = setInterval(() => this.flush(), FLUSH_MS);
    this.#timer.unref();
  }

  add(what: What): void {
    const entry: Entry = { t: Date.now(), proc: this.#proc, what };
    this.#lines.push(JSON.stringify(entry));
  }

  flush(): void {
    if (this.#lines.length === 0) return;
    const lines = this.#lines;
    this.#lines = [];
    appendFileSync(this.#file, `${lines.join("\n")}\n`);
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer);
    this.flush();
  }
}

/** All files of a run. The last line of a process that was killed may be torn, and is left out. */
export function readHistories(folder: string): Entry[] {
  return readdirSync(folder)
    .filter((name) => name.endsWith(".jsonl"))
    .flatMap((name) => readFileSync(join(folder, name), "utf8").split("\n").flatMap(parse));
}

function parse(line: string): Entry[] {
  try {
    return line === "" ? [] : [JSON.parse(line) as Entry];
  } catch {
    return [];
  }
}
