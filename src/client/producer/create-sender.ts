import { exponentialMs, withJitter } from "../../base/backoff.ts";
import type { Clock } from "../../base/clock.ts";
import { CommitUnknownError, type TidemillError } from "../../base/errors.ts";
import type { Logger } from "../../base/log.ts";
import { Timers } from "../../base/timers.ts";
import { VERSION } from "../../base/version.ts";
import {
  type CreateAck,
  type CreateResult,
  FromProducer,
  type ProducerHelloAck,
  ToProducer,
} from "../../wire/generated/tidemill/v1/producer.ts";
import type { Refused } from "../../wire/generated/tidemill/v1/stream.ts";
import type { Speaker } from "../line.ts";
import type { Link } from "../link.ts";
import { errorOf } from "../remote-error.ts";
import { unanswered } from "./calls.ts";
import { type PendingTask, type SentCreate, writeCreate } from "./pending.ts";
import { PIPELINE, shouldSend } from "./sending.ts";
import type { Window } from "./window.ts";

export interface CreateSenderOptions {
  /** Of automatic idempotency keys; "" for none. */
  readonly producerId: string;
  readonly batchTasks: number;
  readonly clock: Clock;
  readonly random: () => number;
  readonly logger: Logger;
  readonly onKnown: () => void;
  readonly onFailed: (error: TidemillError) => void;
  /** The server of the link goes: find another. */
  readonly onDrain: (link: Link) => void;
  /** A task of the call was answered, or given up. */
  readonly onAnswered: (task: PendingTask) => void;
}

/** Tasks that go together, or one that may go with others. */
type Queued = PendingTask | readonly PendingTask[];

interface ServerLimits {
  readonly createsMax: number;
  readonly tasksMax: number;
  readonly bytesMax: number;
}

/** Before a server has said what it takes. */
export const FIRST_LIMITS: ServerLimits = {
  createsMax: 64,
  tasksMax: 1_000,
  bytesMax: 4 * 1024 * 1024,
};
/** A create beside its tasks. */
const CREATE_BYTES = 64;
/** Creates of many small tasks stay below it, so that none keeps others waiting. */
const BATCH_BYTES = 1024 * 1024;
const REFUSED_MS = 100;
const REFUSED_MS_MAX = 5_000;

const isTask = (queued: Queued): queued is PendingTask => "message" in queued;

/**
 * Sends tasks in creates and hears their answers, over one link after another. A task is queued,
 * then a part of a create that was sent, then answered; docs/adr/0012-client.md says what happens
 * to it when the stream is lost at each of these.
 */
export class CreateSender implements Speaker<ProducerHelloAck> {
  readonly #window: Window;
  readonly #options: CreateSenderOptions;
  readonly #timers: Timers;
  readonly #sent = new Map<bigint, SentCreate>();
  #queue: Queued[] = [];
  #queuedTasks = 0;
  #onWire = 0;
  #lastSeq = 0n;
  #limits: ServerLimits = FIRST_LIMITS;
  #link: Link | undefined;
  #isScheduled = false;

  constructor(window: Window, options: CreateSenderOptions) {
    this.#window = window;
    this.#options = options;
    this.#timers = new Timers(options.clock);
  }

  /** Creates that were sent and not answered. */
  get unanswered(): number {
    return this.#sent.size;
  }

  get queued(): number {
    return this.#queuedTasks;
  }

  get limits(): ServerLimits {
    return this.#limits;
  }

  /** The room for it has been taken. */
  add(queued: Queued): void {
    this.#queue.push(queued);
    this.#queuedTasks += isTask(queued) ? 1 : queued.length;
    this.#schedule();
  }

  /** Forgets what nobody waits for any more and was not sent, or would have to be sent again. */
  sweep(): void {
    const isDead = ({ call }: PendingTask): boolean => call.isOver;
    const dead = this.#queue.filter((one) => (isTask(one) ? isDead(one) : one.every(isDead)));
    if (dead.length > 0) {
      const gone = new Set(dead);
      this.#queue = this.#queue.filter((one) => !gone.has(one));
      for (const task of dead.flat()) {
        this.#queuedTasks -= 1;
        this.#giveUp(task);
      }
    }
    for (const create of this.#sent.values()) {
      if (create.link === undefined && create.tasks.every(isDead)) this.#forget(create);
    }
  }

  /** Nothing is sent any more. */
  close(): void {
    this.#link = undefined;
    this.#timers.close();
  }

  hello(token: string): Uint8Array {
    const client = { name: "tidemill-node", version: VERSION, capabilities: [] };
    const value = { token, producerId: this.#options.producerId, client };
    return FromProducer.encode({ message: { $case: "hello", value } }).finish();
  }

  readAck(bytes: Buffer): ProducerHelloAck | undefined {
    const { message } = ToProducer.decode(bytes);
    return message?.$case === "helloAck" ? message.value : undefined;
  }

  onKnown(link: Link, ack: ProducerHelloAck): void {
    this.#link = link;
    this.#limits = {
      createsMax: ack.createsMax || FIRST_LIMITS.createsMax,
      tasksMax: ack.tasksMax || FIRST_LIMITS.tasksMax,
      bytesMax: ack.messageBytesMax || FIRST_LIMITS.bytesMax,
    };
    this.#options.onKnown();
    this.#pump();
  }

  onMessage(link: Link, bytes: Buffer): void {
    const { message } = ToProducer.decode(bytes);
    switch (message?.$case) {
      case "createAck":
        this.#onAck(message.value);
        break;
      case "refused":
        this.#onRefused(message.value);
        break;
      case "drain":
        if (this.#link === link) this.#link = undefined;
        this.#options.onDrain(link);
        break;
      default:
        this.#options.logger.warn({ server: link.address }, "a message of no known kind came");
    }
  }

  onRoom(link: Link): void {
    if (link === this.#link) this.#pump();
  }

  /** What was not answered is stored or not: it is sent again where keys make that harmless. */
  onLost(link: Link): void {
    if (this.#link === link) this.#link = undefined;
    for (const create of this.#sent.values()) {
      if (create.link !== link) continue;
      this.#takeOffWire(create);
      if (this.#mayRepeat(create)) continue;
      const error = new CommitUnknownError(
        "the stream ended before the server answered: the task is stored, or it is not",
      );
      this.#settle(create, () => error);
    }
    this.sweep();
    this.#schedule();
  }

  onFailed(error: TidemillError): void {
    this.#options.onFailed(error);
  }

  #mayRepeat({ tasks }: SentCreate): boolean {
    if (this.#options.producerId !== "") return true;
    return tasks.every(({ message }) => message.idempotencyKey !== "");
  }

  /** What is enqueued in one round of the event loop goes out together. */
  #schedule(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    setImmediate(() => {
      this.#isScheduled = false;
      this.#pump();
    });
  }

  #pump(): void {
    const link = this.#link;
    if (link === undefined || !link.isOpen) return;
    if (this.#onWire < this.#sent.size) this.#sendAgain(link);
    const { batchTasks } = this.#options;
    const tasksMax = Math.min(batchTasks, this.#limits.tasksMax);
    while (
      shouldSend({
        queued: this.#queuedTasks,
        unanswered: this.#onWire,
        unansweredMax: this.#limits.createsMax,
        batchTasks: tasksMax,
        isFull: link.isFull,
      })
    ) {
      const create = this.#nextCreate(tasksMax);
      if (create !== undefined) this.#send(link, create);
    }
  }

  /** In their order, and before anything newer. */
  #sendAgain(link: Link): void {
    const nowMs = this.#options.clock.now();
    for (const create of this.#sent.values()) {
      if (create.link !== undefined) continue;
      if (link.isFull || this.#onWire >= this.#limits.createsMax) return;
      if (create.notBeforeMs <= nowMs) this.#send(link, create);
    }
  }

  #nextCreate(tasksMax: number): SentCreate | undefined {
    const bytesMax = Math.min(BATCH_BYTES, this.#limits.bytesMax - CREATE_BYTES);
    const tasks: PendingTask[] = [];
    let weight = 0;
    let isAtomic = false;
    let taken = 0;
    for (const one of this.#queue) {
      if (tasks.length >= tasksMax) break;
      if (!isTask(one)) {
        if (tasks.length > 0) break;
        taken += 1;
        tasks.push(...one);
        isAtomic = true;
        break;
      }
      if (tasks.length > 0 && weight + one.weight > bytesMax) break;
      taken += 1;
      weight += one.weight;
      tasks.push(one);
    }
    this.#queue.splice(0, taken);
    this.#queuedTasks -= tasks.length;
    // A call that is over is not stored behind its caller's back, as far as it can be helped.
    const isWanted = ({ call }: PendingTask): boolean => !call.isOver;
    const wanted = isAtomic && tasks.some(isWanted) ? tasks : tasks.filter(isWanted);
    if (wanted.length < tasks.length) {
      for (const task of tasks) if (!isWanted(task)) this.#giveUp(task);
    }
    if (wanted.length === 0) return undefined;
    const seq = (this.#lastSeq += 1n);
    const bytes = writeCreate(seq, wanted, isAtomic);
    return { seq, bytes, tasks: wanted, link: undefined, refusals: 0, notBeforeMs: 0 };
  }

  #send(link: Link, create: SentCreate): void {
    this.#sent.set(create.seq, create);
    create.link = link;
    this.#onWire += 1;
    link.send(create.bytes);
  }

  #takeOffWire(create: SentCreate): void {
    if (create.link === undefined) return;
    create.link = undefined;
    this.#onWire -= 1;
  }

  #onAck({ seq, results }: CreateAck): void {
    const create = this.#sent.get(seq);
    if (create === undefined) return; // Two streams answered, and the other was first.
    this.#settle(create, (place) => answerOf(results[place]));
    this.#goOn();
  }

  #onRefused({ requestId, failure }: Refused): void {
    const { clock, logger, random } = this.#options;
    const create = this.#sent.get(requestId);
    const error = errorOf(failure ?? NO_FAILURE);
    if (create === undefined) {
      logger.warn({ code: error.code, error: error.message }, "the server refused a message");
      return;
    }
    if (!error.retryable) {
      this.#settle(create, () => error);
      this.#goOn();
      return;
    }
    this.#takeOffWire(create);
    create.refusals += 1;
    const pauseMs = exponentialMs(create.refusals, REFUSED_MS, REFUSED_MS_MAX);
    const waitMs = Math.max(failure?.retryAfterMs ?? 0, withJitter(pauseMs, random));
    create.notBeforeMs = clock.now() + waitMs;
    logger.debug({ code: error.code, waitMs: Math.round(waitMs) }, "a create is sent again later");
    this.#timers.after(waitMs, () => this.#pump());
  }

  /** With few creates under way nothing is gathered any more: what waits goes out at once. */
  #goOn(): void {
    if (this.#queuedTasks > 0 || this.#onWire < this.#sent.size) {
      if (this.#onWire < PIPELINE) this.#schedule();
      else this.#pump();
    }
  }

  #settle(create: SentCreate, answer: (place: number) => string | TidemillError): void {
    this.#takeOffWire(create);
    this.#sent.delete(create.seq);
    for (const [place, task] of create.tasks.entries()) {
      this.#window.release(1, task.weight);
      if (!task.call.isOver) task.call.answer(task.place, answer(place));
      this.#options.onAnswered(task);
    }
  }

  #forget(create: SentCreate): void {
    this.#sent.delete(create.seq);
    for (const task of create.tasks) this.#giveUp(task);
  }

  #giveUp(task: PendingTask): void {
    this.#window.release(1, task.weight);
    this.#options.onAnswered(task);
  }
}

const NO_FAILURE = { code: "TM_INTERNAL", message: "no reason", retryable: false, retryAfterMs: 0 };

function answerOf(result: CreateResult | undefined): string | TidemillError {
  switch (result?.result?.$case) {
    case "taskId":
      return result.result.value;
    case "failure":
      return errorOf(result.result.value);
    default:
      return unanswered();
  }
}
