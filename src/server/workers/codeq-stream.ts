import { status } from "@grpc/grpc-js";
import { messageOf, UnauthenticatedError } from "../../base/errors.ts";
import { abandon, nack, type Outcome } from "../../tasks/outcome.ts";
import type { Heartbeat, Nack, Ready, Result } from "../../wire/generated/codeq/worker.ts";
import { type Act, type Caller, may, mayOnSome } from "../auth/caller.ts";
import { type Peer, type PeerHandler, StreamError } from "../grpc/peer.ts";
import { codeqRefusal, streamErrorOf } from "../grpc/status.ts";
import { AbsentTasks } from "./absent-tasks.ts";
import type { Assignment } from "./assignment.ts";
import { type ResultList, type Said, TaskBatches, type Told, writeAcks } from "./codeq-batches.ts";
import {
  event,
  NOT_IN_PROGRESS,
  serverError,
  toAck,
  toFault,
  toNackAck,
  toOutcome,
  toTask,
} from "./codeq-messages.ts";
import type { OrderedQueues } from "./order-book.ts";
import {
  COUNT_MAX,
  LEASE_SECONDS_MAX,
  WorkerSession,
  type WorkerStreamOptions,
} from "./session.ts";
import type { Voice } from "./voice.ts";

const CANCEL_MS = 100;
/** Of a task in a message: its id, its numbers, its dates, and the tags of all fields. */
const FRAME_BYTES = 256;
const NOTHING = (): void => {};

/**
 * CodeQ's worker stream: a hello, then any number of readys, each of which waits until it is served
 * once. What a client says of a task counts only on the stream that the task came by: the claim is
 * the server's, so a late word from another stream is nobody's.
 */
export class CodeqWorkerStream implements PeerHandler<Said>, Voice {
  readonly keepsOrders = false;
  // CodeQ has no words for these: what its client says of a lost task is refused.
  readonly lost = NOTHING;
  readonly renewed = NOTHING;
  readonly unauthenticated = codeqRefusal;
  readonly #peer: Peer<Said, Told>;
  readonly #options: WorkerStreamOptions;
  readonly #session: WorkerSession;
  readonly #absent: AbsentTasks;
  #workerId = "";
  #batches = new TaskBatches("");

  constructor(peer: Peer<Said, Told>, options: WorkerStreamOptions) {
    this.#peer = peer;
    this.#options = options;
    this.#session = new WorkerSession(peer, options, this);
    this.#absent = new AbsentTasks(() => options.desk.tokens);
  }

  get frameBytes(): number {
    return FRAME_BYTES + 3 * this.#workerId.length;
  }

  admit(bytes: number, entries: number): void | Promise<void> {
    return this.#session.admit(bytes, entries);
  }

  onMessage(said: Said): void | Promise<void> {
    return this.#session.handle(() => this.#take(said));
  }

  #take(said: Said): void | Promise<void> {
    if (this.#session.caller === undefined) {
      if (said?.$case === "hello") return this.#hello(said.value.token, said.value.workerId);
      throw new StreamError(status.FAILED_PRECONDITION, "first event must be Hello");
    }
    switch (said?.$case) {
      case "hello":
        this.#refuse("FailedPrecondition", "already-authenticated");
        return;
      case "ready":
        this.#ready(said.value);
        return;
      case "result":
        if (this.#may("task.finish")) this.#result(said.value);
        return;
      case "results":
        if (this.#may("task.finish")) this.#results(said.value);
        return;
      case "nack":
        if (this.#may("task.nack")) this.#nack(said.value);
        return;
      case "heartbeat":
        if (this.#may("task.renew")) this.#heartbeat(said.value);
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

  tasks(assignments: readonly Assignment[]): void {
    const [first] = assignments;
    if (first === undefined || assignments.length > 1) {
      this.#peer.send(() => this.#batches.write(assignments));
      return;
    }
    const task = toTask(first.task, this.#workerId);
    this.#peer.send(event({ $case: "task", value: { task } }));
  }

  async #hello(token: string, workerId: string): Promise<void> {
    let caller: Caller;
    try {
      caller = await this.#session.enter(token);
    } catch (error) {
      throw error instanceof UnauthenticatedError ? codeqRefusal(error) : streamErrorOf(error);
    }
    this.#workerId = workerId.trim() === "" ? caller.subject : workerId.trim();
    this.#batches = new TaskBatches(this.#workerId);
    this.#peer.welcome(caller.tenant);
    const { tenant } = caller;
    const value = { workerId: this.#workerId, tenantId: tenant };
    this.#peer.send(event({ $case: "helloAck", value }));
    const facts = { worker: this.#workerId, tenant };
    this.#options.logger.debug(facts, "a worker's stream began");
  }

  #ready({ commands, count, leaseSeconds }: Ready): void {
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
      // An error event would not do: its client logs it, and waits for tasks all the same.
      throw new StreamError(status.RESOURCE_EXHAUSTED, whyFull);
    }
    const { desk } = this.#options;
    const queues = queuesOf(caller, commands);
    const seconds = Math.min(leaseSeconds, LEASE_SECONDS_MAX);
    if (queues === "all") {
      this.#session.order(queues, most, seconds);
      this.#lookForQueues(caller.tenant);
    } else if (desk.handles(queues)) this.#session.order(queues, most, seconds);
    else void this.#session.orderWhenHandled(queues, most, seconds);
  }

  /** An order of all queues waits at the desk, which looks for new ones every second. */
  #lookForQueues(tenant: string): void {
    const { desk, logger } = this.#options;
    desk.handle("all", tenant).catch((error: unknown) => {
      logger.warn({ error: messageOf(error), tenant }, "could not look for new queues");
    });
  }

  #result({ taskId, status: said, resultJson: bytes, error }: Result): void {
    const answered = this.#session.answerLater();
    const outcome = toOutcome({ status: said, bytes, from: 0, to: bytes.length, error });
    this.#settle(taskId, outcome, (answer) => {
      this.#peer.send(event({ $case: "resultAck", value: toAck(taskId, answer) }));
      answered();
    });
  }

  /** Answered when the last of them is. One function hears of all: they come in thousands. */
  #results({ ids, outcomes }: ResultList): void {
    if (ids.length === 0) return;
    const answers = ids.map(() => "");
    let open = ids.length;
    const answered = this.#session.answerLater();
    const onAnswer = (answer: string, place: number): void => {
      answers[place] = answer;
      open -= 1;
      if (open > 0) return;
      this.#peer.send(() => writeAcks(ids, answers));
      answered();
    };
    for (let place = 0; place < ids.length; place += 1) {
      this.#settle(ids[place] ?? "", outcomes[place] ?? "", onAnswer, place);
    }
  }

  /**
   * A task leaves the stream when its end was answered for: until then it can be lost.
   *
   * @param outcome what was said, or why that cannot be heard
   */
  #settle(
    taskId: string,
    outcome: Outcome | string,
    onAnswer: (answer: string, place: number) => void,
    place = 0,
  ): void {
    const held = this.#session.find(taskId);
    if (typeof outcome === "string") onAnswer(outcome, place);
    else if (held === undefined) this.#absent.ask(this.#session.tenant, taskId, onAnswer, place);
    else if (!held.isRunning) onAnswer(NOT_IN_PROGRESS, place);
    else held.end(outcome, onAnswer, place);
  }

  #nack({ taskId, delaySeconds, reason }: Nack): void {
    const held = this.#session.find(taskId);
    const delay = Math.max(0, delaySeconds);
    const outcome = nack(delay, reason.trim() === "" ? "nack without a reason" : reason);
    const answered = this.#session.answerLater();
    this.#settle(taskId, outcome, (answer) => {
      const ack = toNackAck(taskId, held?.task, answer);
      this.#peer.send(event({ $case: "nackAck", value: ack }));
      answered();
    });
  }

  /** The server renews by itself what a live stream has: only more than that is to be written. */
  #heartbeat({ taskId, extendSeconds }: Heartbeat): void {
    const { acts, leaseSeconds } = this.#options;
    const held = this.#session.find(taskId);
    const answered = this.#session.answerLater();
    const tell = (answer: string): void => {
      this.#peer.send(event({ $case: "heartbeatAck", value: toAck(taskId, answer) }));
      answered();
    };
    if (held === undefined) this.#absent.ask(this.#session.tenant, taskId, tell);
    else if (!held.isRunning) tell(NOT_IN_PROGRESS);
    else if (extendSeconds <= leaseSeconds) tell("accepted");
    else {
      const seconds = Math.min(extendSeconds, LEASE_SECONDS_MAX);
      acts.extend(held, seconds, (done) =>
        tell(done instanceof Error ? toFault(done) : "accepted"),
      );
    }
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
