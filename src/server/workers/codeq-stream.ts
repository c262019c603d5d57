import { status } from "@grpc/grpc-js";
import type { Clock } from "../../base/clock.ts";
import { messageOf, UnauthenticatedError } from "../../base/errors.ts";
import type { Logger } from "../../base/log.ts";
import { abandon, failed, nack, type Outcome } from "../../tasks/outcome.ts";
import {
  type Nack,
  type Ready,
  type Result,
  type ServerEvent,
  Task,
  type WorkerEvent,
} from "../../wire/generated/codeq/worker.ts";
import { type Act, type Caller, may, mayOnSome } from "../auth/caller.ts";
import type { Admission } from "../grpc/admission.ts";
import { type Peer, type PeerHandler, StreamError } from "../grpc/peer.ts";
import { streamErrorOf } from "../grpc/status.ts";
import type { Assignment } from "./assignment.ts";
import {
  event,
  NOT_IN_PROGRESS,
  NOT_OWNER,
  serverError,
  toAck,
  toNackAck,
  toOutcome,
  toTask,
} from "./codeq-messages.ts";
import type { Desk, RemoteWorker } from "./desk.ts";
import type { Order, OrderedQueues } from "./order-book.ts";

export interface WorkerStreamOptions {
  readonly admission: Admission;
  readonly desk: Desk;
  readonly clock: Clock;
  readonly logger: Logger;
  /** How long the tasks of a stream that broke are still its own. */
  readonly graceMs: number;
}

/** Orders of one stream that wait at once, and tasks in one. */
const ORDERS_MAX = 1_000;
const COUNT_MAX = 1_000;
/** Tasks of one stream, ordered or held. */
const TASKS_MAX = 10_000;
/** While its client has not read so much, no more is sent. */
const UNREAD_BYTES_MAX = 1024 * 1024;
const CONGESTED_MS = 50;
const CANCEL_MS = 100;
/** Of a batch of tasks; a message has room for more. */
const BATCH_BYTES_MAX = 3 * 1024 * 1024;

/**
 * CodeQ's worker stream: a hello, then any number of readys, each of which waits until it is served
 * once. What a client says of a task counts only on the stream that the task came by: the claim is
 * the server's, so a late word from another stream is nobody's.
 *
 * A stream that breaks keeps its tasks for a short grace, then each counts as lost with its worker.
 * One that ends because the server goes gives back what it cannot finish.
 */
export class CodeqWorkerStream implements PeerHandler<WorkerEvent>, RemoteWorker {
  readonly #peer: Peer<WorkerEvent, ServerEvent>;
  readonly #options: WorkerStreamOptions;
  readonly #over = new AbortController();
  readonly #orders = new Set<Order<Assignment>>();
  readonly #held = new Map<string, Assignment>();
  #caller: Caller | undefined;
  #workerId = "";
  /** Tasks for which orders wait. */
  #ordered = 0;
  #isDraining = false;

  constructor(peer: Peer<WorkerEvent, ServerEvent>, options: WorkerStreamOptions) {
    this.#peer = peer;
    this.#options = options;
  }

  get tenant(): string {
    return this.#caller?.tenant ?? "";
  }

  admit(): void {
    // What is under way is bounded by orders, and each of them by the tasks it may bring.
  }

  onMessage({ event: said }: WorkerEvent): void | Promise<void> {
    if (this.#caller === undefined) {
      if (said?.$case === "hello") return this.#hello(said.value.token, said.value.workerId);
      throw new StreamError(status.FAILED_PRECONDITION, "first event must be Hello");
    }
    switch (said?.$case) {
      case "hello":
        this.#refuse("FailedPrecondition", "already-authenticated");
        return;
      case "ready":
        return this.#ready(said.value);
      case "result":
        if (this.#may("task.finish")) this.#result(said.value);
        return;
      case "resultBatch":
        if (this.#may("task.finish")) this.#results(said.value.results);
        return;
      case "nack":
        if (this.#may("task.nack")) this.#nack(said.value);
        return;
      case "heartbeat":
        if (this.#may("task.renew")) this.#heartbeat(said.value.taskId);
        return;
      case "abandon":
        if (this.#may("task.abandon")) this.#abandon(said.value.taskId);
        return;
      default:
        this.#refuse("InvalidArgument", "unknown-event");
    }
  }

  /** A stream that is cancelled seems to be closed by its client, and is over a moment later. */
  onHalfClose(): void {
    this.#options.clock.after(CANCEL_MS, () => this.#closed());
  }

  /** It can say no more: what it has not said yet goes back, and what it has is answered. */
  #closed(): void {
    if (!this.#peer.isOpen) return;
    this.onDrain();
    for (const one of this.#held.values()) {
      if (one.isRunning) one.end(abandon(), () => this.#leave(one));
    }
  }

  /** No more tasks; the stream ends when what it has was said, or by force when the time is up. */
  onDrain(): void {
    this.#isDraining = true;
    this.#withdraw();
    this.#endWhenDrained();
  }

  onOver(): void {
    this.#over.abort();
    this.#withdraw();
    const { graceMs, desk } = this.#options;
    const left = [...this.#held.values()].filter((one) => one.isRunning);
    this.#held.clear();
    if (left.length === 0) return;
    // That the server goes says nothing about the tasks.
    if (this.#isDraining) for (const one of left) one.end(abandon(), () => {});
    else desk.loseAfter(graceMs, left);
  }

  onTasks(order: Order<Assignment>): void {
    this.#orders.delete(order);
    this.#ordered -= order.count;
    if (!this.#peer.isOpen || this.#peer.unreadBytes > UNREAD_BYTES_MAX) {
      for (const one of order.tasks) one.end(abandon(), () => {});
      this.#orderAgain(order);
      return;
    }
    const tasks: Task[] = [];
    let bytes = 0;
    for (const one of order.tasks) {
      if (!one.isRunning) continue; // It was cancelled on its way here.
      const task = toTask(one, this.#workerId);
      const size = Task.encode(task).finish().length;
      if (size > BATCH_BYTES_MAX) {
        one.end(failed("the task does not fit into a message", { retry: false }), () => {});
      } else if (bytes + size > BATCH_BYTES_MAX) {
        one.end(abandon(), () => {});
      } else {
        bytes += size;
        tasks.push(task);
        this.#held.set(one.task.id, one);
      }
    }
    const [first] = tasks;
    if (first === undefined) this.#orderAgain(order);
    else if (tasks.length === 1) this.#peer.send(event({ $case: "task", value: { task: first } }));
    else this.#peer.send(event({ $case: "taskBatch", value: { tasks } }));
  }

  /** Nothing could be sent, and its client still waits: as soon as it reads, it is served. */
  #orderAgain({ queues, count }: Order<Assignment>): void {
    this.#options.clock.after(CONGESTED_MS, () => this.#order(queues, count));
  }

  #order(queues: OrderedQueues, count: number): void {
    if (this.#isDraining || !this.#peer.isOpen) return;
    this.#ordered += count;
    this.#orders.add(this.#options.desk.order(this, queues, count));
  }

  /** CodeQ has no word for it: what its client says of it is refused. */
  onLost(assignment: Assignment): void {
    this.#leave(assignment);
  }

  /** The same task may have come again meanwhile: only this claim of it is over. */
  #leave(assignment: Assignment): void {
    const { id } = assignment.task;
    if (this.#held.get(id) === assignment) this.#held.delete(id);
    this.#endWhenDrained();
  }

  async #hello(token: string, workerId: string): Promise<void> {
    const { admission, logger } = this.#options;
    try {
      const admitted = await admission.admit(token, this.#peer.address);
      const { caller } = admitted;
      this.#caller = caller;
      this.#workerId = workerId.trim() === "" ? caller.subject : workerId.trim();
      void admitted.watch(this.#over.signal).then((refusal) => {
        if (refusal !== undefined) this.#peer.end(status.UNAUTHENTICATED, refusal.message);
      });
    } catch (error) {
      if (!(error instanceof UnauthenticatedError)) throw streamErrorOf(error);
      throw new StreamError(status.UNAUTHENTICATED, `auth failed: ${error.message}`);
    }
    this.#peer.welcome();
    const value = { workerId: this.#workerId, tenantId: this.tenant };
    this.#peer.send(event({ $case: "helloAck", value }));
    logger.debug({ worker: this.#workerId, tenant: this.tenant }, "a worker's stream began");
  }

  async #ready({ commands, count }: Ready): Promise<void> {
    const caller = this.#caller;
    if (caller === undefined) return;
    if (!mayOnSome(caller, "task.claim")) {
      this.#refuse("PermissionDenied", "missing scope");
      return;
    }
    if (!commands.every((queue) => may(caller, "task.claim", queue))) {
      this.#refuse("PermissionDenied", "event type not allowed");
      return;
    }
    const most = Math.min(Math.max(1, count), COUNT_MAX);
    const isFull = this.#orders.size >= ORDERS_MAX;
    if (isFull || this.#ordered + this.#held.size + most > TASKS_MAX) {
      const limits = `${ORDERS_MAX} readys and ${TASKS_MAX} tasks`;
      this.#refuse("ResourceExhausted", `a stream may have at most ${limits} at once`);
      return;
    }
    const queues = queuesOf(caller, commands);
    try {
      await this.#options.desk.handle(queues, this.tenant);
    } catch (error) {
      const fields = { error: messageOf(error), queues: commands };
      this.#options.logger.warn(fields, "cannot handle the queues of a worker");
      this.#refuse("Unavailable", "the queues cannot be handled now");
      return;
    }
    this.#order(queues, most);
  }

  #result(result: Result): void {
    this.#end(result.taskId, toOutcome(result), (ack) =>
      this.#peer.send(event({ $case: "resultAck", value: ack })),
    );
  }

  #results(results: readonly Result[]): void {
    if (results.length === 0) return;
    const acks: ReturnType<typeof toAck>[] = [];
    let open = results.length;
    for (const [place, result] of results.entries()) {
      this.#end(result.taskId, toOutcome(result), (ack) => {
        acks[place] = ack;
        open -= 1;
        if (open === 0) this.#peer.send(event({ $case: "resultAckBatch", value: { acks } }));
      });
    }
  }

  #end(
    taskId: string,
    outcome: Outcome | string,
    onAck: (ack: ReturnType<typeof toAck>) => void,
  ): void {
    if (typeof outcome === "string") {
      onAck(toAck(taskId, outcome));
      return;
    }
    this.#settle(taskId, outcome, (answer) => onAck(toAck(taskId, answer)));
  }

  /** A task leaves the stream when its end was answered for: until then it can be lost. */
  #settle(taskId: string, outcome: Outcome, onAnswer: (answer: string) => void): void {
    const held = this.#held.get(taskId);
    if (held === undefined) {
      onAnswer(NOT_OWNER);
      return;
    }
    if (!held.isRunning) {
      onAnswer(NOT_IN_PROGRESS);
      return;
    }
    held.end(outcome, (answer) => {
      onAnswer(answer);
      this.#leave(held);
    });
  }

  #nack({ taskId, delaySeconds, reason }: Nack): void {
    const held = this.#held.get(taskId);
    const delay = Math.max(0, delaySeconds);
    const outcome = nack(delay, reason.trim() === "" ? "nack without a reason" : reason);
    this.#settle(taskId, outcome, (answer) => {
      const ack =
        held === undefined || (answer !== "accepted" && answer !== "refused")
          ? { ...toAck(taskId, answer), appliedDelaySeconds: 0, dlq: false }
          : toNackAck(held, delay, answer);
      this.#peer.send(event({ $case: "nackAck", value: ack }));
    });
  }

  /** The server renews by itself what a live stream has: that it still has it is all to be said. */
  #heartbeat(taskId: string): void {
    const held = this.#held.get(taskId);
    let answer = held === undefined ? NOT_OWNER : "accepted";
    if (held !== undefined && !held.isRunning) answer = NOT_IN_PROGRESS;
    this.#peer.send(event({ $case: "heartbeatAck", value: toAck(taskId, answer) }));
  }

  #abandon(taskId: string): void {
    this.#settle(taskId, abandon(), (answer) => {
      this.#peer.send(event({ $case: "abandonAck", value: toAck(taskId, answer) }));
    });
  }

  #may(act: Act): boolean {
    if (this.#caller !== undefined && mayOnSome(this.#caller, act)) return true;
    this.#refuse("PermissionDenied", "missing scope");
    return false;
  }

  #refuse(...[code, message]: Parameters<typeof serverError>): void {
    this.#peer.send(serverError(code, message));
  }

  #withdraw(): void {
    for (const order of this.#orders) this.#options.desk.withdraw(order);
    this.#orders.clear();
    this.#ordered = 0;
  }

  #endWhenDrained(): void {
    if (this.#isDraining && this.#held.size === 0) this.#peer.end(status.OK);
  }
}

function queuesOf(caller: Caller, commands: readonly string[]): OrderedQueues {
  if (commands.length > 0) return [...new Set(commands)];
  return caller.queues === "all" ? "all" : [...caller.queues];
}
