import { type Clock, pause } from "../base/clock.ts";
import { messageOf, TimeoutError } from "../base/errors.ts";
import type { Logger } from "../base/log.ts";
import type { Database, Queryable } from "../db/database.ts";
import type { SqlExecutor } from "../db/executor.ts";
import type { ClaimedTask } from "./claimed-task.ts";
import { resultJson } from "./outcome.ts";
import type { PackFinisher } from "./pack-finisher.ts";
import type { TaskActs } from "./running-context.ts";
import { validated } from "./schema.ts";
import { completeTasks } from "./sql/finish.ts";
import { extendLease, saveProgress } from "./sql/lease.ts";
import { openClaimedPack, seesLaterCommits } from "./sql/open-packs.ts";
import { LeaseLostError } from "./task.ts";

/** How long somebody else may have the pack of a task locked. */
const PATIENCE_MS = 10_000;
const LOCKED_MS = 50;

export interface ActsOptions {
  readonly workerId: string;
  readonly logger: Logger;
  readonly clock: Clock;
}

/** What a handler does through its context, on connections of the worker's own. */
export class Acts implements TaskActs {
  readonly workerId: string;
  readonly logger: Logger;
  readonly #db: Database;
  readonly #clock: Clock;
  readonly #packs: PackFinisher;

  constructor(db: Database, packs: PackFinisher, { workerId, logger, clock }: ActsOptions) {
    this.#db = db;
    this.#packs = packs;
    this.#clock = clock;
    this.workerId = workerId;
    this.logger = logger;
  }

  /** From here on its queue is worked on by rows: the lease of a pack is not one task's alone. */
  usesLease({ queue, pack }: ClaimedTask): void {
    this.#packs.use.neverWhole(queue);
    if (pack?.state !== "closed") return;
    this.#packs.open([pack], this.#db).catch((error: unknown) => {
      this.logger.debug({ error: messageOf(error), queue }, "could not open a pack yet");
    });
  }

  /** What is written of one task finds its row. No connection is held while the pack is locked. */
  async #openPack({ pack, queue, token }: ClaimedTask): Promise<void> {
    if (pack === undefined) return;
    this.#packs.use.neverWhole(queue);
    const deadlineMs = this.#clock.now() + PATIENCE_MS;
    while ((await this.#packs.open([pack], this.#db)).has(pack)) {
      if (this.#clock.now() >= deadlineMs) {
        throw new TimeoutError(
          `the lease of task ${token.taskId} is locked, together with others, by a transaction ` +
            "that called assert_lease and has not ended",
        );
      }
      await pause(LOCKED_MS, this.#clock, new AbortController().signal);
    }
  }

  async extend(task: ClaimedTask, seconds: number): Promise<Date> {
    await this.#openPack(task);
    const sentAtMs = this.#clock.now();
    const until = await extendLease(this.#db, task.token, seconds);
    if (until === undefined) throw new LeaseLostError(task.token);
    task.renewed({ until, trustedUntilMs: sentAtMs + seconds * 900 });
    return task.leaseUntil;
  }

  async progress(task: ClaimedTask, json: string): Promise<void> {
    await this.#openPack(task);
    if (!(await saveProgress(this.#db, task.token, json))) throw new LeaseLostError(task.token);
  }

  /**
   * Not in the handler's transaction, if it can be helped: other tasks of the pack would wait for
   * it. But that transaction may have the pack locked itself, or see nothing that others do now.
   */
  async #openPackFor({ pack, queue }: ClaimedTask, tx: Queryable): Promise<void> {
    if (pack === undefined) return;
    this.#packs.use.neverWhole(queue);
    if (pack.state === "open") return;
    const isOpen =
      (await seesLaterCommits(tx)) && !(await this.#packs.open([pack], this.#db)).has(pack);
    if (!isOpen) await openClaimedPack(tx, pack);
  }

  async complete(task: ClaimedTask, tx: SqlExecutor, result: unknown): Promise<void> {
    const { resultSchema, name } = task.handler.queue;
    if (resultSchema !== undefined) {
      await validated(resultSchema, result, `the result of queue "${name}"`);
    }
    const { taskId: id, generation, claimId } = task.token;
    const row = { id, generation, claimId, result: resultJson(result) };
    const over = this.#db.over(tx);
    await this.#openPackFor(task, over);
    const accepted = await completeTasks(over, [row], []);
    if (accepted !== undefined) throw new LeaseLostError(task.token);
    task.isCompletedByHandler = true;
  }
}
