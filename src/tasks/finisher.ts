import { exponentialMs } from "../base/backoff.ts";
import { Bell } from "../base/bell.ts";
import type { Clock } from "../base/clock.ts";
import { messageOf } from "../base/errors.ts";
import type { Logger } from "../base/log.ts";
import { runLoop, type TurnResult } from "../base/loop.ts";
import type { Service } from "../base/supervisor.ts";
import type { Queryable } from "../db/database.ts";
import type { ClaimedTask } from "./claimed-task.ts";
import { EndWriter } from "./end-writer.ts";
import { EndedClaims } from "./ended-claims.ts";
import { PackFinisher } from "./pack-finisher.ts";
import type { Settlement } from "./sql/finish.ts";

/** Refused means that the lease was lost, or that the task was cancelled. */
export type OnSettled = (
  task: ClaimedTask,
  settlement: Settlement,
  accepted: boolean,
  nowMs: number,
) => void;

export interface FinisherOptions {
  /** How long the ends of a pack wait for each other. */
  readonly lingerMs?: number | undefined;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly onSettled: OnSettled;
  /** What is to be written instead of an end that the database refuses. */
  readonly onRefused: (task: ClaimedTask, error: Error) => Settlement;
  /** A batch was answered for. `hasReturned`: some of its tasks are to run again. */
  readonly onAnswered: (hasReturned: boolean) => void;
}

const FLUSH_MAX = 2_000;
const RETRY_MS_MAX = 2_000;
const IDLE_MS = 60_000;
/** A transaction that has a row locked may be long: it is asked again less and less often. */
const LOCKED_MS = 50;
const LOCKED_MS_MAX = 1_000;
/** Nothing can be written of it, until a person mends what refuses it. */
const REFUSED_MS = 1_000;
const REFUSED_MS_MAX = 60_000;

/** An end that could not be written. */
interface Setback {
  readonly tries: number;
  /** When it is sent again. */
  readonly dueMs: number;
  /** What its handler said was refused. */
  readonly isRefused: boolean;
}

/**
 * Writes what handlers ended with, in batches: at once when idle, and while one batch is on its way
 * the next is gathered. An entry leaves only when the database has answered for it; a batch whose
 * COMMIT was not answered is looked up in history before anything is sent again. A task whose row
 * somebody has locked rests and is sent again, until the row is free or the lease is lost. An end
 * that the database refuses is written as a failure of its attempt.
 */
export class Finisher implements Service {
  readonly name = "finisher";
  /** Ends of tasks come by it as long as their pack is not open. */
  readonly packs: PackFinisher;
  readonly #endedClaims = new EndedClaims();
  readonly #writer: EndWriter;
  readonly #options: FinisherOptions;
  readonly #bell = new Bell();
  #waiting: ClaimedTask[] = [];
  #sending: ClaimedTask[] = [];
  #resting: ClaimedTask[] = [];
  readonly #setbacks = new Map<ClaimedTask, Setback>();
  #onEmpty: (() => void)[] = [];

  constructor(db: Queryable, options: FinisherOptions) {
    this.#writer = new EndWriter(db, this.#endedClaims);
    this.#options = options;
    this.packs = new PackFinisher(db, {
      ...options,
      endedClaims: this.#endedClaims,
      onCompleted: (task, settlement, nowMs) => options.onSettled(task, settlement, true, nowMs),
      onOpened: (task, isDoubtful) => this.#push(task, isDoubtful),
      onAnswered: () => options.onAnswered(false),
    });
  }

  /** Entries that the database has not answered for. */
  get backlog(): number {
    return this.#waiting.length + this.#sending.length + this.#resting.length;
  }

  add(task: ClaimedTask, settlement: Settlement): void {
    task.settlement = settlement;
    const { pack } = task;
    if (pack === undefined || pack.state === "open") this.#push(task, false);
    else this.packs.add(pack, task);
  }

  #push(task: ClaimedTask, isDoubtful: boolean): void {
    task.isDoubtful = isDoubtful;
    this.#waiting.push(task);
    if (this.#waiting.length === 1) this.#bell.ring();
  }

  /** All tasks of the claim have ended: its row in the ledger can go, with the next batch. */
  endClaim(claimId: string): void {
    this.#endedClaims.add(claimId);
  }

  /** Resolves when everything added so far was answered, and what came of it. */
  async empty(): Promise<void> {
    do {
      await this.packs.empty(); // It may still pass something on.
      await this.#emptyRows();
    } while (!this.packs.isEmpty); // So may an answer: those behind a task that comes back.
  }

  #emptyRows(): Promise<void> {
    if (this.backlog === 0) return Promise.resolve();
    return new Promise((resolve) => this.#onEmpty.push(resolve));
  }

  async run(signal: AbortSignal): Promise<void> {
    const { clock, logger } = this.#options;
    const onFailure = (error: unknown, failures: number): number => {
      logger.warn({ error: messageOf(error), failures }, "could not write how tasks ended");
      return exponentialMs(failures, 50, RETRY_MS_MAX);
    };
    await runLoop(() => this.#turn(), { clock, bell: this.#bell, onFailure }, signal);
  }

  async #turn(): Promise<TurnResult> {
    if (this.#sending.length === 0) {
      // What else ends in this round of the event loop goes along.
      await new Promise<void>((resolve) => setImmediate(resolve));
      this.#wakeRested();
      if (this.#waiting.length === 0) {
        if (this.#resting.length === 0) this.#tellEmpty();
        return { restMs: this.#restMs() };
      }
      this.#sending = this.#waiting.splice(0, FLUSH_MAX);
    }
    const verdictOf = await this.#writer.write(this.#sending, this.#setbacks);
    const sent = this.#sending;
    this.#sending = [];
    const { clock, onSettled, onAnswered } = this.#options;
    const nowMs = clock.now();
    let hasReturned = false;
    for (const task of sent) {
      const { settlement } = task;
      if (settlement === undefined) continue;
      const verdict = verdictOf(task);
      if (verdict === "locked") {
        this.#rest(task, LOCKED_MS, LOCKED_MS_MAX);
        continue;
      }
      if (verdict instanceof Error) {
        this.#refuse(task, verdict);
        continue;
      }
      if (settlement.kind === "put-back") hasReturned = true;
      onSettled(task, settlement, verdict === "accepted", nowMs);
      // Of one that is not settled, something else is written now: what befell it is remembered.
      if (this.#setbacks.size > 0 && task.state === "settled") this.#setbacks.delete(task);
    }
    onAnswered(hasReturned);
    return "again";
  }

  #refuse(task: ClaimedTask, error: Error): void {
    const { logger, onRefused } = this.#options;
    const facts = { task: task.id, queue: task.queue, error: messageOf(error) };
    logger.warn(facts, "the database refused how a task ended");
    if (this.#setbacks.get(task)?.isRefused === true) {
      this.#rest(task, REFUSED_MS, REFUSED_MS_MAX);
      return;
    }
    this.#setbacks.set(task, { tries: 0, dueMs: 0, isRefused: true });
    this.add(task, onRefused(task, error));
  }

  #rest(task: ClaimedTask, baseMs: number, maxMs: number): void {
    const known = this.#setbacks.get(task);
    const tries = (known?.tries ?? 0) + 1;
    const dueMs = this.#options.clock.now() + exponentialMs(tries, baseMs, maxMs);
    this.#setbacks.set(task, { tries, dueMs, isRefused: known?.isRefused === true });
    task.isDoubtful = false; // It was answered.
    this.#resting.push(task);
  }

  #wakeRested(): void {
    if (this.#resting.length === 0) return;
    const nowMs = this.#options.clock.now();
    const isDue = (task: ClaimedTask): boolean => (this.#setbacks.get(task)?.dueMs ?? 0) <= nowMs;
    this.#waiting.push(...this.#resting.filter(isDue));
    this.#resting = this.#resting.filter((task) => !isDue(task));
  }

  #restMs(): number {
    const nowMs = this.#options.clock.now();
    const dues = this.#resting.map((task) => (this.#setbacks.get(task)?.dueMs ?? 0) - nowMs);
    return Math.max(1, Math.min(IDLE_MS, ...dues));
  }

  #tellEmpty(): void {
    for (const resolve of this.#onEmpty.splice(0)) resolve();
  }
}
