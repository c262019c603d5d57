import { status } from "@grpc/grpc-js";
import { exponentialMs, withJitter } from "../../base/backoff.ts";
import { type Clock, pause } from "../../base/clock.ts";
import { messageOf, TidemillError, type UnauthenticatedError } from "../../base/errors.ts";
import type { Logger } from "../../base/log.ts";
import { failed } from "../../tasks/outcome.ts";
import type { LeaseToken } from "../../tasks/task.ts";
import type { Caller } from "../auth/caller.ts";
import { asInput } from "../failure.ts";
import type { Admission } from "../grpc/admission.ts";
import { type Peer, StreamError } from "../grpc/peer.ts";
import { streamErrorOf } from "../grpc/status.ts";
import type { Budget, Place } from "../producer/budget.ts";
import { weightOf } from "../producer/limits.ts";
import { type Assignment, AssignmentList } from "./assignment.ts";
import type { Returning } from "./custody.ts";
import type { Desk, RemoteWorker } from "./desk.ts";
import type { Order, OrderedQueues } from "./order-book.ts";
import type { RemoteActs } from "./remote-acts.ts";
import type { Voice } from "./voice.ts";

export interface SessionOptions {
  readonly admission: Admission;
  readonly desk: Desk;
  /** What all workers have said and was not answered. */
  readonly budget: Budget;
  readonly clock: Clock;
  readonly logger: Logger;
  /** How long the tasks of a stream that broke are still its own. */
  readonly graceMs: number;
  /** How long the answers of a stream whose token ended may take. */
  readonly finishMs: number;
}

export interface WorkerStreamOptions extends SessionOptions {
  readonly acts: RemoteActs;
  /** Of a claim. */
  readonly leaseSeconds: number;
}

/** Orders of one stream that wait at once, and tasks in one. */
export const ORDERS_MAX = 1_000;
export const COUNT_MAX = 1_000;
/** Tasks of one stream, ordered or held. */
export const TASKS_MAX = 10_000;
/** Longer leases are cut to this, or refused. */
export const LEASE_SECONDS_MAX = 86_400;
/** While its client has not read so much, no more is sent. */
const UNREAD_BYTES_MAX = 1024 * 1024;
const CONGESTED_MS = 50;
/** Of a batch of tasks; a message has room for more. */
const BATCH_BYTES_MAX = 3 * 1024 * 1024;
/** A token, names, and as many tasks as a stream may have, each in 70 bytes. */
const HELLO_BYTES_MAX = 1024 * 1024;
/** Of those in one statement. */
const ADOPTED_MAX = 1_000;
/** Between attempts to handle the queues of an order. */
const HANDLE_MS = 50;
const HANDLE_MS_MAX = 2_000;
const NOTHING = (): void => {};

type StreamPeer = Pick<
  Peer<never, never>,
  "address" | "end" | "isOpen" | "unreadBytes" | "welcome"
>;

/**
 * What every worker's stream has, whatever its messages are: who it is, what it ordered, what it
 * holds, and what it said that was not answered yet.
 *
 * A stream that breaks keeps its tasks for a short grace, then each counts as lost with its worker.
 * One that ends because the server goes gives back what it cannot finish; so does one whose token
 * ended, after the grace: its worker may come back with another token.
 */
export class WorkerSession implements RemoteWorker {
  /** The tasks that its client has. */
  readonly held = new AssignmentList();
  readonly #peer: StreamPeer;
  readonly #options: SessionOptions;
  readonly #voice: Voice;
  readonly #over = new AbortController();
  readonly #orders = new Set<Order<Assignment>>();
  /** Orders that are kept, by their queues. */
  readonly #kept = new Map<OrderedQueues, Order<Assignment>>();
  #renewed = new Set<Assignment>();
  #caller: Caller | undefined;
  /** Tasks for which orders wait. */
  #ordered = 0;
  /** Orders whose queues are not handled here yet. */
  #unhandled = 0;
  /** Messages that were not answered. */
  #unanswered = 0;
  #place: Place | undefined;
  #isClosed = false;
  #isDraining = false;
  #isFinishing = false;
  /** How it ends because of its token. */
  #refusal: StreamError | undefined;

  constructor(peer: StreamPeer, options: SessionOptions, voice: Voice) {
    this.#peer = peer;
    this.#options = options;
    this.#voice = voice;
  }

  /** Undefined before the hello. */
  get caller(): Caller | undefined {
    return this.#caller;
  }

  get tenant(): string {
    return this.#caller?.tenant ?? "";
  }

  /** What its client has of this task; undefined when it has none of it. */
  find(taskId: string): Assignment | undefined {
    const one = this.#options.desk.book.get(taskId);
    return one?.list === this.held ? one : undefined;
  }

  /** Whether no more orders are taken. */
  get isClosed(): boolean {
    return this.#isClosed;
  }

  /** Throws what the admission throws. */
  async enter(token: string): Promise<Caller> {
    const admitted = await this.#options.admission.admit(token, this.#peer.address);
    this.#caller = admitted.caller;
    void admitted.watch(this.#over.signal).then((refusal) => {
      if (refusal !== undefined) this.#refuse(refusal);
    });
    return admitted.caller;
  }

  /** Before a message is decoded: waits until there is room for what comes of it. */
  admit(bytes: number, entries: number): void | Promise<void> {
    if (this.#caller === undefined) {
      if (bytes <= HELLO_BYTES_MAX) return;
      const most = `a hello has at most ${HELLO_BYTES_MAX} bytes`;
      throw new StreamError(status.INVALID_ARGUMENT, most);
    }
    this.#place = this.#options.budget.take(this.tenant, weightOf(bytes, entries));
    return this.#place.waiting;
  }

  /** Does what the message that was admitted asks for, unless nobody may ask any more. */
  handle(take: () => void | Promise<void>): void | Promise<void> {
    const work = this.#refusal === undefined ? take() : undefined;
    if (work instanceof Promise) return work.finally(() => this.#handled());
    this.#handled();
  }

  /** It is dealt with, or answered later. */
  #handled(): void {
    this.#place?.release();
    this.#place = undefined;
  }

  /** The message that was just admitted is answered later: by calling what this returns, once. */
  answerLater(): () => void {
    const place = this.#place;
    this.#place = undefined;
    this.#unanswered += 1;
    return () => {
      this.#unanswered -= 1;
      place?.release();
      this.#endWhenDone();
    };
  }

  /** Why no more may be ordered; undefined when it may. */
  whyFull(count: number): string | undefined {
    const isFull = this.#orders.size + this.#unhandled >= ORDERS_MAX;
    if (!isFull && this.#ordered + this.held.size + count <= TASKS_MAX) return undefined;
    return `a stream may have at most ${ORDERS_MAX} readys and ${TASKS_MAX} tasks at once`;
  }

  order(queues: OrderedQueues, count: number, leaseSeconds: number): void {
    if (this.#isClosed || !this.#peer.isOpen) return;
    this.#ordered += count;
    this.#order(queues, count, leaseSeconds);
  }

  /**
   * Orders when tasks of the queues can be claimed here. Its client waits for as long as it takes:
   * what passes, such as a database that is away, is tried again; what does not ends the stream.
   */
  async orderWhenHandled(
    queues: OrderedQueues,
    count: number,
    leaseSeconds: number,
  ): Promise<void> {
    const { desk, clock } = this.#options;
    this.#ordered += count;
    this.#unhandled += 1;
    for (let failures = 1; !this.#isClosed; failures += 1) {
      try {
        await desk.handle(queues, this.tenant);
        break;
      } catch (error) {
        this.#onUnhandled(error, failures);
      }
      const waitMs = withJitter(exponentialMs(failures, HANDLE_MS, HANDLE_MS_MAX));
      await pause(waitMs, clock, this.#over.signal);
    }
    this.#unhandled -= 1;
    this.#order(queues, count, leaseSeconds);
  }

  #onUnhandled(error: unknown, failures: number): void {
    const isPassing = error instanceof TidemillError && error.retryable;
    if (!isPassing || failures === 1) {
      const facts = { error: messageOf(error), tenant: this.tenant };
      this.#options.logger.warn(facts, "cannot handle the queues of a worker");
    }
    if (isPassing) return;
    const { code, message } = streamErrorOf(asInput(error));
    this.close();
    this.#peer.end(code, message);
  }

  #order(queues: OrderedQueues, count: number, leaseSeconds: number): void {
    if (this.#isClosed || !this.#peer.isOpen) return;
    const { desk } = this.#options;
    const kept = this.#kept.get(queues);
    if (kept !== undefined) {
      desk.enlarge(kept, count);
      return;
    }
    const order = desk.order(this, queues, count, leaseSeconds);
    this.#orders.add(order);
    if (this.#voice.keepsOrders) this.#kept.set(queues, order);
  }

  onTasks(order: Order<Assignment>): void {
    const { clock, desk } = this.#options;
    this.#orders.delete(order);
    if (this.#kept.get(order.queues) === order) this.#kept.delete(order.queues);
    const isCongested = !this.#peer.isOpen || this.#peer.unreadBytes > UNREAD_BYTES_MAX;
    const taken: Assignment[] = [];
    const rest = isCongested ? order.tasks : this.#take(order.tasks, taken);
    if (taken.length > 0) this.#voice.tasks(taken);
    const isServed = taken.length > 0 && !this.#voice.keepsOrders;
    const left = isServed ? 0 : order.count - taken.length;
    this.#ordered -= order.count - left;
    const again = (): void => this.#order(order.queues, left, order.leaseSeconds);
    if (isCongested)
      clock.after(CONGESTED_MS, again); // As soon as its client reads, it is served.
    else if (left > 0) again();
    for (const one of rest) desk.reassign(one);
  }

  /** As many as fit into a message are the stream's. Gives those that do not. */
  #take(assignments: readonly Assignment[], taken: Assignment[]): Assignment[] {
    const { frameBytes } = this.#voice;
    const rest: Assignment[] = [];
    let bytes = 0;
    for (const one of assignments) {
      if (!one.isRunning) continue; // It was cancelled on its way here.
      const size = frameBytes + one.task.bytesMax;
      if (size > BATCH_BYTES_MAX) {
        one.end(failed("the task does not fit into a message", { retry: false }), NOTHING);
      } else if (bytes + size > BATCH_BYTES_MAX) rest.push(one);
      else {
        bytes += size;
        taken.push(one);
        this.held.add(one);
      }
    }
    return rest;
  }

  /** It comes back with tasks of a stream before it. Gives those that it may not keep. */
  async takeBack(
    tokens: readonly LeaseToken[],
    terms: Omit<Returning, "tenant">,
  ): Promise<LeaseToken[]> {
    const { book, custody } = this.#options.desk;
    const returning = { ...terms, tenant: this.tenant };
    const take = (some: readonly Assignment[]): void => {
      for (const one of some) this.held.add(one);
    };
    take(custody.keep(this, tokens, returning)); // Before its grace is over.
    try {
      for (let from = 0; from < tokens.length; from += ADOPTED_MAX) {
        const some = tokens.slice(from, from + ADOPTED_MAX);
        const adopted = await custody.adopt(this, some, returning);
        take(adopted.filter((one) => one.holder === this));
      }
    } finally {
      if (this.#over.signal.aborted) this.#leave();
    }
    const isKept = (token: LeaseToken): boolean => {
      const one = book.find(token, this.tenant);
      return one?.holder === this;
    };
    return tokens.filter((token) => !isKept(token));
  }

  onLost(assignment: Assignment, why: Error): void {
    if (assignment.list === this.held) this.#voice.lost(assignment, why);
    this.onGone(assignment);
  }

  /** The same task may have come again meanwhile: only this claim of it is over. */
  onGone(assignment: Assignment): void {
    this.held.delete(assignment);
    this.#renewed.delete(assignment);
    this.#endWhenDone();
  }

  /** All that are renewed in one round are told together. */
  onRenewed(assignment: Assignment): void {
    if (this.#renewed.size === 0) setImmediate(() => this.#tellRenewed());
    this.#renewed.add(assignment);
  }

  #tellRenewed(): void {
    const renewed = [...this.#renewed].filter((one) => one.list === this.held);
    this.#renewed = new Set();
    if (renewed.length > 0 && this.#peer.isOpen) this.#voice.renewed(renewed);
  }

  /** No more tasks: what was ordered is void. */
  close(): void {
    this.#isClosed = true;
    for (const order of this.#orders) this.#options.desk.withdraw(order);
    this.#orders.clear();
    this.#kept.clear();
    this.#ordered = 0;
  }

  /** No more tasks; the stream ends when what it has was said, or by force when the time is up. */
  drain(): void {
    this.close();
    this.#isDraining = true;
    this.#endWhenDone();
  }

  /** It can say no more: what it has not said yet goes back, and what it has is answered. */
  giveBack(): void {
    this.drain();
    for (const one of this.held.all()) {
      if (one.isRunning) one.giveBack();
    }
  }

  /** It says no more, and did not say that it leaves: what it said is answered. */
  finish(): void {
    this.close();
    this.#isFinishing = true;
    this.#endWhenDone();
  }

  /** Its token is not good any more: nothing more is heard, and what was said is answered. */
  #refuse(why: UnauthenticatedError): void {
    if (!this.#peer.isOpen) return;
    const { clock, finishMs } = this.#options;
    const refusal = this.#voice.unauthenticated(why);
    this.close();
    this.#refusal = refusal;
    const end = (): void => this.#peer.end(refusal.code, refusal.message);
    this.#over.signal.addEventListener("abort", clock.after(finishMs, end), { once: true });
    this.#endWhenDone();
  }

  over(): void {
    this.#over.abort();
    this.close();
    this.#handled();
    this.#leave();
  }

  #leave(): void {
    const { graceMs, desk } = this.#options;
    const held = this.held.all();
    for (const one of held) this.held.delete(one);
    const left = held.filter((one) => one.isRunning);
    if (left.length === 0) return;
    // That the server goes says nothing about the tasks, and that a token ends does not either.
    if (this.#isDraining) for (const one of left) one.giveBack();
    else desk.leaveAfter(graceMs, this, left, this.#refusal === undefined ? "lost" : "back");
  }

  #endWhenDone(): void {
    if (this.#unanswered > 0) return;
    const isDone = this.#isFinishing || (this.#isDraining && this.held.size === 0);
    if (this.#refusal !== undefined) this.#peer.end(this.#refusal.code, this.#refusal.message);
    else if (isDone) this.#peer.end(status.OK);
  }
}
