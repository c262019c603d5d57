/*
 * What the benchmark and its child processes say to each other over Node's IPC channel. Peers run
 * under another Node, so this file and `role.ts` hold erasable syntax only.
 */

export type Role = "prepare" | "server" | "producer" | "worker";

/** Throughput and latency want different settings of some peers. */
export type Purpose = "throughput" | "latency";

export interface OpenOptions {
  readonly url: string;
  readonly purpose: Purpose;
  /** Tasks carry one of so many keys, in turn; none when absent. */
  readonly keys?: number;
  /** Whether the queue has limits, none of which is ever reached. */
  readonly isLimited?: boolean;
  /** Where the server of this session listens, when there is one. */
  readonly server?: ServerPorts;
  /** How many tasks are in one message over the network. */
  readonly perMessage?: number;
  /** How many streams a worker opens. */
  readonly streams?: number;
}

export interface ServerPorts {
  readonly producer: number;
  readonly worker: number;
  readonly http: number;
}

/** One call of the parent; the child answers each with one `Answer` of the same id. */
export type Call =
  | { readonly do: "open"; readonly role: Role; readonly options: OpenOptions }
  /** Enqueues so many in batches; answers how many milliseconds until all were durable. */
  | { readonly do: "fill"; readonly count: number }
  /** Enqueues one task; answers the clock just before. */
  | { readonly do: "one" }
  /** Stops enqueuing; answers how many tasks this producer made durable since it opened. */
  | { readonly do: "hold" }
  /** Answers the most memory that this process ever used, in MiB. */
  | { readonly do: "rss" }
  /** Answers how much processor time this process has taken so far, in microseconds. */
  | { readonly do: "cpu" }
  | { readonly do: "close" };

export interface Request {
  readonly id: number;
  readonly call: Call;
}

/** Needs no answer: the producer may enqueue until it has made so many in total. */
export interface Feed {
  readonly feed: number;
}

export interface Answer {
  readonly id: number;
  readonly value?: number;
  readonly error?: string;
}

/** Said by a worker now and then: how many handlers it has called since it opened. */
export interface Handled {
  readonly handled: number;
}

/** Said by a worker that is open for latency, for each task. */
export interface Started {
  readonly started: number;
  readonly at: number;
}

export type Said = Answer | Handled | Started;

/** CLOCK_MONOTONIC, which all processes of a machine share, in milliseconds. */
export const now = (): number => Number(process.hrtime.bigint()) / 1e6;

export const BATCH = 1_000;
/** Batches that a producer keeps under way: with fewer, every system enqueues more slowly. */
export const BATCHES_IN_FLIGHT = 3;
export const PAYLOAD_BYTES = 100;
