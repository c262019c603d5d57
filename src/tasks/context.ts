import type { Logger } from "../base/log.ts";
import type { SqlExecutor } from "../db/executor.ts";
import type { LeaseToken } from "./task.ts";

/** What a handler may do with the task it runs. */
export interface TaskContext<Result = unknown> {
  /** Aborts when the lease is lost, the task is cancelled or times out, or the worker must stop. */
  readonly signal: AbortSignal;
  /** For `assert_lease` in SQL of your own, and for systems that fence by a growing number. */
  readonly token: LeaseToken;
  /** Until when the claim stands, by the database's clock; it is renewed while the handler runs. */
  readonly leaseUntil: Date;
  readonly workerId: string;
  /** Names the task in everything it writes. */
  readonly log: Logger;
  /** Holds the lease at least so long from now, for work during which renewals may not come. */
  extend(seconds: number): Promise<Date>;
  /** Stored with the task, for people: any JSON. */
  progress(value: unknown): Promise<void>;
  /**
   * Completes the task in your transaction: its effects and its completion commit together, or
   * neither does. Throws LeaseLostError, which must end the transaction, when the lease is lost.
   */
  complete(tx: SqlExecutor, result?: Result): Promise<void>;
}
