import { Rounds } from "../../base/rounds.ts";
import type { TaskHandler } from "../../tasks/queue.ts";
import type { RemoteTask } from "./remote-task.ts";

/** Queues that share credit and slots. */
export class QueueGroup {
  readonly queues: readonly string[];
  /** Handlers of it that run at once. */
  readonly concurrency: number;
  /** Tasks of it that may be held and have not ended. */
  readonly capacity: number;
  /** Credit that was given to the present link and not used. */
  given = 0;
  running = 0;
  readonly waiting: RemoteTask[] = [];

  constructor(queues: readonly string[], concurrency: number, batchSize: number) {
    this.queues = queues;
    this.concurrency = concurrency;
    this.capacity = concurrency * batchSize;
  }

  get held(): number {
    return this.running + this.waiting.length;
  }
}

/** One for all queues without a concurrency of their own, and one for each that has one. */
export function groupsOf(
  handlers: readonly TaskHandler[],
  concurrency: number,
  batchSize: number,
): QueueGroup[] {
  const shared = handlers.filter((handler) => handler.concurrency === undefined);
  const own = handlers.filter((handler) => handler.concurrency !== undefined);
  return [
    ...(shared.length === 0
      ? []
      : [
          new QueueGroup(
            shared.map(({ queue }) => queue.name),
            concurrency,
            batchSize,
          ),
        ]),
    ...own.map(
      ({ queue, concurrency: limit = concurrency }) =>
        new QueueGroup([queue.name], Math.min(limit, concurrency), batchSize),
    ),
  ];
}

/** Handlers that end at once come in thousands. */
const STARTS_PER_ROUND = 256;

/** Starts tasks as slots come free: of groups in turns, within one in the order they came. */
export class Slots {
  readonly groups: readonly QueueGroup[];
  readonly #byQueue = new Map<string, QueueGroup>();
  readonly #concurrency: number;
  readonly #start: (task: RemoteTask) => void;
  readonly #rounds = new Rounds(STARTS_PER_ROUND, () => this.startMore());
  #running = 0;
  #turn = 0;
  #isStarting = false;

  constructor(
    groups: readonly QueueGroup[],
    concurrency: number,
    start: (task: RemoteTask) => void,
  ) {
    this.groups = groups;
    this.#concurrency = concurrency;
    this.#start = start;
    for (const group of groups) for (const name of group.queues) this.#byQueue.set(name, group);
  }

  /** Handlers that have not returned. */
  get running(): number {
    return this.#running;
  }

  get waiting(): number {
    return this.groups.reduce((sum, { waiting }) => sum + waiting.length, 0);
  }

  groupOf(queue: string): QueueGroup | undefined {
    return this.#byQueue.get(queue);
  }

  add(task: RemoteTask): void {
    this.groupOf(task.queue)?.waiting.push(task);
  }

  startMore(): void {
    if (this.#isStarting) return; // A handler that ends at once comes back here.
    this.#isStarting = true;
    try {
      this.#startAll();
    } finally {
      this.#isStarting = false;
    }
  }

  #startAll(): void {
    while (this.#running < this.#concurrency) {
      const group = this.#next();
      if (group === undefined || !this.#rounds.step()) return;
      const task = group.waiting.shift();
      if (task?.state !== "waiting") continue; // It was lost while it waited.
      group.running += 1;
      this.#running += 1;
      task.state = "running";
      this.#start(task);
    }
  }

  #next(): QueueGroup | undefined {
    const { groups } = this;
    for (let step = 0; step < groups.length; step += 1) {
      const group = groups[(this.#turn + step) % groups.length];
      if (group === undefined || group.waiting.length === 0) continue;
      if (group.running >= group.concurrency) continue;
      this.#turn = (this.#turn + step + 1) % groups.length;
      return group;
    }
    return undefined;
  }

  /** Its handler has returned. */
  release({ queue }: RemoteTask): void {
    const group = this.groupOf(queue);
    if (group !== undefined) group.running -= 1;
    this.#running -= 1;
    this.startMore();
  }

  /** It was lost before it started. */
  drop(task: RemoteTask): void {
    const waiting = this.groupOf(task.queue)?.waiting;
    const place = waiting?.indexOf(task) ?? -1;
    if (place >= 0) waiting?.splice(place, 1);
  }

  /** All that have not started. */
  drain(): RemoteTask[] {
    return this.groups.flatMap(({ waiting }) => waiting.splice(0));
  }
}
