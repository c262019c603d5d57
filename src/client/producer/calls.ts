import { TidemillError } from "../../base/errors.ts";
import { RemoteError } from "../remote-error.ts";

/** A task that was stored. */
export interface EnqueuedTask {
  /** A decimal number, never changed. */
  readonly id: string;
  readonly queue: string;
}

/** What became of one task of many. */
export type EnqueueResult =
  | (EnqueuedTask & { readonly error?: undefined })
  | { readonly error: TidemillError; readonly id?: undefined };

/** One call of a user, with one task or many. It ends once: answered, or failed as a whole. */
export interface Call {
  readonly deadlineMs: number;
  readonly isOver: boolean;
  /** Its id, or why the task was not stored. */
  answer(place: number, answer: string | TidemillError): void;
  fail(error: Error): void;
}

interface Settle<Value> {
  readonly resolve: (value: Value) => void;
  readonly reject: (error: Error) => void;
}

/** One task. */
export class OneCall implements Call {
  readonly deadlineMs: number;
  isOver = false;
  readonly #queue: string;
  readonly #settle: Settle<EnqueuedTask>;

  constructor(queue: string, deadlineMs: number, settle: Settle<EnqueuedTask>) {
    this.#queue = queue;
    this.deadlineMs = deadlineMs;
    this.#settle = settle;
  }

  answer(_place: number, answer: string | TidemillError): void {
    this.isOver = true;
    if (typeof answer === "string") this.#settle.resolve({ id: answer, queue: this.#queue });
    else this.#settle.reject(answer);
  }

  fail(error: Error): void {
    this.isOver = true;
    this.#settle.reject(error);
  }
}

/** Many tasks, each with an answer of its own. */
export class EachCall implements Call {
  readonly deadlineMs: number;
  isOver = false;
  readonly #queue: string;
  readonly #settle: Settle<EnqueueResult[]>;
  readonly #results: EnqueueResult[];
  #open: number;

  constructor(queue: string, count: number, deadlineMs: number, settle: Settle<EnqueueResult[]>) {
    this.#queue = queue;
    this.deadlineMs = deadlineMs;
    this.#settle = settle;
    this.#results = Array.from<EnqueueResult>({ length: count });
    this.#open = count;
  }

  answer(place: number, answer: string | TidemillError): void {
    this.#results[place] =
      typeof answer === "string" ? { id: answer, queue: this.#queue } : { error: answer };
    this.#open -= 1;
    if (this.#open > 0) return;
    this.isOver = true;
    this.#settle.resolve(this.#results);
  }

  fail(error: Error): void {
    this.isOver = true;
    this.#settle.reject(error);
  }
}

/** Those of an atomic create: the first that was not stored is the failure of all. */
export function allOrNothing(results: readonly EnqueueResult[]): EnqueuedTask[] {
  return results.map((result) => {
    if (result.error !== undefined) throw result.error;
    return result;
  });
}

/** A task that the server said nothing about, though it answered its create. */
export const unanswered = (): TidemillError =>
  new RemoteError({
    code: "TM_INTERNAL",
    message: "the server answered the create without this task",
    retryable: false,
    retryAfterMs: 0,
  });
