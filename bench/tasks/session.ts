import { once } from "node:events";
import { setTimeout as pause } from "node:timers/promises";
import pg from "pg";
import { familyTimeUs } from "../support/processor-time.ts";
import type { Child } from "./child.ts";
import { freePorts } from "./ports.ts";
import type { OpenOptions, Started } from "./protocol.ts";
import type { Stage } from "./stage.ts";
import type { Reading, TaskSystem } from "./system.ts";

const STALLED_MS = 60_000;
const IDLE_MS_MAX = 2;

export interface Window {
  /** How far the producer may be ahead of the worker. */
  readonly ahead: number;
  readonly warmUpMs: number;
  /** Ends after so much time, or after so many more tasks were handled. */
  readonly until: { readonly ms: number } | { readonly handled: number };
}

export interface Measured {
  readonly perSecond: number;
  readonly walBytesPerTask: number;
  /** Not completed at the end, of a system that counts by what was enqueued. */
  readonly pending: number;
  /** Processor time, in microseconds, of everybody who took part. */
  readonly usPerTask: Readonly<Record<string, number>>;
}

/**
 * One system in a fresh database, with a producer process, its server if it has one and, once asked
 * for, its workers.
 */
export class Session {
  readonly url: string;
  readonly #stage: Stage;
  readonly #system: TaskSystem;
  readonly #options: OpenOptions;
  readonly #client: pg.Client;
  readonly #producer: Child;
  readonly #server: Child | undefined;
  readonly #workers: Child[] = [];
  #handled = 0;
  #ahead: number | undefined;

  private constructor(stage: Stage, system: TaskSystem, options: OpenOptions) {
    this.url = options.url;
    this.#stage = stage;
    this.#system = system;
    this.#options = options;
    this.#client = new pg.Client({ connectionString: options.url });
    this.#producer = stage.lend(system);
    this.#server = system.isServed === true ? stage.lend(system) : undefined;
  }

  static async open(
    stage: Stage,
    system: TaskSystem,
    options: Omit<OpenOptions, "url">,
  ): Promise<Session> {
    const url = await stage.database(system);
    const server = system.isServed === true ? { server: await freePorts() } : {};
    const session = new Session(stage, system, { ...options, ...server, url });
    try {
      await session.#client.connect();
      await session.#server?.open("server", session.#options);
      await session.#producer.open("producer", session.#options);
      return session;
    } catch (error) {
      await session[Symbol.asyncDispose]();
      throw error;
    }
  }

  /**
   * Enqueues so many tasks, all durable, and returns how many a second. Then gathers statistics,
   * as after any bulk load: without them a peer sorts its whole table for each claim.
   */
  async fill(count: number): Promise<number> {
    const tookMs = await this.#producer.call({ do: "fill", count });
    await this.#client.query(`ANALYZE ${this.#system.table}`);
    return (count / tookMs) * 1000;
  }

  async startWorker(): Promise<Child> {
    const worker = this.#stage.lend(this.#system);
    this.#workers.push(worker);
    worker.on("handled", ({ handled }) => {
      this.#handled = handled;
      if (this.#ahead !== undefined) this.#producer.feed(handled + this.#ahead);
    });
    await worker.open("worker", this.#options);
    return worker;
  }

  /**
   * The rate between the first and the last read of the store that found some, but not all tasks
   * completed; so neither the start of the worker nor the wait for our next read counts.
   */
  async drain(tasks: number, everyMs: number, msMax: number): Promise<number> {
    const seen: Reading[] = [];
    const startedAt = performance.now();
    for (;;) {
      const reading = await this.#system.completed(this.#client, async () => tasks);
      const first = seen[0];
      if (reading.completed > 0) seen.push(reading);
      if (reading.completed >= tasks) break;
      if (first !== undefined && reading.atMs - first.atMs > msMax) break;
      if (first === undefined && performance.now() - startedAt > STALLED_MS) this.#stalled();
      await this.#pause(everyMs);
    }
    const last = seen.length > 2 && (seen.at(-1)?.completed ?? 0) >= tasks ? -2 : -1;
    return between(seen[0], seen.at(last)).perSecond;
  }

  /** Producer and worker at once: completions between two reads of the store, after a warm-up. */
  async steady(window: Window): Promise<Measured> {
    this.#feed(window.ahead);
    await this.#pause(window.warmUpMs);
    const first = await this.#read(window.ahead);
    const before = await this.#times();
    await this.#over(window.until);
    const last = await this.#read(window.ahead);
    const after = await this.#times();
    await this.#system.verify?.(this.#client, () => this.#hold());
    this.#feed(window.ahead);
    const completed = last.completed - first.completed;
    const usPerTask = Object.fromEntries(
      [...after].map(([name, us]) => [name, round((us - (before.get(name) ?? 0)) / completed)]),
    );
    return { ...between(first, last), pending: last.pending, usPerTask };
  }

  /** The most memory that the server ever used, in MiB. */
  async serverRss(): Promise<number> {
    if (this.#server === undefined) throw new Error(`${this.#system.name} has no server`);
    return await this.#server.call({ do: "rss" });
  }

  /** One task at a time on an idle system: from the call of enqueue to the start of its handler. */
  async startDelays(samples: number): Promise<number[]> {
    const worker = this.#workers[0];
    if (worker === undefined) throw new Error("there is no worker");
    const delays: number[] = [];
    while (delays.length < samples) {
      const started = once(worker, "started", { signal: AbortSignal.timeout(STALLED_MS) });
      const calledAt = await this.#producer.call({ do: "one" });
      const [{ at }] = (await started) as [Started];
      delays.push(at - calledAt);
      // At chance, or each task would meet a poll at the same phase.
      await this.#pause(Math.random() * IDLE_MS_MAX);
    }
    return delays;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#ahead = undefined;
    try {
      const children = [this.#producer, ...this.#workers];
      const ended = children.map((child) => this.#stage.takeBack(this.#system, child));
      await Promise.allSettled(ended);
      if (this.#server !== undefined) await this.#stage.takeBack(this.#system, this.#server);
      await Promise.all(ended);
    } finally {
      await this.#client.end();
      await this.#stage.server.drop(this.url);
    }
  }

  async #times(): Promise<Map<string, number>> {
    const times = new Map<string, number>();
    const add = async (name: string, child: Child): Promise<void> => {
      times.set(name, (times.get(name) ?? 0) + (await child.call({ do: "cpu" })));
    };
    await add("producer", this.#producer);
    if (this.#server !== undefined) await add("server", this.#server);
    for (const worker of this.#workers) await add("worker", worker);
    const postgres = familyTimeUs(this.#stage.server.pid);
    if (postgres !== undefined) times.set("postgres", postgres);
    return times;
  }

  async #read(ahead: number): Promise<Reading & { readonly pending: number }> {
    let enqueued = Number.NaN;
    const reading = await this.#system.completed(this.#client, async () => {
      enqueued = await this.#hold();
      return enqueued;
    });
    this.#feed(ahead);
    return { ...reading, pending: enqueued - reading.completed };
  }

  /** The producer stands still, and tells how many tasks it has enqueued. */
  async #hold(): Promise<number> {
    this.#ahead = undefined;
    return await this.#producer.call({ do: "hold" });
  }

  #feed(ahead: number): void {
    this.#ahead = ahead;
    this.#producer.feed(this.#handled + ahead);
  }

  async #over(until: Window["until"]): Promise<void> {
    if ("ms" in until) return await this.#pause(until.ms);
    const enough = this.#handled + until.handled;
    let progress = { handled: this.#handled, at: performance.now() };
    while (this.#handled < enough) {
      await this.#pause(20);
      if (this.#handled > progress.handled) {
        progress = { handled: this.#handled, at: performance.now() };
      }
      if (performance.now() - progress.at > STALLED_MS) this.#stalled();
    }
  }

  /** A process that has died meanwhile ends the benchmark. */
  async #pause(ms: number): Promise<void> {
    await pause(ms);
    this.#server?.assertAlive();
    for (const child of [this.#producer, ...this.#workers]) child.assertAlive();
  }

  #stalled(): never {
    throw new Error(`${this.#system.name} completed nothing for ${STALLED_MS} ms`);
  }
}

const round = (us: number): number => Math.round(us * 100) / 100;

function between(
  first: Reading | undefined,
  last: Reading | undefined,
): Pick<Measured, "perSecond" | "walBytesPerTask"> {
  if (first === undefined || last === undefined) throw new Error("nothing was read");
  const completed = last.completed - first.completed;
  return {
    perSecond: (completed / (last.atMs - first.atMs)) * 1000,
    walBytesPerTask: (last.walBytes - first.walBytes) / completed,
  };
}
