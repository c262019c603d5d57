import { exponentialMs } from "../base/backoff.ts";
import { Bell } from "../base/bell.ts";
import type { Clock } from "../base/clock.ts";
import { messageOf } from "../base/errors.ts";
import type { Logger } from "../base/log.ts";
import { runLoop, type TurnResult } from "../base/loop.ts";
import type { Service } from "../base/supervisor.ts";
import type { Queryable } from "../db/database.ts";
import type { ClaimedTask } from "./claimed-task.ts";
import type { Settlement } from "./sql/finish.ts";
import { buryTasks, completeTasks, endTasks, findCompleted, putBackTasks } from "./sql/finish.ts";

/** Refused means that the lease was lost, or that the task was cancelled. */
export type OnSettled = (
  task: ClaimedTask,
  settlement: Settlement,
  accepted: boolean,
  nowMs: number,
) => void;

export interface FinisherOptions {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly onSettled: OnSettled;
  /** A batch was answered for. `hasReturned`: some of its tasks are to run again. */
  readonly onAnswered: (hasReturned: boolean) => void;
}

const FLUSH_MAX = 2_000;
const RETRY_MS_MAX = 2_000;
const IDLE_MS = 60_000;

/**
 * Writes what handlers ended with, in batches: at once when idle, and while one batch is on its way
 * the next is gathered. An entry leaves only when the database has answered for it; a batch whose
 * COMMIT was not answered is looked up in history before anything is sent again.
 */
export class Finisher implements Service {
  readonly name = "finisher";
  readonly #db: Queryable;
  readonly #options: FinisherOptions;
  readonly #bell = new Bell();
  #waiting: ClaimedTask[] = [];
  #sending: ClaimedTask[] = [];
  #endedClaims: string[] = [];
  #onEmpty: (() => void)[] = [];

  constructor(db: Queryable, options: FinisherOptions) {
    this.#db = db;
    this.#options = options;
  }

  /** Entries that the database has not answered for. */
  get backlog(): number {
    return this.#waiting.length + this.#sending.length;
  }

  add(task: ClaimedTask, settlement: Settlement): void {
    task.settlement = settlement;
    task.isDoubtful = false;
    this.#waiting.push(task);
    if (this.#waiting.length === 1) this.#bell.ring();
  }

  /** All tasks of the claim have ended: its row in the ledger can go, with the next batch. */
  endClaim(claimId: string): void {
    this.#endedClaims.push(claimId);
  }

  /** Resolves when everything added so far was answered. */
  empty(): Promise<void> {
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
      if (this.#waiting.length === 0) {
        this.#tellEmpty();
        return { restMs: IDLE_MS };
      }
      this.#sending = this.#waiting.splice(0, FLUSH_MAX);
    }
    const isAccepted = await this.#send(this.#sending);
    const sent = this.#sending;
    this.#sending = [];
    const { clock, onSettled, onAnswered } = this.#options;
    const nowMs = clock.now();
    let hasReturned = false;
    for (const task of sent) {
      const { settlement } = task;
      if (settlement?.kind === "put-back") hasReturned = true;
      if (settlement !== undefined) onSettled(task, settlement, isAccepted(task), nowMs);
    }
    onAnswered(hasReturned);
    return "again";
  }

  /** All statements are written at once, one behind the other. */
  async #send(tasks: readonly ClaimedTask[]): Promise<(task: ClaimedTask) => boolean> {
    const found = await this.#findDoubtful(tasks);
    const completions: ClaimedTask[] = [];
    const others: ClaimedTask[] = [];
    for (const task of tasks) {
      if (found.has(task.id)) continue;
      if (task.settlement?.kind !== "complete") others.push(task);
      else if (!task.isCompletedByHandler) completions.push(task);
      task.isDoubtful = true;
    }
    const claims = this.#endedClaims.splice(0);
    try {
      const [completed, accepted] = await Promise.all([
        this.#complete(completions, claims),
        this.#settleOthers(others),
      ]);
      return (task) => {
        if (found.has(task.id)) return true;
        if (task.settlement?.kind !== "complete") return accepted.has(task.id);
        return !task.isCompletedByHandler && (completed?.has(task.id) ?? true);
      };
    } catch (error) {
      this.#endedClaims.push(...claims);
      throw error;
    }
  }

  async #complete(
    tasks: readonly ClaimedTask[],
    claims: readonly string[],
  ): Promise<Set<string> | undefined> {
    if (tasks.length === 0 && claims.length === 0) return undefined;
    return await completeTasks(this.#db, tasks, claims);
  }

  /** Rare ends: retries, dead letters, what is given back. */
  async #settleOthers(tasks: readonly ClaimedTask[]): Promise<Set<string>> {
    if (tasks.length === 0) return new Set();
    const [putBack, ended, buried] = [
      rowsOf(tasks, "put-back"),
      rowsOf(tasks, "end"),
      rowsOf(tasks, "bury"),
    ];
    const accepted = await Promise.all([
      putBack.length === 0 ? [] : putBackTasks(this.#db, putBack),
      ended.length === 0 ? [] : endTasks(this.#db, ended),
      buried.length === 0 ? [] : buryTasks(this.#db, buried),
    ]);
    return new Set(accepted.flatMap((ids) => [...ids]));
  }

  async #findDoubtful(tasks: readonly ClaimedTask[]): Promise<Set<string>> {
    const doubtful = tasks.filter(
      (task) =>
        (task.isDoubtful || task.isCompletedByHandler) && task.settlement?.kind === "complete",
    );
    return doubtful.length === 0 ? new Set() : await findCompleted(this.#db, doubtful);
  }

  #tellEmpty(): void {
    for (const resolve of this.#onEmpty.splice(0)) resolve();
  }
}

type Other = Exclude<Settlement, { kind: "complete" }>;
type RowOf<Kind extends Other["kind"]> = Extract<Other, { kind: Kind }>["row"];

function rowsOf<Kind extends Other["kind"]>(
  tasks: readonly ClaimedTask[],
  kind: Kind,
): RowOf<Kind>[] {
  return tasks.flatMap(({ settlement }) =>
    settlement?.kind === kind ? [(settlement as Extract<Other, { kind: Kind }>).row] : [],
  ) as RowOf<Kind>[];
}
