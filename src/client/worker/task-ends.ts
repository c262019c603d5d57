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
import type { WireAct } from "./end-act.ts";
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
  refusals = 0;

  constructor(task: RemoteTask, act: WireAct, ends: TaskEnds) {
    this.task = task;
    this.act = act;
    this.#ends = ends;
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

  answered(end: TaskEnd, { failure, state, delaySeconds }: ActAck): void {
    if (failure?.retryable === true) {
      this.#sayAgain(end, failure);
      return;
    }
    const { task, act } = end;
    task.state = "over";
    this.#options.onOver(task);
    const error = failure === undefined ? undefined : errorOfAct(task, failure);
    if (error !== undefined) {
      const fields = { task: task.id, queue: task.queue, act: act.$case, error: error.message };
      this.#options.logger.warn(fields, "the end of a task was refused");
    }
    task.handler.settled?.(task, error === undefined ? WRITTEN[state] : undefined);
    if (this.#options.onAck === undefined) return;
    this.#tell(this.#options.onAck, {
      task,
      act: act.$case as TaskAck["act"],
      state: error === undefined ? (state as TaskState) : undefined,
      delaySeconds,
      error,
    });
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
  #tell(onAck: (ack: TaskAck) => void, ack: TaskAck): void {
    try {
      onAck(ack);
    } catch (error) {
      this.#options.logger.error({ error: messageOf(error) }, "onAck threw");
    }
  }
}

function errorOfAct(task: RemoteTask, failure: Failure): Error {
  return failure.code === "TM_LEASE_LOST" ? new LeaseLostError(task.token) : errorOf(failure);
}
