import { ConflictError } from "../../base/errors.ts";
import type { ClaimedTask } from "../../tasks/claimed-task.ts";
import type { Outcome } from "../../tasks/outcome.ts";
import type { EndedClaim } from "../../tasks/sql/by-token.ts";
import { LeaseLostError, type TaskState } from "../../tasks/task.ts";
import type { Answer } from "./assignment.ts";

/** What an act has done, durably. */
export interface ActDone {
  /** Where the task is now. */
  readonly state: TaskState;
  /** Of a task that was put back: when it may run again. */
  readonly delaySeconds: number;
  /** Of an extend. */
  readonly until?: Date;
  /** How long the lease lasts, counted from now. */
  readonly remainingMs?: number;
}

export const RUNNING: ActDone = { state: "running", delaySeconds: 0 };

type Ending = Pick<ClaimedTask, "settlement" | "partitionKey" | "isCancelled" | "token">;

/** What was written of an end, or why it was not. */
export function toDone(task: Ending, answer: Answer): ActDone | Error {
  const { settlement } = task;
  if (answer === "accepted" && settlement !== undefined) {
    switch (settlement.kind) {
      case "complete":
        return { state: "completed", delaySeconds: 0 };
      case "put-back": {
        const { delay } = settlement.row;
        const isScheduled = delay > 0 && task.partitionKey === undefined;
        return { state: isScheduled ? "scheduled" : "pending", delaySeconds: delay };
      }
      case "end":
        return { state: settlement.row.state, delaySeconds: 0 };
      case "bury":
        return { state: "dead", delaySeconds: 0 };
    }
  }
  if (answer !== "replaced" || task.isCancelled) return new LeaseLostError(task.token);
  return new ConflictError("this end cannot be stored: the attempt was recorded as failed");
}

/**
 * The claim is over. When it ended as it is said now, the worker may not have heard the answer and
 * is told once more; otherwise undefined.
 */
export function toldAgain(said: Outcome, ended: EndedClaim): ActDone | undefined {
  const { state, outcome, delay } = ended;
  const isBack = state === "pending" || state === "scheduled";
  const isSame: Readonly<Record<Outcome["kind"], boolean>> = {
    completed: state === "completed",
    failed: said.retry
      ? state === "dead" || (isBack && outcome === "failed")
      : state === (said.isInvalid ? "dead" : "failed"),
    nack: state === "dead" || (isBack && outcome === "nack"),
    abandon: false, // Nothing tells who gave a task back.
  };
  return isSame[said.kind] ? { state, delaySeconds: delay } : undefined;
}
