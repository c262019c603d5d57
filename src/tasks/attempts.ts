import type { Timers } from "../base/timers.ts";
import { inTrace } from "../base/trace-context.ts";
import type { ClaimedTask } from "./claimed-task.ts";
import type { Outcome } from "./outcome.ts";
import { checkOutcome } from "./outcome.ts";
import { LATER } from "./queue.ts";
import { RunningContext, type TaskActs } from "./running-context.ts";
import { validated } from "./schema.ts";
import { settle, settleError, settleInvalid } from "./settlement.ts";
import type { Settlement } from "./sql/finish.ts";
import { TaskTimeoutError } from "./task.ts";

export interface AttemptsOptions {
  readonly acts: TaskActs;
  /** Of whoever runs them: its end also ends the wait for a handler that never returns. */
  readonly timers: Timers;
  readonly random: () => number;
  /** How the task ended: from its handler or its timeout, whoever is first. */
  readonly onEnded: (task: ClaimedTask, settlement: Settlement) => void;
  /** The handler gave its slot back, which may be long after its timeout. */
  readonly onReturned: (task: ClaimedTask) => void;
}

/** Calls handlers, one attempt each: payload checked, time limited, what it said checked. */
export class Attempts {
  readonly #options: AttemptsOptions;
  /** Of tasks whose end is told later, where their time is limited. */
  readonly #timeouts = new Map<ClaimedTask, () => void>();

  constructor(options: AttemptsOptions) {
    this.#options = options;
  }

  run(task: ClaimedTask): void {
    if (task.handler.queue.schema === undefined) this.#call(task);
    else void this.#checkAndCall(task);
  }

  async #checkAndCall(task: ClaimedTask): Promise<void> {
    const { schema, name } = task.handler.queue;
    try {
      if (schema !== undefined) {
        task.setPayload(await validated(schema, task.payload, `the payload of queue "${name}"`));
      }
    } catch (error) {
      this.#end(task, settleInvalid(task, error));
      return;
    }
    this.#call(task);
  }

  /** Without closures but the two of a promise, unless it is traced: this runs for every task. */
  #call(task: ClaimedTask): void {
    let cancelTimeout: (() => void) | undefined;
    let returned: unknown;
    try {
      cancelTimeout = this.#armTimeout(task);
      const context = new RunningContext(task, this.#options.acts);
      returned =
        task.traceParent === undefined
          ? task.handler.run(task, context)
          : inTrace(task, () => task.handler.run(task, context));
    } catch (error) {
      cancelTimeout?.();
      this.#threw(task, error);
      return;
    }
    if (returned === LATER) {
      if (cancelTimeout !== undefined) this.#timeouts.set(task, cancelTimeout);
      return;
    }
    if (!isThenable(returned)) {
      cancelTimeout?.();
      this.#returned(task, returned);
      return;
    }
    returned.then(
      (value) => {
        cancelTimeout?.();
        this.#returned(task, value);
      },
      (error: unknown) => {
        cancelTimeout?.();
        this.#threw(task, error);
      },
    );
  }

  /** What a handler said later. */
  ended(task: ClaimedTask, outcome: Outcome): void {
    const cancelTimeout = this.#timeouts.get(task);
    if (cancelTimeout !== undefined) {
      cancelTimeout();
      this.#timeouts.delete(task);
    }
    this.#returned(task, outcome);
  }

  #returned(task: ClaimedTask, value: unknown): void {
    let settlement: Settlement;
    try {
      const outcome = checkOutcome(value);
      if (outcome.kind === "completed" && isResultToCheck(task)) {
        void this.#checkResult(task, outcome);
        return;
      }
      settlement = settle(task, outcome, this.#options.random);
    } catch (error) {
      this.#threw(task, error);
      return;
    }
    this.#end(task, settlement);
  }

  async #checkResult(task: ClaimedTask, outcome: Outcome): Promise<void> {
    const { resultSchema, name } = task.handler.queue;
    try {
      if (resultSchema !== undefined) {
        await validated(resultSchema, outcome.value, `the result of queue "${name}"`);
      }
      this.#end(task, settle(task, outcome, this.#options.random));
    } catch (error) {
      this.#threw(task, error);
    }
  }

  #threw(task: ClaimedTask, error: unknown): void {
    this.#end(task, settleError(task, error, "failed", this.#options.random));
  }

  #end(task: ClaimedTask, settlement: Settlement): void {
    task.dropPayload();
    if (task.state === "started") this.#options.onEnded(task, settlement);
    this.#options.onReturned(task);
  }

  #armTimeout(task: ClaimedTask): (() => void) | undefined {
    const seconds = task.options.timeoutSeconds ?? task.handler.queue.settings.timeoutSeconds;
    if (seconds === null || seconds === undefined) return undefined;
    const leftMs = Math.max(0, seconds * 1000 - (task.ranMs ?? 0));
    return this.#options.timers.after(leftMs, () => {
      if (task.state !== "started") return;
      const error = new TaskTimeoutError(`the handler took longer than ${seconds} s`);
      abortTask(task, error);
      this.#options.onEnded(task, settleError(task, error, "timeout", this.#options.random));
    });
  }
}

/** A handler that completed its task itself gave the result with that, and it was checked there. */
function isResultToCheck({ handler, isCompletedByHandler }: ClaimedTask): boolean {
  return handler.queue.resultSchema !== undefined && !isCompletedByHandler;
}

export function abortTask(task: ClaimedTask, error: Error): void {
  if (task.abort?.signal.aborted === true) return;
  task.abort ??= new AbortController();
  task.abort.abort(error);
  task.handler.aborted?.(task, error);
}

function isThenable(value: unknown): value is PromiseLike<unknown> {
  if (typeof value !== "object" || value === null || !("then" in value)) return false;
  return typeof value.then === "function";
}
