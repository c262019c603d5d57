import { exponentialMs } from "../base/backoff.ts";
import { Bell } from "../base/bell.ts";
import { ConfigError, messageOf } from "../base/errors.ts";
import { runLoop, type TurnResult } from "../base/loop.ts";
import type { Service } from "../base/supervisor.ts";
import {
  readAssignmentsOf,
  registerAssignments,
  releaseAssignment,
} from "../cluster/sql/assignments.ts";
import { announceChange } from "../cluster/sql/changes.ts";
import type { Database } from "../db/database.ts";
import { type Consumer, type Partition, partitionsOf } from "./consumer.ts";
import { ConsumerLoop } from "./consumer-loop.ts";
import type { ConsumerSettings } from "./options.ts";
import type { LogReader } from "./reader.ts";
import { rebuiltConsumer } from "./rebuild/names.ts";
import { rebuildPartitions } from "./rebuild/partitions.ts";
import { registerTables } from "./rebuild/sql/tables.ts";
import { registerCheckpoints, registerPartitions } from "./sql/registration.ts";

export interface RunnerOptions extends ConsumerSettings {
  /** Connections for batches alone: a worker whose batches are all busy must still coordinate. */
  readonly batches: Database;
  /** The same for rebuilds, which must not be in the way of what they rebuild. */
  readonly rebuilds?: Database | undefined;
  /** How often to look at the assignments when nothing is announced. */
  readonly syncIntervalMs: number;
  /** How long a stop waits for batches in flight before it interrupts them. */
  readonly drainTimeoutMs: number;
  /**
   * On stop, gives each partition back as its batch ends. A Go leader must not see that: it would
   * rewrite every assignment at once and wait in that for the batches that still run.
   */
  readonly givesBack: boolean;
  /** False once others may have taken this worker for dead. */
  readonly isTrusted: () => boolean;
}

interface Running {
  readonly loop: ConsumerLoop;
  readonly stop: AbortController;
  readonly ended: Promise<void>;
}

/** A worker without consumers has nothing to read. */
const IDLE_MS = 60_000;

/**
 * Keeps a loop running for each partition that is assigned to this worker, and none else.
 *
 * On stop every loop finishes its batch and gives its partition back at once, so that another
 * worker runs it while the rest still drain.
 */
export class ConsumerRunner implements Service {
  readonly name = "consumers";
  /** Rung when assignments or states may have changed. */
  readonly bell = new Bell();
  readonly #db: Database;
  readonly #reader: LogReader;
  readonly #options: RunnerOptions;
  readonly #partitions: ReadonlyMap<string, Partition>;
  readonly #consumers: ReadonlyMap<string, Consumer>;
  readonly #running = new Map<string, Running>();
  readonly #hardStop = new AbortController();
  #interrupted = 0;
  #fatal: unknown;

  constructor(
    db: Database,
    reader: LogReader,
    consumers: readonly Consumer[],
    options: RunnerOptions,
  ) {
    this.#db = db;
    this.#reader = reader;
    this.#options = options;
    this.#consumers = new Map(consumers.map((one) => [one.name, one]));
    this.#partitions = new Map(consumers.flatMap(partitionsOf).map((one) => [one.name, one]));
  }

  /** Batches that a stop rolled back because they took too long. */
  get interrupted(): number {
    return this.#interrupted;
  }

  /** Names of the partitions that run here now. */
  get assigned(): string[] {
    return [...this.#running.keys()].sort();
  }

  changed(): void {
    for (const { loop } of this.#running.values()) loop.stateChanged();
    this.bell.ring();
  }

  /** Makes the rows that others need to know these consumers. */
  async register(): Promise<void> {
    if (this.#partitions.size === 0) return;
    // In one order, because two workers that insert the same names in two would deadlock.
    const names = [...this.#partitions.keys()].sort();
    const consumers = [...this.#consumers.values()];
    await this.#db.transaction(async (tx) => {
      const wanted = consumers
        .map(({ name, partitions = 1 }) => ({ name, partitions }))
        .sort((a, b) => (a.name < b.name ? -1 : 1));
      const [other] = await registerPartitions(tx, wanted);
      if (other !== undefined) {
        throw new ConfigError(
          `consumer "${other.name}" is stored with ${other.partitions} partition(s); keep that ` +
            `number, or run "tidemill consumer repartition ${other.name} --partitions N"`,
        );
      }
      await registerAssignments(tx, names);
      await registerCheckpoints(tx, names);
      await registerTables(tx, consumers);
      await announceChange(tx, this.#options.changesChannel);
    });
  }

  async run(signal: AbortSignal): Promise<void> {
    const { clock, logger, syncIntervalMs } = this.#options;
    const onFailure = (error: unknown, failures: number): number => {
      if (this.#fatal !== undefined) throw this.#fatal;
      logger.warn({ error: messageOf(error), failures }, "reading assignments failed");
      return exponentialMs(failures, 100, syncIntervalMs);
    };
    try {
      await runLoop(() => this.#sync(), { clock, bell: this.bell, onFailure }, signal);
    } finally {
      await this.#drain();
    }
    if (this.#fatal !== undefined) throw this.#fatal;
  }

  async #sync(): Promise<TurnResult> {
    if (this.#partitions.size === 0) return { restMs: IDLE_MS };
    if (this.#fatal !== undefined) throw this.#fatal;
    const { workerId, syncIntervalMs, isTrusted } = this.#options;
    const mine = isTrusted() ? await readAssignmentsOf(this.#db, workerId) : [];
    const wanted = new Map<string, Partition>();
    for (const name of mine) {
      const partition = this.#partitions.get(name);
      if (partition !== undefined) wanted.set(name, partition);
    }
    for (const one of await this.#rebuildsAmong(mine)) wanted.set(one.name, one);
    for (const [name, running] of this.#running) if (!wanted.has(name)) running.stop.abort();
    for (const partition of wanted.values()) this.#start(partition);
    return { restMs: isTrusted() ? syncIntervalMs : Math.min(syncIntervalMs, 100) };
  }

  /** Partitions of rebuilds, which come and go while the worker runs. */
  async #rebuildsAmong(names: readonly string[]): Promise<Partition[]> {
    if (this.#options.rebuilds === undefined) return [];
    const rebuilt = new Set(names.flatMap((name) => rebuiltConsumer(name) ?? []));
    const consumers = [...rebuilt].flatMap((name) => this.#consumers.get(name) ?? []);
    if (consumers.length === 0) return [];
    const all = await rebuildPartitions(this.#db, consumers);
    return all.filter((one) => names.includes(one.name));
  }

  #start(partition: Partition): void {
    const { name, rebuild } = partition;
    // One that is still stopping is started again by the turn that its end causes.
    if (this.#running.has(name)) return;
    const stop = new AbortController();
    const { batches, rebuilds = batches } = this.#options;
    const settings = {
      ...this.#options,
      batches: rebuild === undefined ? batches : rebuilds,
      hardStop: this.#hardStop.signal,
    };
    const loop = new ConsumerLoop(this.#db, this.#reader, partition, settings);
    const ended = loop
      .run(stop.signal)
      .catch((error: unknown) => {
        this.#fatal ??= error;
      })
      .finally(() => {
        this.#running.delete(name);
        this.bell.ring();
      });
    this.#running.set(name, { loop, stop, ended });
  }

  async #drain(): Promise<void> {
    const { clock, drainTimeoutMs } = this.#options;
    const cancel = clock.after(drainTimeoutMs, () => {
      this.#interrupted = this.#running.size;
      this.#hardStop.abort();
    });
    await Promise.all([...this.#running].map(([name, one]) => this.#giveBack(name, one)));
    cancel();
  }

  async #giveBack(name: string, { stop, ended }: Running): Promise<void> {
    const { workerId, changesChannel, logger, givesBack } = this.#options;
    stop.abort();
    await ended;
    if (!givesBack) return; // Removing the registration frees all at once.
    try {
      await this.#db.transaction(async (tx) => {
        if (await releaseAssignment(tx, name, workerId)) await announceChange(tx, changesChannel);
      });
    } catch (error) {
      // Removing the registration frees it too, a little later.
      logger.warn({ consumer: name, error: messageOf(error) }, "could not give consumer back");
    }
  }
}
