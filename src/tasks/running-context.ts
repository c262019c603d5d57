import type { SqlExecutor } from "../db/executor.ts";
import type { ClaimedTask } from "./claimed-task.ts";
import type { TaskContext } from "./context.ts";
import { type ContextActs, HandlerContext } from "./handler-context.ts";
import type { LeaseToken } from "./task.ts";

/** How the context reaches the database. */
export interface TaskActs extends ContextActs<ClaimedTask> {
  /** The handler is about to do something with the lease of this task alone. */
  usesLease(task: ClaimedTask): void;
  complete(task: ClaimedTask, tx: SqlExecutor, result: unknown): Promise<void>;
}

/** Of a handler in a process that has the database. */
export class RunningContext extends HandlerContext<ClaimedTask, TaskActs> implements TaskContext {
  override get token(): LeaseToken {
    this.acts.usesLease(this.task);
    return this.task.token;
  }

  async complete(tx: SqlExecutor, result?: unknown): Promise<void> {
    await this.acts.complete(this.task, tx, result);
  }
}
