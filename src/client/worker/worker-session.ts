import { messageOf, type TidemillError } from "../../base/errors.ts";
import { Timers } from "../../base/timers.ts";
import { VERSION } from "../../base/version.ts";
import type { TaskHandler } from "../../tasks/queue.ts";
import {
  LeaseLostError,
  type LeaseToken,
  TaskCancelledError,
  TaskTimeoutError,
  WorkerStoppingError,
} from "../../tasks/task.ts";
import type { Refused } from "../../wire/generated/tidemill/v1/stream.ts";
import {
  FromWorker,
  ToWorker,
  type WorkerHelloAck,
} from "../../wire/generated/tidemill/v1/worker.ts";
import type { Speaker } from "../line.ts";
import type { Link } from "../link.ts";
import { ActLine, type PendingAct } from "./act-line.ts";
import { Attempts } from "./attempts.ts";
import { CreditGiver } from "./credit-giver.ts";
import { ABANDON, failAct, type WireAct } from "./end-act.ts";
import { HandlerActs } from "./handler-acts.ts";
import { HeldTasks } from "./held-tasks.ts";
import type { Due } from "./lease-watch.ts";
import { RemoteTask } from "./remote-task.ts";
import { FIRST_TERMS, termsOf } from "./server-terms.ts";
import { groupsOf, Slots } from "./slots.ts";
import { TaskEnds } from "./task-ends.ts";
import { type ReadTask, readTasks } from "./task-reader.ts";
import type { ResolvedWorkerOptions } from "./worker-options.ts";

export interface WorkerSessionEvents {
  onKnown(): void;
  onFailed(error: TidemillError): void;
  /** The server of the link goes: find another. */
  onDrain(link: Link): void;
  /** A handler returned, an act was answered, or a link was lost: a stop may go on. */
  onLess(): void;
}

/** A message beside its acts, and an act beside its value. */
const MESSAGE_BYTES = 512;
/** Tasks that a hello names: all that a server gives to one stream. */
const NAMED_MAX = 10_000;
/**
 * The work of one worker, over one link after another: takes tasks, runs their handlers, says how
 * they ended, and hears what became of it. docs/adr/0012-client.md has the states of a task, and
 * what happens when the stream is lost at each of them.
 */
export class WorkerSession implements Speaker<WorkerHelloAck> {
  readonly #options: ResolvedWorkerOptions;
  readonly #events: WorkerSessionEvents;
  readonly #timers: Timers;
  readonly #handlers: ReadonlyMap<string, TaskHandler>;
  readonly #held: HeldTasks;
  readonly #acts: ActLine;
  readonly #handlerActs: HandlerActs;
  readonly #slots: Slots;
  readonly #credit: CreditGiver;
  readonly #ends: TaskEnds;
  #workerId: string;
  #terms = FIRST_TERMS;
  #link: Link | undefined;
  /** Their servers give no more tasks, and still take acts. */
  readonly #draining = new Set<Link>();
  #named: readonly RemoteTask[] = [];
  #lastRequest = 0n;
  #isScheduled = false;
  #isLeaving = false;

  constructor(options: ResolvedWorkerOptions, events: WorkerSessionEvents) {
    this.#options = options;
    this.#events = events;
    this.#workerId = options.workerId;
    const { clock, logger } = options.line;
    this.#timers = new Timers(clock);
    this.#handlers = new Map(options.handlers.map((handler) => [handler.queue.name, handler]));
    this.#acts = new ActLine(logger);
    this.#held = new HeldTasks({
      clock,
      canAsk: () => this.#listener !== undefined,
      onDue: (task, due) => this.#onDue(task, due),
    });
    this.#handlerActs = new HandlerActs(this.#held, {
      logger,
      workerId: () => this.#workerId,
      valueBytesMax: () => this.#valueBytesMax,
      add: (act) => this.#add(act),
      lose: (task, error) => this.#lose(task, error),
    });
    this.#ends = new TaskEnds({
      timers: this.#timers,
      random: options.line.reconnect.random,
      logger,
      add: (act) => this.#add(act),
      onOver: (task) => this.#held.delete(task),
      onAck: options.onAck,
    });
    const attempts = new Attempts({
      acts: this.#handlerActs,
      resultBytesMax: () => this.#valueBytesMax,
      onEnded: (task, act, didThrow) => this.#onEnded(task, act, didThrow),
      onReturned: (task) => this.#onReturned(task),
    });
    const groups = groupsOf(options.handlers, options.concurrency, options.batchSize);
    this.#slots = new Slots(groups, options.concurrency, (task) => {
      this.#held.started(task);
      attempts.run(task);
    });
    this.#credit = new CreditGiver(groups, {
      batchSize: options.batchSize,
      logger,
      timers: this.#timers,
      nextRequest: () => this.#nextRequest(),
      onTime: () => this.#schedule(),
    });
  }

  get workerId(): string {
    return this.#workerId;
  }

  /** Handlers that have not returned. */
  get running(): number {
    return this.#slots.running;
  }

  get waiting(): number {
    return this.#slots.waiting;
  }

  /** Acts without an answer. */
  get unanswered(): number {
    return this.#acts.open + this.#ends.paused;
  }

  get isConnected(): boolean {
    return this.#link !== undefined;
  }

  /** Who takes acts: the server that gives tasks, or one that goes while no other is there. */
  get #listener(): Link | undefined {
    if (this.#link?.isOpen === true) return this.#link;
    for (const link of this.#draining) if (link.isOpen) return link;
    return undefined;
  }

  get #valueBytesMax(): number {
    return this.#terms.bytesMax - MESSAGE_BYTES;
  }

  hello(token: string): Uint8Array {
    const { handlers, concurrency, leaseSeconds, host } = this.#options;
    this.#named = this.#held.orphans(NAMED_MAX);
    const value = {
      token,
      workerId: this.#workerId,
      client: { name: "tidemill-node", version: VERSION, capabilities: [] },
      queues: handlers.map(({ queue }) => queue.name),
      concurrency,
      leaseSeconds,
      host,
      held: this.#named.map((task) => task.token),
    };
    return FromWorker.encode({ message: { $case: "hello", value } }).finish();
  }

  readAck(bytes: Buffer): WorkerHelloAck | undefined {
    const { message } = ToWorker.decode(bytes);
    return message?.$case === "helloAck" ? message.value : undefined;
  }

  onKnown(link: Link, ack: WorkerHelloAck): void {
    this.#link = link;
    this.#workerId = ack.workerId || this.#workerId;
    this.#terms = termsOf(ack);
    this.#credit.reset();
    this.#held.adopted(this.#named, link);
    this.#named = [];
    if (this.#isLeaving) this.#sayLeave(link);
    this.#events.onKnown();
    this.#round();
  }

  onMessage(link: Link, bytes: Buffer): void {
    const tasks = readTasks(bytes);
    if (tasks !== undefined) {
      this.#onTasks(link, tasks);
      return;
    }
    const { message } = ToWorker.decode(bytes);
    switch (message?.$case) {
      case "actsAck":
        this.#acts.onAck(message.value);
        this.#schedule();
        this.#events.onLess();
        break;
      case "renewed":
        for (const lease of message.value.leases) this.#held.renewed(lease);
        break;
      case "leaseLost":
        for (const token of message.value.tokens) this.#onLost(token, undefined);
        break;
      case "cancel":
        this.#onLost(message.value.token, new TaskCancelledError(message.value.reason));
        break;
      case "drain":
        if (this.#link === link) this.#dropLink();
        this.#draining.add(link);
        this.#events.onDrain(link);
        break;
      case "refused":
        this.#onRefused(message.value);
        break;
      case "leaveAck":
        break; // Its tasks are settled before the stream is closed anyway.
      default:
        this.#options.line.logger.warn({ server: link.address }, "a message of no known kind came");
    }
  }

  onRoom(): void {
    this.#round();
  }

  onLost(link: Link): void {
    if (this.#link === link) this.#dropLink();
    this.#draining.delete(link);
    this.#acts.onLost(link);
    this.#held.orphan(link, this.#options.orphanMs ?? this.#terms.graceMs);
    this.#schedule();
    this.#events.onLess();
  }

  onFailed(error: TidemillError): void {
    this.#events.onFailed(error);
  }

  #dropLink(): void {
    this.#link = undefined;
    this.#credit.reset();
  }

  /** What happens in one round of the event loop is said together. */
  #schedule(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    setImmediate(() => {
      this.#isScheduled = false;
      this.#round();
    });
  }

  #round(): void {
    const listener = this.#listener;
    if (listener === undefined) return;
    if (this.#acts.waiting > 0) {
      const { actsMax, bytesMax } = this.#terms;
      const limits = { actsMax, bytesMax: bytesMax - MESSAGE_BYTES };
      this.#acts.send(listener, limits, () => this.#nextRequest());
    }
    if (listener === this.#link && !this.#isLeaving) {
      this.#credit.give(listener, this.#acts.open);
    }
  }

  #nextRequest(): bigint {
    this.#lastRequest += 1n;
    return this.#lastRequest;
  }

  #onTasks(link: Link, tasks: readonly ReadTask[]): void {
    for (const one of tasks) this.#take(link, one);
    this.#slots.startMore();
    this.#schedule();
  }

  #take(link: Link, read: ReadTask): void {
    const { queue, remainingMs } = read;
    const handler = this.#handlers.get(queue);
    const group = this.#slots.groupOf(queue);
    if (handler === undefined || group === undefined) {
      this.#options.line.logger.error({ queue }, "a task came that was not ordered");
      return;
    }
    if (link === this.#link) group.given = Math.max(0, group.given - 1);
    const task = new RemoteTask(read, handler, link);
    const earlier = this.#held.add(task, remainingMs || this.#terms.leaseMs);
    if (earlier !== undefined) this.#lose(earlier, new LeaseLostError(earlier.token));
    if (this.#isLeaving) this.#ends.end(task, ABANDON);
    else this.#slots.add(task);
  }

  #onLost(token: LeaseToken | undefined, why: Error | undefined): void {
    const task = this.#held.find(token);
    if (task !== undefined) this.#lose(task, why ?? new LeaseLostError(task.token));
  }

  /** It is somebody else's, or nobody's: its handler is told, and nothing of it is sent. */
  #lose(task: RemoteTask, error: Error): void {
    if (!task.isHeld) return; // Its end is on its way, and will be refused.
    const { id, queue } = task;
    this.#options.line.logger.warn({ task: id, queue, error: messageOf(error) }, "a task is lost");
    if (task.state === "waiting") this.#slots.drop(task);
    task.state = "over";
    this.#held.delete(task);
    task.stop(error);
    task.handler.settled?.(task, undefined);
    this.#schedule();
  }

  #onDue(task: RemoteTask, due: Due): void {
    switch (due) {
      case "renew":
        this.#handlerActs.renew(task);
        break;
      case "timeout": {
        const error = new TaskTimeoutError(`the handler took longer than ${task.timeoutSeconds} s`);
        task.stop(error);
        this.#ends.end(task, failAct(error.message, false));
        break;
      }
      case "doubt":
        // Not started: given back, if it is still ours. Running: told to stop; the token decides.
        if (task.state === "waiting") {
          this.#slots.drop(task);
          this.#ends.end(task, ABANDON);
        } else {
          task.isDoubtful = true;
          task.stop(new LeaseLostError(task.token));
        }
    }
  }

  #onEnded(task: RemoteTask, act: WireAct, didThrow: boolean): void {
    if (task.state !== "running") return;
    // A handler that gave up because we told it to has not failed.
    this.#ends.end(task, task.isDoubtful && didThrow ? ABANDON : act);
  }

  #onReturned(task: RemoteTask): void {
    this.#slots.release(task);
    this.#schedule();
    this.#events.onLess();
  }

  #add(act: PendingAct): void {
    this.#acts.add(act);
    this.#schedule();
  }

  #onRefused(refused: Refused): void {
    if (this.#credit.onRefused(refused)) return;
    const { requestId, failure } = refused;
    const ack = { failure: failure ?? NO_REASON, state: "", lease: undefined, delaySeconds: 0 };
    if (this.#acts.onRefused(requestId, ack)) return;
    const fields = { code: failure?.code, error: failure?.message };
    this.#options.line.logger.warn(fields, "the server refused a message");
  }

  #sayLeave(link: Link): void {
    link.send(FromWorker.encode({ message: { $case: "leave", value: {} } }).finish());
  }

  /** Takes no more tasks, and gives back what has not started. What runs goes on. */
  leave(): void {
    if (this.#isLeaving) return;
    this.#isLeaving = true;
    if (this.#link !== undefined) this.#sayLeave(this.#link);
    for (const task of this.#slots.drain()) {
      if (task.state === "waiting") this.#ends.end(task, ABANDON);
    }
  }

  /** Tells every handler to stop and gives its task back uncounted: how many there were. */
  abortAll(): number {
    const error = new WorkerStoppingError("the worker stops; the task was given back uncounted");
    const running = [...this.#held.all].filter(({ state }) => state === "running");
    for (const task of running) {
      this.#ends.end(task, ABANDON);
      task.stop(error);
    }
    return running.length;
  }

  /** There will be no answers any more: whoever waits for one is told why. */
  close(why: TidemillError): void {
    this.#isLeaving = true;
    this.#ends.close();
    this.#timers.close();
    this.#held.close();
    for (const task of this.#held.all) if (task.state === "running") task.stop(why);
    const failure = { code: why.code, message: why.message, retryable: false, retryAfterMs: 0 };
    this.#acts.clear({ failure, state: "", lease: undefined, delaySeconds: 0 });
  }
}

const NO_REASON = { code: "TM_INTERNAL", message: "no reason", retryable: false, retryAfterMs: 0 };
