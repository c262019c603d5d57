import { inTrace, isTracing } from "../../base/trace-context.ts";
import { checkOutcome, type Outcome } from "../../tasks/outcome.ts";
import { validated } from "../../tasks/schema.ts";
import { endOf, invalidAct, threwAct, type WireAct } from "./end-act.ts";
import { RemoteContext, type RemoteContextActs } from "./remote-context.ts";
import type { RemoteTask } from "./remote-task.ts";

export interface AttemptsOptions {
  readonly acts: RemoteContextActs;
  readonly resultBytesMax: () => number;
  /** What its handler said of a task, or what is wrong with what it said. */
  readonly onEnded: (task: RemoteTask, act: WireAct, didThrow: boolean) => void;
  /** The handler gave its slot back. Always after `onEnded`. */
  readonly onReturned: (task: RemoteTask) => void;
}

/** Calls handlers, one attempt each: payload checked, and what they say checked. */
export class Attempts {
  readonly #options: AttemptsOptions;

  constructor(options: AttemptsOptions) {
    this.#options = options;
  }

  run(task: RemoteTask): void {
    if (task.handler.queue.schema === undefined) this.#call(task);
    else void this.#checkAndCall(task);
  }

  async #checkAndCall(task: RemoteTask): Promise<void> {
    const { schema, name } = task.handler.queue;
    try {
      if (schema !== undefined) {
        task.setPayload(await validated(schema, task.payload, `the payload of queue "${name}"`));
      }
    } catch (error) {
      this.#end(task, invalidAct(error), false);
      return;
    }
    this.#call(task);
  }

  /** Without closures but the two of a promise, unless it is traced: this runs for every task. */
  #call(task: RemoteTask): void {
    let returned: unknown;
    try {
      const context = new RemoteContext(task, this.#options.acts);
      returned = isTracing()
        ? inTrace(task, () => task.handler.run(task, context))
        : task.handler.run(task, context);
    } catch (error) {
      this.#threw(task, error);
      return;
    }
    if (!isThenable(returned)) {
      this.#returned(task, returned);
      return;
    }
    returned.then(
      (value) => this.#returned(task, value),
      (error: unknown) => this.#threw(task, error),
    );
  }

  #returned(task: RemoteTask, value: unknown): void {
    let act: WireAct;
    try {
      const outcome = checkOutcome(value);
      if (outcome.kind === "completed" && task.handler.queue.resultSchema !== undefined) {
        void this.#checkResult(task, outcome);
        return;
      }
      act = endOf(outcome, this.#options.resultBytesMax());
    } catch (error) {
      this.#end(task, threwAct(error), false);
      return;
    }
    this.#end(task, act, false);
  }

  async #checkResult(task: RemoteTask, outcome: Outcome): Promise<void> {
    const { resultSchema, name } = task.handler.queue;
    let act: WireAct;
    try {
      if (resultSchema !== undefined) {
        await validated(resultSchema, outcome.value, `the result of queue "${name}"`);
      }
      act = endOf(outcome, this.#options.resultBytesMax());
    } catch (error) {
      act = threwAct(error);
    }
    this.#end(task, act, false);
  }

  #threw(task: RemoteTask, error: unknown): void {
    this.#end(task, threwAct(error), true);
  }

  #end(task: RemoteTask, act: WireAct, didThrow: boolean): void {
    this.#options.onEnded(task, act, didThrow);
    this.#options.onReturned(task);
  }
}

function isThenable(value: unknown): value is PromiseLike<unknown> {
  if (typeof value !== "object" || value === null || !("then" in value)) return false;
  return typeof value.then === "function";
}
