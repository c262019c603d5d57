import { ConfigError, InvalidInputError, LimitError, TimeoutError } from "../../base/errors.ts";
import { refuseUnknown } from "../../base/options.ts";
import { uuidv4 } from "../../base/uuid.ts";
import { Queue, type QueueDefinition } from "../../tasks/queue.ts";
import type { NewTask } from "../../wire/generated/tidemill/v1/producer.ts";
import type { Ambience } from "../connection-options.ts";
import { Line, notConnected } from "../line.ts";
import {
  allOrNothing,
  type Call,
  EachCall,
  type EnqueuedTask,
  type EnqueueResult,
  OneCall,
} from "./calls.ts";
import { CreateSender } from "./create-sender.ts";
import type { PendingTask } from "./pending.ts";
import {
  type ProducerOptions,
  type RemoteEnqueueOptions,
  type RemoteNewTask,
  type RemoteTaskOptions,
  type ResolvedProducerOptions,
  requireWithin,
  resolveProducerOptions,
} from "./producer-options.ts";
import { Window } from "./window.ts";
import { toWire, weightOf } from "./wire-task.ts";

const SWEEP_MS = 100;
/** Calls that wait for room. More would be memory that nobody bounds. */
const WAITERS_MAX = 100_000;
/** A create beside its tasks. */
const MESSAGE_BYTES = 64;
/** How long a server may take to end a stream that has nothing under way. */
const GOODBYE_MS = 2_000;

/**
 * Enqueues tasks through a server. What it says is stored is durable, whatever happens to the
 * server; what was not answered when a stream broke is sent again, and stored once.
 */
export class Producer implements AsyncDisposable {
  /** One for each producer, kept when it reconnects. */
  readonly id: string = uuidv4();
  readonly #options: ResolvedProducerOptions;
  readonly #window: Window;
  readonly #sender: CreateSender;
  readonly #line: Line<unknown>;
  readonly #calls = new Set<Call>();
  readonly #flushes = new Set<{ readonly open: Set<Call>; readonly resolve: () => void }>();
  readonly #known: Promise<void>;
  #resolveKnown: () => void = () => {};
  #failure: Error | undefined;
  #cancelSweep: (() => void) | undefined;
  #closing: Promise<void> | undefined;
  #onFailure: (error: Error) => void = () => {};

  private constructor(options: ProducerOptions, ambience: Ambience) {
    this.#options = resolveProducerOptions(options, ambience);
    const { line, batchTasks, windowTasks, windowBytes, automaticKeys } = this.#options;
    this.#window = new Window({
      tasksMax: windowTasks,
      bytesMax: windowBytes,
      waitersMax: WAITERS_MAX,
    });
    this.#known = new Promise((resolveKnown, reject) => {
      this.#resolveKnown = resolveKnown;
      this.#onFailure = reject;
    });
    this.#known.catch(() => {});
    this.#sender = new CreateSender(this.#window, {
      producerId: automaticKeys ? this.id : "",
      batchTasks,
      clock: line.clock,
      random: line.reconnect.random,
      logger: line.logger,
      onKnown: () => this.#resolveKnown(),
      onFailed: (error) => this.#fail(error),
      onDrain: (link) => this.#line.replace(link),
      onAnswered: ({ call }) => {
        if (call.isOver) this.#forget(call);
      },
    });
    this.#line = new Line(this.#sender, line);
  }

  /** Resolves when a server knows it. */
  static async connect(options: ProducerOptions, ambience: Ambience = {}): Promise<Producer> {
    const producer = new Producer(options, ambience);
    const { clock, connectMs } = producer.#options.line;
    producer.#line.open();
    const cancel = clock.after(connectMs, () => {
      producer.#onFailure(notConnected(connectMs / 1000, producer.#line.lastEnd));
    });
    try {
      await producer.#known;
      return producer;
    } catch (error) {
      producer.#line.close();
      throw error;
    } finally {
      cancel();
    }
  }

  /** What waits: for room, to be sent, and for its answer. */
  get load(): { readonly waiting: number; readonly tasks: number; readonly bytes: number } {
    return { waiting: this.#window.waiting, tasks: this.#window.tasks, bytes: this.#window.bytes };
  }

  /** Stores a task. Resolves when it is durable; waits while too much is under way. */
  async enqueue<Payload, Result, Input>(
    queue: Queue<Payload, Result, Input>,
    payload: Input | Uint8Array,
    options: RemoteTaskOptions & RemoteEnqueueOptions = {},
  ): Promise<EnqueuedTask> {
    const { withinSeconds, ...task } = options;
    const deadlineMs = this.#deadline(withinSeconds);
    const checking = toWire(requireQueue(queue), { ...task, payload });
    const message = checking instanceof Promise ? await checking : checking;
    const weight = this.#weigh([message]);
    return await new Promise((resolveCall, reject) => {
      const call = new OneCall(queue.name, deadlineMs, { resolve: resolveCall, reject });
      const pending = { message, weight, call, place: 0 };
      if (!this.#begin(call)) return;
      if (this.#window.tryTake(1, weight)) this.#sender.add(pending);
      else this.#wait(call, 1, weight, () => this.#sender.add(pending));
    });
  }

  /** Stores many tasks of one queue, all of them or none, up to what a server takes at once. */
  async enqueueMany<Payload, Result, Input>(
    queue: Queue<Payload, Result, Input>,
    tasks: readonly RemoteNewTask<Input>[],
    options: RemoteEnqueueOptions = {},
  ): Promise<EnqueuedTask[]> {
    const { tasksMax } = this.#sender.limits;
    if (tasks.length > tasksMax) {
      throw new InvalidInputError(
        `at most ${tasksMax} tasks are stored all or none, not ${tasks.length}; use enqueueEach`,
      );
    }
    return allOrNothing(await this.#enqueueAll(queue, tasks, options, true));
  }

  /** Stores many tasks of one queue, each for itself. */
  async enqueueEach<Payload, Result, Input>(
    queue: Queue<Payload, Result, Input>,
    tasks: readonly RemoteNewTask<Input>[],
    options: RemoteEnqueueOptions = {},
  ): Promise<EnqueueResult[]> {
    return await this.#enqueueAll(queue, tasks, options, false);
  }

  async #enqueueAll<Payload, Result, Input>(
    queue: Queue<Payload, Result, Input>,
    tasks: readonly RemoteNewTask<Input>[],
    options: RemoteEnqueueOptions,
    isAtomic: boolean,
  ): Promise<EnqueueResult[]> {
    refuseUnknown("enqueue", options, ["withinSeconds"]);
    const deadlineMs = this.#deadline(options.withinSeconds);
    requireQueue(queue);
    const messages: NewTask[] = [];
    for (const [place, task] of tasks.entries()) {
      messages.push(await checked(queue, task, place));
    }
    if (messages.length === 0) return [];
    for (const message of isAtomic ? [] : messages) this.#weigh([message]);
    if (isAtomic) this.#weigh(messages);
    return await new Promise((resolveCall, reject) => {
      const settle = { resolve: resolveCall, reject };
      const call = new EachCall(queue.name, messages.length, deadlineMs, settle);
      if (!this.#begin(call)) return;
      const pending = messages.map((message, place) => ({
        message,
        weight: weightOf(message),
        call,
        place,
      }));
      if (isAtomic) this.#addTogether(call, pending);
      else this.#addFrom(call, pending, 0);
    });
  }

  #addTogether(call: Call, tasks: readonly PendingTask[]): void {
    const weight = tasks.reduce((sum, task) => sum + task.weight, 0);
    if (this.#window.tryTake(tasks.length, weight)) this.#sender.add(tasks);
    else this.#wait(call, tasks.length, weight, () => this.#sender.add(tasks));
  }

  /** As far as there is room; the rest follows when there is. */
  #addFrom(call: Call, tasks: readonly PendingTask[], from: number): void {
    for (let place = from; place < tasks.length; place += 1) {
      const task = tasks[place];
      if (task === undefined || call.isOver) return;
      if (this.#window.tryTake(1, task.weight)) {
        this.#sender.add(task);
        continue;
      }
      this.#wait(call, 1, task.weight, () => {
        this.#sender.add(task);
        this.#addFrom(call, tasks, place + 1);
      });
      return;
    }
  }

  #deadline(withinSeconds: number | undefined): number {
    const { line, withinMs } = this.#options;
    const ms = withinSeconds === undefined ? withinMs : requireWithin(withinSeconds);
    return line.clock.now() + ms;
  }

  /** What no message can hold would end the stream, and every one after it. */
  #weigh(messages: readonly NewTask[]): number {
    const weight = messages.reduce((sum, message) => sum + weightOf(message), 0);
    const { bytesMax } = this.#sender.limits;
    if (weight <= bytesMax - MESSAGE_BYTES) return weight;
    throw new InvalidInputError(
      `${messages.length === 1 ? "the task takes" : "the tasks take"} ${weight} bytes, over the ` +
        `${bytesMax} of one message; store large data elsewhere and enqueue a reference`,
    );
  }

  #begin(call: Call): boolean {
    if (this.#failure !== undefined || this.#closing !== undefined) {
      call.fail(this.#failure ?? new InvalidInputError("the producer is closed"));
      return false;
    }
    this.#calls.add(call);
    this.#watch();
    return true;
  }

  #wait(call: Call, tasks: number, bytes: number, grant: () => void): void {
    const { deadlineMs } = call;
    const waiter = {
      tasks,
      bytes,
      deadlineMs,
      grant: () => {
        if (call.isOver) this.#window.release(tasks, bytes);
        else grant();
      },
      expire: () => {},
    };
    if (this.#window.wait(waiter)) return;
    call.fail(
      new LimitError(`${WAITERS_MAX} calls wait for room already; await enqueue before the next`),
    );
    this.#forget(call);
  }

  /** One timer for all deadlines. */
  #watch(): void {
    this.#cancelSweep ??= this.#options.line.clock.after(SWEEP_MS, () => {
      this.#cancelSweep = undefined;
      this.#expire();
      if (this.#calls.size > 0) this.#watch();
    });
  }

  #expire(): void {
    const nowMs = this.#options.line.clock.now();
    const late = [...this.#calls].filter(({ deadlineMs }) => deadlineMs <= nowMs);
    if (late.length === 0) return;
    const why = this.#line.lastEnd === "" ? "" : `; the last stream ended: ${this.#line.lastEnd}`;
    for (const call of late) {
      call.fail(new TimeoutError(`no answer came in time: the task is stored, or it is not${why}`));
      this.#forget(call);
    }
    this.#window.expire(nowMs);
    this.#sender.sweep();
  }

  #forget(call: Call): void {
    if (!this.#calls.delete(call)) return;
    for (const flush of this.#flushes) {
      if (!flush.open.delete(call) || flush.open.size > 0) continue;
      this.#flushes.delete(flush);
      flush.resolve();
    }
  }

  #fail(error: Error): void {
    this.#failure = error;
    this.#onFailure(error);
    for (const call of this.#calls) {
      call.fail(error);
      this.#forget(call);
    }
    this.#window.clear();
    this.#sender.sweep();
  }

  /** Resolves when everything that was enqueued so far has its answer, or failed. */
  async flush(): Promise<void> {
    if (this.#calls.size === 0) return;
    await new Promise<void>((resolveFlush) => {
      this.#flushes.add({ open: new Set(this.#calls), resolve: resolveFlush });
    });
  }

  /** Takes nothing more, waits for what is under way as long as its deadlines allow, and goes. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    await this.flush();
    this.#cancelSweep?.();
    this.#sender.close();
    await this.#line.hangUp(GOODBYE_MS);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}

async function checked(
  queue: QueueDefinition,
  task: RemoteNewTask,
  place: number,
): Promise<NewTask> {
  try {
    return await toWire(queue, task);
  } catch (error) {
    if (!(error instanceof InvalidInputError)) throw error;
    throw new InvalidInputError(`task ${place}: ${error.message}`, { cause: error });
  }
}

function requireQueue(queue: QueueDefinition): QueueDefinition {
  if (queue instanceof Queue) return queue;
  throw new ConfigError('enqueue needs a queue as queue("name") gives it');
}

/** Connects a producer: resolves when a server has accepted its token. */
export async function connectProducer(options: ProducerOptions): Promise<Producer> {
  return await Producer.connect(options);
}
