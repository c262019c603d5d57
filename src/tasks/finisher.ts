import { exponentialMs } from "../base/backoff.ts";
import { Bell } from "../base/bell.ts";
import type { Clock } from "../base/clock.ts";
import { messageOf } from "../base/errors.ts";
import type { Logger } from "../base/log.ts";
import { runLoop, type TurnResult } from "../base/loop.ts";
import type { Service } from "../base/supervisor.ts";
import type { Queryable } from "../db/database.ts";
import type { ClaimedTask } from "./claimed-task.ts";
import type { Settlement } from "./settlement.ts";
import {
  buryTasks,
  type Completion,
  completeTasks,
  endTasks,
  findCompleted,
  putBackTasks,
} from "./sql/finish.ts";

/** How it went: refused means that the lease was lost, or that the task was cancelled. */
export type OnSettled = (task: ClaimedTask, settlement: Settlement, accepted: boolean) => void;

export interface FinisherOptions {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly onSettled: OnSettled;
}

interface Entry {
  readonly task: ClaimedTask;
  readonly settlement: Settlement;
  /** It was sent before and no answer came: it may have been accepted. */
  isDoubtful: boolean;
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
  #waiting: Entry[] = [];
  #sending: Entry[] = [];
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
    this.#waiting.push({ task, settlement, isDoubtful: false });
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
    const answers = await this.#send(this.#sending);
    const sent = this.#sending;
    this.#sending = [];
    for (const entry of sent) {
      this.#options.onSettled(entry.task, entry.settlement, answers(entry));
    }
    return "again";
  }

  /** All statements are written at once, one behind the other. */
  async #send(entries: readonly Entry[]): Promise<(entry: Entry) => boolean> {
    const found = await this.#findDoubtful(entries);
    const open = entries.filter(
      ({ task, settlement }) =>
        !found.has(task.id) && !(task.isCompletedByHandler && settlement.kind === "complete"),
    );
    const asked = new Set(open);
    for (const entry of open) entry.isDoubtful = true;
    const claims = this.#endedClaims.splice(0);
    try {
      const accepted = await Promise.all([
        this.#complete(rowsOf(open, "complete"), claims),
        rowsOf(open, "put-back").length === 0
          ? new Set<string>()
          : putBackTasks(this.#db, rowsOf(open, "put-back")),
        rowsOf(open, "end").length === 0
          ? new Set<string>()
          : endTasks(this.#db, rowsOf(open, "end")),
        rowsOf(open, "bury").length === 0
          ? new Set<string>()
          : buryTasks(this.#db, rowsOf(open, "bury")),
      ]);
      const [completed, putBack, ended, buried] = accepted;
      const ids = { "put-back": putBack, end: ended, bury: buried };
      return (entry) => {
        const { task, settlement } = entry;
        if (!asked.has(entry)) return found.has(task.id);
        if (settlement.kind !== "complete") return ids[settlement.kind].has(task.id);
        return completed === undefined || completed.has(task.id);
      };
    } catch (error) {
      this.#endedClaims.push(...claims);
      throw error;
    }
  }

  async #complete(
    rows: readonly Completion[],
    claims: readonly string[],
  ): Promise<Set<string> | undefined> {
    if (rows.length === 0 && claims.length === 0) return undefined;
    return await completeTasks(this.#db, rows, claims);
  }

  async #findDoubtful(entries: readonly Entry[]): Promise<Set<string>> {
    const rows = rowsOf(
      entries.filter((entry) => entry.isDoubtful || entry.task.isCompletedByHandler),
      "complete",
    );
    return rows.length === 0 ? new Set() : await findCompleted(this.#db, rows);
  }

  #tellEmpty(): void {
    for (const resolve of this.#onEmpty.splice(0)) resolve();
  }
}

type RowOf<Kind extends Settlement["kind"]> = Extract<Settlement, { kind: Kind }>["row"];

function rowsOf<Kind extends Settlement["kind"]>(
  entries: readonly Entry[],
  kind: Kind,
): RowOf<Kind>[] {
  const rows: RowOf<Kind>[] = [];
  for (const { settlement } of entries) {
    if (settlement.kind === kind) rows.push(settlement.row as RowOf<Kind>);
  }
  return rows;
}
