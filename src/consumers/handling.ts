import type { Clock } from "../base/clock.ts";
import { TimeoutError } from "../base/errors.ts";
import type { Connection, Database } from "../db/database.ts";
import { isUnavailable } from "../db/sqlstate.ts";
import type { PersistedEvent } from "../events/event.ts";
import type { BatchTx } from "./batch-tx.ts";
import type { HandlerContext, Partition } from "./consumer.ts";
import { tablesFor } from "./rebuild/guard.ts";

export interface BatchContext {
  readonly db: Database;
  readonly workerId: string;
  readonly partition: Partition;
  /** Whether streams may be parked, so that each batch must look. */
  readonly parks: () => boolean;
  readonly batchTimeoutMs: number;
  readonly clock: Clock;
  /** Aborts when the worker must stop without waiting for the batch. */
  readonly hardStop: AbortSignal;
}

export interface HandlerFailure {
  readonly event: PersistedEvent;
  readonly error: unknown;
}

export interface Handled {
  /** The first that failed. */
  readonly failure?: HandlerFailure;
  /** The first that is left for another batch, because half of the time is over. */
  readonly next?: PersistedEvent;
}

/** What a batch that is under way handles with. */
export interface Handling {
  readonly tx: BatchTx;
  readonly deadline: Deadline;
}

/** Calls the handler for each event, then what comes before the commit; throws an outage. */
export async function handleInOrder(
  context: BatchContext,
  connection: Connection,
  running: Handling,
  events: readonly PersistedEvent[],
): Promise<Handled> {
  const handled = await handleEach(context, connection, running, events);
  const { consumer, rebuild } = context.partition;
  // It acts outside of the tables, which a rebuild must not.
  const beforeCommit = rebuild === undefined ? consumer.beforeCommit : undefined;
  if (handled.failure !== undefined || beforeCommit === undefined) return handled;
  const { next } = handled;
  const last = next === undefined ? events.at(-1) : events[events.indexOf(next) - 1];
  if (last === undefined) return handled;
  try {
    await inTime(running.deadline, beforeCommit(contextOf(context, running)));
  } catch (error) {
    if (running.tx.outage !== undefined) throw running.tx.outage;
    // That somebody cannot be reached, or does not answer in time, says nothing about the events.
    if (running.deadline.isReached) await running.deadline.reached;
    if (isUnavailable(error)) throw error;
    return { failure: { event: last, error } };
  }
  if (running.tx.hasFailed) await connection.client.query("");
  const status = connection.client.getTransactionStatus();
  return status === "T" ? handled : { failure: { event: last, error: brokenTransaction(status) } };
}

/** Slow ones stop in good time: who always tries more than fits into a batch is never done. */
async function handleEach(
  context: BatchContext,
  connection: Connection,
  running: Handling,
  events: readonly PersistedEvent[],
): Promise<Handled> {
  for (const [place, event] of events.entries()) {
    if (place > 0 && running.deadline.isHalfOver) return { next: event };
    try {
      await callHandler(context, running, event);
    } catch (error) {
      if (running.tx.outage !== undefined) throw running.tx.outage;
      return { failure: { event, error } };
    }
    // The driver tells of an error before it knows the transaction's state: an empty statement
    // waits for it. Otherwise the next event would be blamed.
    if (running.tx.hasFailed) await connection.client.query("");
    const status = connection.client.getTransactionStatus();
    if (status !== "T") return { failure: { event, error: brokenTransaction(status) } };
  }
  return {};
}

async function callHandler(
  context: BatchContext,
  running: Handling,
  event: PersistedEvent,
): Promise<void> {
  const { consumer } = context.partition;
  await inTime(running.deadline, consumer.handle(event, contextOf(context, running)));
}

function contextOf(
  { partition, workerId }: BatchContext,
  { tx, deadline }: Handling,
): HandlerContext {
  const { signal } = deadline;
  const consumer = partition.consumer.name;
  return { tx, signal, consumer, workerId, ...tablesFor(partition) };
}

async function inTime(deadline: Deadline, result: unknown): Promise<void> {
  if (isThenable(result)) await Promise.race([result, deadline.reached]);
  else if (deadline.isReached) await deadline.reached;
}

/** Query builders are awaitable without being promises. */
function isThenable(value: unknown): value is PromiseLike<unknown> {
  return typeof value === "object" && value !== null && "then" in value;
}

function brokenTransaction(status: string | null): Error {
  return new Error(
    status === "E"
      ? "the handler ignored the error of a statement in its transaction"
      : "the handler ended the batch's transaction; it must not commit or roll back",
  );
}

/** Ends a batch that takes too long, or at once when the worker must stop. */
export class Deadline {
  readonly reached: Promise<never>;
  readonly #abort = new AbortController();
  readonly #cancel: () => void;
  readonly #clock: Clock;
  readonly #halfAtMs: number;

  constructor({ batchTimeoutMs, clock, hardStop }: BatchContext) {
    this.#clock = clock;
    this.#halfAtMs = clock.now() + batchTimeoutMs / 2;
    let reach: (reason: Error) => void = () => {};
    this.reached = new Promise((_, reject) => {
      reach = (reason) => {
        this.#abort.abort(reason);
        reject(reason);
      };
    });
    this.reached.catch(() => {});
    const late = (): void =>
      reach(new TimeoutError(`the batch took longer than batchTimeout (${batchTimeoutMs} ms)`));
    const stop = (): void => reach(new TimeoutError("the worker stopped before the batch ended"));
    const cancelTimer = clock.after(batchTimeoutMs, late);
    hardStop.addEventListener("abort", stop, { once: true });
    if (hardStop.aborted) stop();
    this.#cancel = () => {
      cancelTimer();
      hardStop.removeEventListener("abort", stop);
    };
  }

  get signal(): AbortSignal {
    return this.#abort.signal;
  }

  get isReached(): boolean {
    return this.#abort.signal.aborted;
  }

  get isHalfOver(): boolean {
    return this.#clock.now() >= this.#halfAtMs;
  }

  clear(): void {
    this.#cancel();
  }
}
