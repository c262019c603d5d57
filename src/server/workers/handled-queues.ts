import type { Clock } from "../../base/clock.ts";
import type { QueueDirectory } from "../../tasks/directory.ts";
import { NO_LIMITS } from "../../tasks/limits.ts";
import type { QueueDefinition, TaskHandler } from "../../tasks/queue.ts";
import type { OrderedQueues } from "./order-book.ts";

type Directory = Pick<QueueDirectory, "findOrIntroduce" | "names" | "peek">;

export interface HandledQueuesOptions {
  readonly directory: Directory;
  /** Queues that one tenant may name before anybody defined them. */
  readonly queuesMax: number;
  readonly clock: Clock;
  /** What is done with tasks, whatever their queue. */
  readonly handler: Pick<TaskHandler, "run" | "settled" | "renewed" | "aborted">;
  /** They are claimed from when this resolves. */
  readonly begin: (handlers: readonly TaskHandler[]) => Promise<void>;
}

/** Names of all queues are this old at most. */
const NAMES_MS = 500;

/** The queues of which tasks can be claimed at a desk: those that somebody has asked for. */
export class HandledQueues {
  readonly #options: HandledQueuesOptions;
  readonly #handled = new Map<string, Promise<void>>();
  /** Those of which tasks can be claimed now. */
  readonly #begun = new Set<string>();
  #naming: { readonly names: Promise<string[]>; readonly atMs: number } | undefined;
  #beginning: Promise<unknown> = Promise.resolve();
  /** To begin with the next round, together. */
  #next: { readonly handlers: TaskHandler[]; readonly begun: Promise<void> } | undefined;

  constructor(options: HandledQueuesOptions) {
    this.#options = options;
  }

  get names(): Iterable<string> {
    return this.#handled.keys();
  }

  /** Whether tasks of the queues can be claimed here already. */
  has(queues: OrderedQueues): boolean {
    return queues !== "all" && queues.every((name) => this.#begun.has(name));
  }

  /** Resolves when tasks of the queues, as they are now, can be claimed here. */
  async handle(queues: OrderedQueues, tenant: string): Promise<void> {
    const begun: Promise<void>[] = [];
    for (const name of queues === "all" ? await this.#all() : queues) {
      let handling = this.#handled.get(name);
      if (handling === undefined) {
        handling = this.#handle(name, tenant);
        this.#handled.set(name, handling);
        handling.then(
          () => this.#begun.add(name),
          () => this.#handled.delete(name),
        );
      }
      begun.push(handling);
    }
    await Promise.all(begun);
  }

  /** As they were a moment ago: many may ask. */
  #all(): Promise<string[]> {
    const { clock, directory } = this.#options;
    const nowMs = clock.now();
    if (this.#naming === undefined || nowMs - this.#naming.atMs >= NAMES_MS) {
      const names = directory.names();
      names.catch(() => {
        this.#naming = undefined;
      });
      this.#naming = { names, atMs: nowMs };
    }
    return this.#naming.names;
  }

  async #handle(name: string, tenant: string): Promise<void> {
    const { directory, queuesMax, handler } = this.#options;
    const { settings } = await directory.findOrIntroduce(name, { tenant, queuesMax });
    const queue = new KnownDefinition(name, directory, settings);
    await this.#begin({ ...handler, queue, concurrency: undefined });
  }

  /** One round after another, each with all that came meanwhile: it asks for all of them anew. */
  #begin(handler: TaskHandler): Promise<void> {
    if (this.#next === undefined) {
      const handlers: TaskHandler[] = [];
      const begun = this.#beginning.then(async () => {
        this.#next = undefined;
        await this.#options.begin(handlers);
      });
      this.#beginning = begun.catch(() => {});
      this.#next = { handlers, begun };
    }
    this.#next.handlers.push(handler);
    return this.#next.begun;
  }
}

/** A queue as others define it, with the settings that are known now. */
class KnownDefinition implements QueueDefinition {
  readonly name: string;
  readonly keySpace: string;
  readonly limits = NO_LIMITS;
  readonly schema = undefined;
  readonly resultSchema = undefined;
  readonly #directory: Directory;
  #settings: QueueDefinition["settings"];

  constructor(name: string, directory: Directory, settings: QueueDefinition["settings"]) {
    this.name = name;
    this.keySpace = name;
    this.#directory = directory;
    this.#settings = settings;
  }

  /** While it is being read again, because somebody defines it, the last ones hold. */
  get settings(): QueueDefinition["settings"] {
    this.#settings = this.#directory.peek(this.name)?.settings ?? this.#settings;
    return this.#settings;
  }
}
