import { exponentialMs, nextPollMs, withJitter } from "../base/backoff.ts";
import { Bell } from "../base/bell.ts";
import { messageOf } from "../base/errors.ts";
import { childLogger, type Logger } from "../base/log.ts";
import { runLoop, type TurnResult } from "../base/loop.ts";
import type { Database } from "../db/database.ts";
import { isUnavailable, sqlState } from "../db/sqlstate.ts";
import type { PersistedEvent } from "../events/event.ts";
import { type BatchOutcome, type BatchPlan, cutWindow, runBatch } from "./batch.ts";
import { concerns, type OnFailure, type Partition } from "./consumer.ts";
import type { BatchContext } from "./handling.ts";
import type { ConsumerSettings } from "./options.ts";
import { ConsecutiveFailuresError, quarantine, stackOf } from "./poison.ts";
import type { LogReader } from "./reader.ts";
import { RebuildStrayError } from "./rebuild/guard.ts";
import { replayParked } from "./replay.ts";
import type { StoppedState } from "./sql/batch.ts";
import { readParkedStreams } from "./sql/parked.ts";
import { readPartitionState } from "./sql/states.ts";
import { GapAge, probeUnsafely } from "./unsafe-gap.ts";
import type { Window } from "./window-cache.ts";

/** An outage: how soon to try again. Never counted against the consumer. */
const OUTAGE_MS_BASE = 50;
const OUTAGE_MS_MAX = 5_000;
/** How often one that is held looks whether it still is. */
const HELD_MS = 100;
/** Windows without an event for this consumer are passed together, in one transaction. */
const EMPTY_WINDOWS_MAX = 50;

/**
 * Runs one partition on the worker that owns it. It ends when the assignment is gone, when its
 * signal aborts (after the batch in flight), or, with `onFailure: "stop-worker"`, by throwing.
 *
 * States: running → failing(n) → quarantined | parked stream | running. What is known of the
 * checkpoint is a guess that each batch checks under lock, so dying on any line loses nothing.
 */
export class ConsumerLoop {
  readonly partition: Partition;
  /** Rung for new events and for changes of state. */
  readonly bell = new Bell();
  readonly #db: Database;
  readonly #reader: LogReader;
  readonly #settings: ConsumerSettings;
  readonly #batch: BatchContext;
  readonly #logger: Logger;
  readonly #gapAge = new GapAge();
  #checkpoint: bigint | undefined;
  #stopped: StoppedState | undefined;
  /** A position that must not be passed now. */
  #hold: bigint | undefined;
  #isStateKnown = false;
  #hasParked = false;
  #isLost = false;
  #pollMs: number;
  #failures = 0;
  /** Up to here each event is a batch of its own, to find out which one fails. */
  #singlyUntil = 0n;

  constructor(
    db: Database,
    reader: LogReader,
    partition: Partition,
    settings: ConsumerSettings & { readonly batches: Database; readonly hardStop: AbortSignal },
  ) {
    this.partition = partition;
    this.#db = db;
    this.#reader = reader;
    this.#settings = settings;
    this.#pollMs = settings.pollIntervalMs;
    this.#logger = childLogger(settings.logger, { consumer: partition.name });
    this.#batch = {
      db: settings.batches,
      partition,
      parks: () => this.#onFailure === "park" || this.#hasParked,
      workerId: settings.workerId,
      batchTimeoutMs: settings.batchTimeoutMs,
      clock: settings.clock,
      hardStop: settings.hardStop,
    };
  }

  get #onFailure(): OnFailure {
    // A rebuild harms nobody, and is worth nothing if it leaves something out.
    if (this.partition.rebuild !== undefined) return "quarantine";
    return this.partition.consumer.onFailure ?? this.#settings.onFailure;
  }

  /** Something about this consumer changed in the database: look before the next batch. */
  stateChanged(): void {
    this.#isStateKnown = false;
    this.bell.ring();
  }

  async run(signal: AbortSignal): Promise<void> {
    const { clock, metrics } = this.#settings;
    const ended = new AbortController();
    const either = AbortSignal.any([signal, ended.signal]);
    this.#logger.info({}, "consumer loop started");
    const onFailure = (error: unknown, failures: number): number => {
      if (!isUnavailable(error)) throw error;
      metrics.batches.add(1, { consumer: this.partition.name, outcome: "unavailable" });
      this.#logger.warn({ error: messageOf(error), failures }, "database is unavailable");
      this.#checkpoint = undefined;
      this.#isStateKnown = false;
      return withJitter(exponentialMs(failures, OUTAGE_MS_BASE, OUTAGE_MS_MAX));
    };
    const turn = async (): Promise<TurnResult> => {
      const result = await this.#turn();
      if (this.#isLost) ended.abort();
      return result;
    };
    try {
      await runLoop(turn, { clock, bell: this.bell, onFailure }, either);
    } finally {
      this.#reader.leave(this.bell);
      for (const gauge of [metrics.checkpoint, metrics.lag, metrics.stopped]) {
        gauge.remove({ consumer: this.partition.name });
      }
      this.#logger.info({}, "consumer loop stopped");
    }
  }

  async #turn(): Promise<TurnResult> {
    if (!this.#isStateKnown) await this.#readState();
    const checkpoint = this.#checkpoint;
    if (checkpoint === undefined || this.#stopped !== undefined) {
      return { restMs: this.#settings.maxPollIntervalMs };
    }
    if (this.#hold !== undefined && checkpoint >= this.#hold) {
      this.#isStateKnown = false;
      return { restMs: HELD_MS };
    }
    const plan = this.#planAhead(checkpoint) ?? (await this.#nextPlan(checkpoint));
    if (plan === "empty") return this.#foundNothing();
    if (plan === "blocked")
      return { restMs: Math.max(this.#settings.batchPauseMs, 10), isDeaf: true };
    return await this.#process(plan);
  }

  #foundNothing(): TurnResult {
    const { pollIntervalMs, maxPollIntervalMs } = this.#settings;
    this.#pollMs = nextPollMs(this.#pollMs, pollIntervalMs, maxPollIntervalMs);
    return { restMs: this.#pollMs };
  }

  async #readState(): Promise<void> {
    this.#isStateKnown = true;
    const found = await readPartitionState(this.#db, this.partition.name);
    if (found === undefined) {
      this.#isLost = true; // Retired.
      return;
    }
    if (this.#stopped !== undefined && found.state === undefined) this.#failures = 0;
    this.#checkpoint = found.checkpoint;
    this.#stopped = found.state;
    this.#hold = found.hold;
    const { metrics } = this.#settings;
    const consumer = this.partition.name;
    metrics.checkpoint.set(Number(found.checkpoint), { consumer });
    metrics.stopped.set(found.state === undefined ? 0 : 1, { consumer });
    if (this.#stopped === undefined) await this.#replay();
  }

  async #replay(): Promise<void> {
    const parked = await readParkedStreams(this.#db, this.partition.name);
    // Also those of a time when `onFailure` was "park": their newer events must stay behind them.
    this.#hasParked = parked.length > 0;
    if (!parked.some((stream) => stream.state === "replaying")) return;
    const replay = await replayParked(this.#batch);
    if (replay === undefined) return;
    if (replay.failure === undefined) {
      this.#logger.info({ handled: replay.handled }, "parked events replayed");
    } else {
      this.#logger.error(replay.failure, "parked events failed again");
    }
    this.#isStateKnown = false; // More may be waiting; look again in the next turn.
    this.bell.ring();
  }

  /** While announced events are being read their batch begins: one round trip less until then. */
  #planAhead(checkpoint: bigint): Promise<BatchPlan | undefined> | undefined {
    const { gapPolicy } = this.#settings;
    if (gapPolicy === "unsafe-time" || checkpoint < this.#singlyUntil) return undefined;
    return this.#reader.announcedAbove(checkpoint)?.then(async () => {
      const plan = await this.#nextPlan(checkpoint);
      return typeof plan === "string" ? undefined : plan;
    });
  }

  async #nextPlan(checkpoint: bigint): Promise<BatchPlan | "empty" | "blocked"> {
    if (this.#settings.gapPolicy === "unsafe-time") {
      return await probeUnsafely(this.#db, checkpoint, this.#gapAge, this.#settings);
    }
    const window = await this.#nextWindow(checkpoint);
    if (window === undefined) return "empty";
    const { proof } = this.#reader;
    const isTooFar = this.#hold !== undefined && window.target > this.#hold;
    return { window: isTooFar ? cutWindow(window, this.#hold ?? 0n) : window, proof };
  }

  /** A scoped consumer passes windows that hold nothing for it without a commit for each. */
  async #nextWindow(checkpoint: bigint): Promise<Window | undefined> {
    const batchSize = checkpoint < this.#singlyUntil ? 1 : this.#settings.batchSize;
    const first = await this.#reader.window(checkpoint, batchSize, this.bell);
    if (first === undefined) return undefined;
    const events = [...first.events];
    let target = first.target;
    for (let passed = 0; passed < EMPTY_WINDOWS_MAX; passed += 1) {
      if (events.some((event) => concerns(this.partition, event))) break;
      const next = await this.#reader.window(target, batchSize, this.bell);
      if (next === undefined) break;
      events.push(...next.events);
      target = next.target;
    }
    return target === first.target ? first : { after: checkpoint, target, events };
  }

  async #process(planned: BatchPlan | Promise<BatchPlan | undefined>): Promise<TurnResult> {
    const { clock, metrics } = this.#settings;
    const startedAt = clock.now();
    const outcome = await this.#run(planned);
    if (outcome === "contended")
      return { restMs: Math.max(this.#settings.batchPauseMs, 10), isDeaf: true };
    const plan = await planned;
    if (outcome.kind === "empty" || plan === undefined) return this.#foundNothing();
    this.#pollMs = this.#settings.pollIntervalMs;
    metrics.batches.add(1, { consumer: this.partition.name, outcome: outcome.kind });
    switch (outcome.kind) {
      case "committed":
        metrics.batchSeconds.observe((clock.now() - startedAt) / 1000, {
          consumer: this.partition.name,
        });
        return this.#committed(outcome);
      case "lost":
        this.#logger.info({}, "consumer is owned by another worker");
        this.#isLost = true;
        return "again";
      case "vanished":
        this.#reader.distrust();
        return "again";
      case "drifted":
        this.#checkpoint = undefined;
        this.#isStateKnown = false;
        return { restMs: this.#settings.batchPauseMs, isDeaf: true };
      case "stopped":
        this.#stopped = outcome.state;
        metrics.stopped.set(1, { consumer: this.partition.name });
        return "again";
      case "held":
        this.#isStateKnown = false;
        return "again";
      case "failed":
        return await this.#failed(plan.window, outcome);
    }
  }

  /** The unsafe policy's serializable batches may collide: then the gap stays blocked a while. */
  async #run(
    planned: BatchPlan | Promise<BatchPlan | undefined>,
  ): Promise<BatchOutcome | "contended"> {
    try {
      return await runBatch(this.#batch, planned);
    } catch (error) {
      const cause = error instanceof Error && error.cause !== undefined ? error.cause : error;
      const isUnsafe = !(planned instanceof Promise) && planned.revalidate !== undefined;
      if (!isUnsafe || sqlState(cause) !== "40001") throw error;
      this.#logger.warn({}, "stale gap advancement hit serializable contention");
      return "contended";
    }
  }

  #committed(outcome: BatchOutcome & { kind: "committed" }): TurnResult {
    const { metrics, batchPauseMs } = this.#settings;
    const consumer = this.partition.name;
    this.#checkpoint = outcome.checkpoint;
    this.#failures = 0;
    metrics.eventsHandled.add(outcome.handled, { consumer });
    metrics.checkpoint.set(Number(outcome.checkpoint), { consumer });
    const behind = (this.#reader.frontier ?? outcome.checkpoint) - outcome.checkpoint;
    metrics.lag.set(behind > 0n ? Number(behind) : 0, { consumer });
    if (outcome.parked > 0) metrics.parked.add(outcome.parked, { consumer });
    if (outcome.crossed !== undefined) {
      metrics.gapsCrossed.add(1, { consumer, how: outcome.crossed });
      this.#logger.debug(
        { to: String(outcome.checkpoint), how: outcome.crossed },
        "consumer crossed a gap",
      );
    }
    return batchPauseMs > 0 ? { restMs: batchPauseMs, isDeaf: true } : "again";
  }

  async #failed(window: Window, failure: BatchOutcome & { kind: "failed" }): Promise<TurnResult> {
    const { maxConsecutiveFailures, pollIntervalMs, maxPollIntervalMs } = this.#settings;
    // Interrupted, which says nothing about the event.
    if (this.#batch.hardStop.aborted) return "again";
    this.#failures += 1;
    const { event, error, isLate } = failure;
    // All of them together may have been too slow, and the one at hand is innocent.
    const ours = window.events.filter((one) => concerns(this.partition, one));
    const isShared = isLate && ours.length > 1;
    if (isShared) this.#singlyUntil = window.target;
    this.#logger.error(
      {
        error: messageOf(error),
        position: String(event.position),
        consecutiveFailures: this.#failures,
      },
      "consumer batch failed",
    );
    if (error instanceof RebuildStrayError) return await this.#quarantine(event, error);
    if (this.#failures >= maxConsecutiveFailures && !isShared) {
      return await this.#isolate(window, event, error);
    }
    return {
      restMs: exponentialMs(this.#failures, pollIntervalMs, maxPollIntervalMs),
      isDeaf: true,
    };
  }

  /** The limit is reached: what precedes the poison event is committed, then it is set apart. */
  async #isolate(window: Window, event: PersistedEvent, error: unknown): Promise<TurnResult> {
    const failures = this.#failures;
    const onFailure = this.#onFailure;
    if (onFailure === "stop-worker") {
      throw new ConsecutiveFailuresError(this.partition.name, event.position, failures, error);
    }
    const healthy = event.position - 1n;
    const isInWindow = window.events.includes(event);
    if (isInWindow && healthy > window.after) {
      const proof = this.#reader.proof;
      const before = await runBatch(this.#batch, { window: cutWindow(window, healthy), proof });
      if (before.kind === "failed") {
        this.#failures = 0; // Another event fails too, and has its own attempts.
        this.#singlyUntil = event.position; // What shows at the commit is blamed on the last.
        return await this.#failed(window, before);
      }
      if (before.kind !== "committed") return "again";
      this.#checkpoint = before.checkpoint;
      if (before.checkpoint < healthy) return "again"; // Its time was up before it was there.
    }
    if (onFailure === "park" && isInWindow) {
      const park = { error: messageOf(error), stack: stackOf(error) };
      const only = { after: healthy, target: event.position, events: [event] };
      const parked = await runBatch(this.#batch, { window: only, proof: undefined, park });
      if (parked.kind !== "committed") return "again";
      this.#hasParked = true;
      this.#logger.error({ stream: event.stream, ...park }, "stream parked");
      return this.#committed(parked);
    }
    return await this.#quarantine(event, error);
  }

  async #quarantine(event: PersistedEvent, error: unknown): Promise<TurnResult> {
    const failures = this.#failures;
    const consumer = this.partition.name;
    if (await quarantine(this.#db, consumer, { event, error, failures }, this.#settings)) {
      this.#settings.metrics.quarantines.add(1, { consumer });
      this.#logger.error({ position: String(event.position), failures }, "consumer quarantined");
    }
    this.#isStateKnown = false;
    return "again";
  }
}
