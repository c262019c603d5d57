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
  | Begun
  | Ended
  | Exited
  | Blocked
  | { readonly op: "fault"; readonly fault: FaultRecord }
  | { readonly op: "held"; readonly held: Held }
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
  /** When it had begun, by the database's clock, where that was asked. */
  readonly atMs?: number;
}

/** Handlers of one queue began, in one line, where there are many of them. */
export interface Begun {
  readonly op: "begun";
  readonly queue: string;
  /** When all of them had, by the database's clock; null when it could not be asked. */
  readonly atMs: number | null;
  readonly claims: readonly BegunClaim[];
}

export interface BegunClaim extends Omit<Token, "id"> {
  readonly ids: readonly string[];
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

/** A process ended. */
export interface Exited {
  readonly op: "exit";
  readonly process: string;
  /** The worker in it; null where there is none. */
  readonly worker: string | null;
  /** Null: by a signal. */
  readonly code: number | null;
  readonly signal: string | null;
  /** What it was told before; null: nothing. */
  readonly asked: "kill" | "stop" | null;
  /** How long after it was told to stop; null: it was not. */
  readonly stopMs: number | null;
  /** The last that it said, where it did not end as it should. */
  readonly lastLines: readonly string[];
}

/** A task kept a process from everything else: it could neither renew nor hear of anything. */
export interface Blocked {
  readonly op: "block";
  readonly process: string;
  /** By the clock of the harness. */
  readonly fromMs: number;
  readonly toMs: number;
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

/** What a process held at the moment when it was hit: it must end, or run again, in time. */
export interface Held {
  readonly by: string;
  /** By the clock of the harness, within the fault. */
  readonly atMs: number;
  readonly tasks: readonly Token[];
  /** Ids of those whose rows a transaction of the worker had locked: nobody may take them then. */
  readonly locked: readonly string[];
}

/** What the watcher saw in the database at one moment. */
export interface Sample {
  readonly atMs: number;
  /** Higher when more tasks have ended, and more events been handled. */
  readonly finished: number;
  readonly handled: number;
  /** The same of tasks that were run through servers. */
  readonly remote: number;
  /** How many tasks of limited queues run, by queue. */
  readonly limited: Readonly<Record<string, number>>;
}
