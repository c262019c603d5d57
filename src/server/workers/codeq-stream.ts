import { status } from "@grpc/grpc-js";
import { messageOf, UnauthenticatedError } from "../../base/errors.ts";
import { abandon, nack, type Outcome } from "../../tasks/outcome.ts";
import type {
  Nack,
  Ready,
  Result,
  ServerEvent,
  Task,
  WorkerEvent,
} from "../../wire/generated/codeq/worker.ts";
import { type Act, type Caller, may, mayOnSome } from "../auth/caller.ts";
import { type Peer, type PeerHandler, StreamError } from "../grpc/peer.ts";
import { streamErrorOf } from "../grpc/status.ts";
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
import type { OrderedQueues } from "./order-book.ts";
import { COUNT_MAX, LEASE_SECONDS_MAX, type SessionOptions, WorkerSession } from "./session.ts";

const CANCEL_MS = 100;
const NOTHING = (): void => {};

/**
 * CodeQ's worker stream: a hello, then any number of readys, each of which waits until it is served
 * once. What a client says of a task counts only on the stream that the task came by: the claim is
 * the server's, so a late word from another stream is nobody's.
 */
export class CodeqWorkerStream implements PeerHandler<WorkerEvent> {
  readonly #peer: Peer<WorkerEvent, ServerEvent>;
  readonly #options: SessionOptions;
  readonly #session: WorkerSession<Task>;
  #workerId = "";

  constructor(peer: Peer<WorkerEvent, ServerEvent>, options: SessionOptions) {
    this.#peer = peer;
    this.#options = options;
    this.#session = new WorkerSession(peer, options, {
      keepsOrders: false,
      toTask: (assignment) => toTask(assignment, this.#workerId),
      tasks: (tasks) => this.#sendTasks(tasks),
      // CodeQ has no words for these: what its client says of a lost task is refused.
      lost: NOTHING,
      renewed: NOTHING,
    });
  }

  admit(bytes: number, entries: number): void | Promise<void> {
    return this.#session.admit(bytes, entries);
  }

  onMessage(message: WorkerEvent): void | Promise<void> {
    return this.#session.handle(this.#take(message));
  }

  #take({ event: said }: WorkerEvent): void | Promise<void> {
    if (this.#session.caller === undefined) {
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
    this.#options.clock.after(CANCEL_MS, () => {
      if (this.#peer.isOpen) this.#session.giveBack();
    });
  }

  onDrain(): void {
    this.#session.drain();
  }

  onOver(): void {
    this.#session.over();
  }

  #sendTasks(tasks: Task[]): void {
    const [task] = tasks;
    if (tasks.length === 1) this.#peer.send(event({ $case: "task", value: { task } }));
    else this.#peer.send(event({ $case: "taskBatch", value: { tasks } }));
  }

  async #hello(token: string, workerId: string): Promise<void> {
    let caller: Caller;
    try {
      caller = await this.#session.enter(token);
    } catch (error) {
      if (!(error instanceof UnauthenticatedError)) throw streamErrorOf(error);
      throw new StreamError(status.UNAUTHENTICATED, `auth failed: ${error.message}`);
    }
    this.#workerId = workerId.trim() === "" ? caller.subject : workerId.trim();
    this.#peer.welcome();
    const { tenant } = caller;
    const value = { workerId: this.#workerId, tenantId: tenant };
    this.#peer.send(event({ $case: "helloAck", value }));
    const facts = { worker: this.#workerId, tenant };
    this.#options.logger.debug(facts, "a worker's stream began");
  }

  async #ready({ commands, count, leaseSeconds }: Ready): Promise<void> {
    const { caller } = this.#session;
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
    const whyFull = this.#session.whyFull(most);
    if (whyFull !== undefined) {
      this.#refuse("ResourceExhausted", whyFull);
      return;
    }
    const queues = queuesOf(caller, commands);
    try {
      await this.#options.desk.handle(queues, caller.tenant);
    } catch (error) {
      const fields = { error: messageOf(error), queues: commands };
      this.#options.logger.warn(fields, "cannot handle the queues of a worker");
      this.#refuse("Unavailable", "the queues cannot be handled now");
      return;
    }
    this.#session.order(queues, most, Math.min(leaseSeconds, LEASE_SECONDS_MAX));
  }

  #result(result: Result): void {
    const answered = this.#session.answerLater();
    this.#end(result.taskId, toOutcome(result), (ack) => {
      this.#peer.send(event({ $case: "resultAck", value: ack }));
      answered();
    });
  }

  #results(results: readonly Result[]): void {
    if (results.length === 0) return;
    const acks: ReturnType<typeof toAck>[] = [];
    let open = results.length;
    const answered = this.#session.answerLater();
    for (const [place, result] of results.entries()) {
      this.#end(result.taskId, toOutcome(result), (ack) => {
        acks[place] = ack;
        open -= 1;
        if (open > 0) return;
        this.#peer.send(event({ $case: "resultAckBatch", value: { acks } }));
        answered();
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
    const held = this.#session.held.get(taskId);
    if (held === undefined) onAnswer(NOT_OWNER);
    else if (!held.isRunning) onAnswer(NOT_IN_PROGRESS);
    else held.end(outcome, onAnswer);
  }

  #nack({ taskId, delaySeconds, reason }: Nack): void {
    const held = this.#session.held.get(taskId);
    const delay = Math.max(0, delaySeconds);
    const outcome = nack(delay, reason.trim() === "" ? "nack without a reason" : reason);
    const answered = this.#session.answerLater();
    this.#settle(taskId, outcome, (answer) => {
      const isHeard = held !== undefined && answer !== NOT_IN_PROGRESS;
      const ack = isHeard
        ? toNackAck(held, delay, answer)
        : { ...toAck(taskId, answer), appliedDelaySeconds: 0, dlq: false };
      this.#peer.send(event({ $case: "nackAck", value: ack }));
      answered();
    });
  }

  /** The server renews by itself what a live stream has: that it still has it is all to be said. */
  #heartbeat(taskId: string): void {
    const held = this.#session.held.get(taskId);
    let answer = held === undefined ? NOT_OWNER : "accepted";
    if (held !== undefined && !held.isRunning) answer = NOT_IN_PROGRESS;
    this.#peer.send(event({ $case: "heartbeatAck", value: toAck(taskId, answer) }));
  }

  #abandon(taskId: string): void {
    const answered = this.#session.answerLater();
    this.#settle(taskId, abandon(), (answer) => {
      this.#peer.send(event({ $case: "abandonAck", value: toAck(taskId, answer) }));
      answered();
    });
  }

  #may(act: Act): boolean {
    const { caller } = this.#session;
    if (caller !== undefined && mayOnSome(caller, act)) return true;
    this.#refuse("PermissionDenied", "missing scope");
    return false;
  }

  #refuse(...[code, message]: Parameters<typeof serverError>): void {
    this.#peer.send(serverError(code, message));
  }
}

function queuesOf(caller: Caller, commands: readonly string[]): OrderedQueues {
  if (commands.length > 0) return [...new Set(commands)];
  return caller.queues === "all" ? "all" : [...caller.queues];
}
