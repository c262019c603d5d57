import { exponentialMs, withJitter } from "../../base/backoff.ts";
import { messageOf } from "../../base/errors.ts";
import type { Logger } from "../../base/log.ts";
import type { Timers } from "../../base/timers.ts";
import type { WrittenEnd } from "../../tasks/queue.ts";
import { LeaseLostError, type TaskState } from "../../tasks/task.ts";
import type { Failure } from "../../wire/generated/tidemill/v1/stream.ts";
import type { ActAck } from "../../wire/generated/tidemill/v1/worker.ts";
import { errorOf } from "../remote-error.ts";
import type { PendingAct } from "./act-line.ts";
import { ABANDON, failAct, type WireAct } from "./end-act.ts";
import type { RemoteTask } from "./remote-task.ts";
import type { TaskAck } from "./worker-options.ts";

export interface TaskEndsOptions {
  readonly timers: Timers;
  readonly random: () => number;
  readonly logger: Logger;
  readonly add: (act: PendingAct) => void;
  /** The server has answered for it: it is over. */
  readonly onOver: (task: RemoteTask) => void;
  readonly onAck: ((ack: TaskAck) => void) | undefined;
}

const REFUSED_MS = 100;
const REFUSED_MS_MAX = 5_000;

const WRITTEN: Readonly<Partial<Record<string, WrittenEnd>>> = {
  completed: "complete",
  pending: "put-back",
  scheduled: "put-back",
  failed: "end",
  dead: "bury",
};

/** How a task ended, until the server has answered for it. */
class TaskEnd implements PendingAct {
  readonly task: RemoteTask;
  readonly act: WireAct;
  readonly #ends: TaskEnds;
  /** What was refused for good before this was said. */
  readonly refused: readonly WireAct[];
  refusals = 0;

  constructor(
    task: RemoteTask,
    act: WireAct,
    ends: TaskEnds,
    { refused = [] }: { readonly refused?: readonly WireAct[] } = {},
  ) {
    this.task = task;
    this.act = act;
    this.#ends = ends;
    this.refused = refused;
  }

  onAck(ack: ActAck): void {
    this.#ends.answered(this, ack);
  }
}

/** Says how tasks ended until it is acknowledged, and hears what became of them. */
export class TaskEnds {
  readonly #options: TaskEndsOptions;
  /** Refused for a passing reason, and to be sent again. */
  #paused = 0;
  #isClosed = false;

  constructor(options: TaskEndsOptions) {
    this.#options = options;
  }

  get paused(): number {
    return this.#paused;
  }

  /** The first to say how a task ended is heard: its handler, its timeout, or a stop. */
  end(task: RemoteTask, act: WireAct): void {
    task.state = "ended";
    this.#options.add(new TaskEnd(task, act, this));
  }

  /** Nothing is said any more: what is answered from now on is over, whatever the answer. */
  close(): void {
    this.#isClosed = true;
  }

  answered(end: TaskEnd, ack: ActAck): void {
    const { task, act } = end;
    const { failure } = ack;
    if (failure?.retryable === true) {
      this.#sayAgain(end, failure);
      return;
    }
    const error = failure === undefined ? undefined : errorOfAct(task, failure);
    if (error !== undefined) {
      const fields = { task: task.id, queue: task.queue, act: act.$case, error: error.message };
      this.#options.logger.warn(fields, "the end of a task was refused");
    }
    const isOver = failure === undefined || this.#isClosed || OVER.has(failure.code);
    if (isOver || !this.#sayInstead(end, failure)) {
      task.state = "over";
      this.#options.onOver(task);
      task.handler.settled?.(task, error === undefined ? WRITTEN[ack.state] : undefined);
    }
    this.#tell(end, ack, error);
  }

  /**
   * The server still holds the task for this worker, and renews it: something must end the claim,
   * or nobody ever runs it. False when nothing that may be said does: then its server loses it.
   */
  #sayInstead({ task, act, refused }: TaskEnd, failure: Failure): boolean {
    const instead = insteadOf(act, refused, failure);
    if (instead !== undefined) {
      this.#options.add(new TaskEnd(task, instead, this, { refused: [...refused, act] }));
      return true;
    }
    const { id, queue, link } = task;
    this.#options.logger.error({ task: id, queue }, "no end of a task is accepted; it is let go");
    // Tasks that wait or run are named at the next server, and stay; this one is not.
    link?.abort(`no end of task ${id} is accepted`);
    return false;
  }

  #sayAgain(end: TaskEnd, { retryAfterMs }: Failure): void {
    const { timers, random, add } = this.#options;
    end.refusals += 1;
    const pauseMs = exponentialMs(end.refusals, REFUSED_MS, REFUSED_MS_MAX);
    this.#paused += 1;
    timers.after(Math.max(retryAfterMs, withJitter(pauseMs, random)), () => {
      this.#paused -= 1;
      add(end);
    });
  }

  /** What a user's function throws is not the end of the worker. */
  #tell({ task, act }: TaskEnd, { state, delaySeconds }: ActAck, error: Error | undefined): void {
    const { onAck, logger } = this.#options;
    try {
      onAck?.({
        task,
        act: act.$case as TaskAck["act"],
        state: error === undefined ? (state as TaskState) : undefined,
        delaySeconds,
        error,
      });
    } catch (thrown) {
      logger.error({ error: messageOf(thrown) }, "onAck threw");
    }
  }
}

/** Somebody else has it, or the server wrote another end of it. */
const OVER = new Set(["TM_LEASE_LOST", "TM_CONFLICT"]);

/** A failure that is tried again by the queue's policy; then uncounted; then there is nothing. */
function insteadOf(
  act: WireAct,
  refused: readonly WireAct[],
  { code, message }: Failure,
): WireAct | undefined {
  if (refused.length === 0) return failAct(`the end was refused: ${code}: ${message}`, false);
  return [...refused, act].includes(ABANDON) ? undefined : ABANDON;
}

function errorOfAct(task: RemoteTask, failure: Failure): Error {
  return failure.code === "TM_LEASE_LOST" ? new LeaseLostError(task.token) : errorOf(failure);
}
