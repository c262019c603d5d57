import type { Clock } from "../../base/clock.ts";
import { ConflictError, ForbiddenError } from "../../base/errors.ts";
import type { JsonText } from "../../base/json-text.ts";
import type { ClaimedTask } from "../../tasks/claimed-task.ts";
import type { Outcome } from "../../tasks/outcome.ts";
import { LeaseLostError, type LeaseToken, type TaskState } from "../../tasks/task.ts";
import type { Answer, Assignment } from "./assignment.ts";
import type { Desk } from "./desk.ts";

/** What somebody does with a task that they hold. */
export type RemoteAct =
  | { readonly kind: "end"; readonly outcome: Outcome }
  | { readonly kind: "extend"; readonly seconds: number }
  | { readonly kind: "progress"; readonly value: JsonText };

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

/** Whose act it is. */
export interface Actor {
  readonly tenant: string;
  /** Whether they may do this to tasks of the queue. */
  readonly may: (queue: string) => boolean;
}

/**
 * Acts on tasks by the whole token of their claim: on those of this desk, whichever stream they
 * came by.
 */
export class RemoteActs {
  readonly #desk: Desk;
  readonly #clock: Clock;

  constructor(desk: Desk, clock: Clock) {
    this.#desk = desk;
    this.#clock = clock;
  }

  /** `onDone` is called once, when what it is told is durable. */
  act(
    actor: Actor,
    token: LeaseToken,
    act: RemoteAct,
    onDone: (answer: ActDone | Error) => void,
  ): void {
    const assignment = this.#desk.find(token, actor.tenant);
    if (assignment?.isRunning !== true) {
      onDone(new LeaseLostError(token));
      return;
    }
    const { queue } = assignment.task;
    if (!actor.may(queue)) {
      onDone(new ForbiddenError(`this token is not for queue ${JSON.stringify(queue)}`));
      return;
    }
    if (act.kind === "end") {
      assignment.end(act.outcome, (answer) => onDone(toDone(assignment.task, answer)));
      return;
    }
    const doing =
      act.kind === "extend"
        ? this.#extend(assignment, act.seconds)
        : assignment.context.progress(act.value).then((): ActDone => RUNNING);
    doing.then(onDone, onDone);
  }

  async #extend({ task, context }: Assignment, seconds: number): Promise<ActDone> {
    const leftMs = timeoutMsOf(task) - (this.#clock.now() - task.startedAtMs);
    if (leftMs <= 0) throw new LeaseLostError(task.token); // Its time is up.
    const until = await context.extend(Math.min(seconds, leftMs / 1000));
    return { ...RUNNING, until, remainingMs: remainingMs(task, this.#clock) };
  }
}

const RUNNING: ActDone = { state: "running", delaySeconds: 0 };

/** How long the worker may count on the lease: less than what the database says. */
export function remainingMs({ trustedUntilMs }: ClaimedTask, clock: Clock): number {
  return Math.max(0, Math.floor(trustedUntilMs - clock.now()));
}

/** Infinity when the task may take as long as it wants. */
export function timeoutMsOf({ options, handler }: ClaimedTask): number {
  const seconds = options.timeoutSeconds ?? handler.queue.settings.timeoutSeconds;
  return seconds === null || seconds === undefined ? Infinity : seconds * 1000;
}

function toDone(task: ClaimedTask, answer: Answer): ActDone | Error {
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
  const isWritten = settlement !== undefined && settlement.kind !== "complete";
  if (!isWritten || task.isCancelled) return new LeaseLostError(task.token);
  return new ConflictError("this end cannot be stored: the attempt was recorded as failed");
}
