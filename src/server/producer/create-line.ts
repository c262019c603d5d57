import { Bell } from "../../base/bell.ts";
import type { Clock } from "../../base/clock.ts";
import {
  CommitUnknownError,
  InvalidInputError,
  messageOf,
  TidemillError,
  UnavailableError,
} from "../../base/errors.ts";
import type { Logger } from "../../base/log.ts";
import { runLoop, type TurnResult } from "../../base/loop.ts";
import type { Service } from "../../base/supervisor.ts";
import { isLockTimeout, isRefusal } from "../../db/sqlstate.ts";
import { type TaskIntake, waitsForKey } from "../../tasks/intake.ts";
import type { StoreResult } from "../../tasks/store.ts";
import type { ServerMetrics } from "../metrics.ts";
import { type CommitLimits, CreateTurns } from "./create-turns.ts";
import { byTenant, type Create, divide, type Part, tasksOf } from "./open-create.ts";

export interface CreateLineOptions {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly metrics: ServerMetrics;
  readonly limits: CommitLimits;
}

const IDLE_MS = 60_000;

/**
 * Commits the creates of all clients together: at once when idle, and while one transaction is on
 * its way the next is gathered. Every create is settled once:
 *
 * - stored: the transaction was committed.
 * - refused: nothing of it is stored. What the database refuses is divided until the culprit is
 *   alone, in turns with everybody else's creates. That the database is away is no refusal of
 *   anything: all of the transaction is told so, and nothing is divided. Of a create that was
 *   divided before, what is stored stays so, and only the rest is refused.
 * - unknown: COMMIT was not answered.
 */
export class CreateLine implements Service {
  readonly name = "creates";
  readonly #intake: Pick<TaskIntake, "store">;
  readonly #options: CreateLineOptions;
  readonly #turns = new CreateTurns();
  readonly #bell = new Bell();
  #isStopped = false;

  constructor(intake: Pick<TaskIntake, "store">, options: CreateLineOptions) {
    this.#intake = intake;
    this.#options = options;
  }

  submit(create: Create): void {
    if (this.#isStopped) {
      create.settle({ kind: "refused", error: stopping() });
      return;
    }
    this.#turns.add(create);
    this.#bell.ring();
  }

  /** Nobody waits for the creates of this source any more; those not under way are not stored. */
  forget(tenant: string, source: object): void {
    const error = new UnavailableError("the client has gone");
    for (const open of this.#turns.remove(tenant, source)) open.settle({ kind: "refused", error });
  }

  async run(signal: AbortSignal): Promise<void> {
    const { clock, logger } = this.#options;
    const onFailure = (error: unknown): number => {
      logger.error({ error: messageOf(error) }, "the line of creates failed");
      return 0;
    };
    const turn = async (): Promise<TurnResult> => await this.#turn();
    await runLoop(turn, { clock, bell: this.#bell, onFailure }, signal);
    this.#isStopped = true;
    for (const open of this.#turns.removeAll()) open.settle({ kind: "refused", error: stopping() });
  }

  async #turn(): Promise<TurnResult> {
    const parts = this.#turns.take(this.#options.limits);
    if (parts.length === 0) return { restMs: IDLE_MS };
    let results: StoreResult[][];
    try {
      results = await this.#commit(parts);
    } catch (error) {
      this.#onFailure(parts, error);
      return "again";
    }
    // Apart from the above: nothing that happens from here on makes them less stored.
    for (const [index, part] of parts.entries()) part.open.resolve(part.from, results[index] ?? []);
    return "again";
  }

  async #commit(parts: readonly Part[]): Promise<StoreResult[][]> {
    const { clock, metrics } = this.#options;
    const begunMs = clock.now();
    const bulks = parts.map((part) => ({
      tasks: tasksOf(part),
      isAtomic: part.open.create.isAtomic,
    }));
    const results = await this.#intake.store(bulks);
    metrics.createCommit.observe((clock.now() - begunMs) / 1000);
    return results;
  }

  #onFailure(parts: readonly Part[], error: unknown): void {
    const { logger } = this.#options;
    if (error instanceof CommitUnknownError) {
      logger.error({ creates: parts.length, error: messageOf(error) }, "a commit was not answered");
      for (const { open } of parts) open.settle({ kind: "unknown", error });
    } else if (isLockTimeout(error)) this.#refuseLocked(parts, error);
    else if (isRefusal(error) || error instanceof RangeError) this.#divide(parts, error);
    else {
      logger.error({ creates: parts.length, error: messageOf(error) }, "creates were not stored");
      for (const { open } of parts) open.settle({ kind: "refused", error });
    }
  }

  #divide(parts: readonly Part[], error: unknown): void {
    const pieces = divide(parts);
    if (pieces !== undefined) {
      this.#turns.putBack(pieces);
      return;
    }
    for (const part of parts) this.#refuse(part, error);
  }

  /**
   * A transaction of somebody else holds a key. Only those who need one are told, because waiting
   * for it would keep all others waiting.
   */
  #refuseLocked(parts: readonly Part[], error: unknown): void {
    const tenants = byTenant(parts);
    if (tenants.length > 1) {
      this.#turns.putBack(tenants);
      return;
    }
    const [locking, others] = [parts.filter(needsLock), parts.filter((part) => !needsLock(part))];
    for (const part of locking.length > 0 ? locking : others) this.#refuse(part, error);
    if (locking.length > 0 && others.length > 0) this.#turns.putBack([others]);
  }

  #refuse(part: Part, error: unknown): void {
    const { tenant, isAtomic } = part.open.create;
    const tasks = tasksOf(part);
    const queue = tasks[0]?.shape.queue;
    const fields = { tenant, queue, tasks: tasks.length, error: messageOf(error) };
    this.#options.logger.warn(fields, "the database refused a create");
    const told =
      error instanceof TidemillError
        ? error
        : new InvalidInputError("the database refuses the task", { cause: error });
    if (isAtomic) part.open.settle({ kind: "refused", error: told });
    else
      part.open.resolve(
        part.from,
        tasks.map(() => told),
      );
  }
}

const needsLock = (part: Part): boolean => tasksOf(part).some(waitsForKey);

const stopping = (): UnavailableError => new UnavailableError("the server is stopping");
