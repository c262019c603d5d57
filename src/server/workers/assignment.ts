import type { ClaimedTask } from "../../tasks/claimed-task.ts";
import type { TaskContext } from "../../tasks/context.ts";
import { abandon, abandonBy, type Outcome } from "../../tasks/outcome.ts";
import type { WrittenEnd } from "../../tasks/queue.ts";

/**
 * What became of what a worker said: written as it was said; not, because the claim is over; or
 * something else was written, because that could not be.
 */
export type Answer = "accepted" | "refused" | "replaced";

/** @param place of what was said among what was said with it */
export type OnAnswer = (answer: Answer, place: number) => void;

/** Whoever runs tasks somewhere else, as far as one task is concerned. */
export interface Holder {
  /** The task is no longer the worker's: it was lost or cancelled, or took too long. */
  onLost(assignment: Assignment, why: Error): void;
  /** The task is no longer the worker's: its end was answered, or another stream has it now. */
  onGone(assignment: Assignment): void;
  /** Its lease lasts longer now. */
  onRenewed(assignment: Assignment): void;
}

/** What is written of each outcome. */
const WRITTEN: Readonly<Record<Outcome["kind"], readonly WrittenEnd[]>> = {
  completed: ["complete"],
  failed: ["put-back", "bury"],
  nack: ["put-back", "bury"],
  abandon: ["put-back"],
};

function expectedOf({ kind, retry, isInvalid }: Outcome): readonly WrittenEnd[] {
  if (kind !== "failed" || retry) return WRITTEN[kind];
  return isInvalid ? ["bury"] : ["end"];
}

/**
 * One task in the hands of a remote worker: running → said (the worker told how it ended) →
 * answered (that was written, or something else was, or the lease was lost before). One that
 * nobody may speak for any more, because it was lost, timed out or was cancelled, is over without
 * a word. There are thousands: nothing is made for one that it may not need.
 */
export class Assignment {
  readonly task: ClaimedTask;
  readonly context: TaskContext;
  /** Whose it is; undefined while nobody has it. */
  holder: Holder | undefined;
  /** The list in which it is, and its neighbours there. */
  list: AssignmentList | undefined;
  previous: Assignment | undefined;
  next: Assignment | undefined;
  /** Tells the engine how it ended, which frees its slot. */
  readonly #onReturn: (task: ClaimedTask, outcome: Outcome) => void;
  #isReturned = false;
  #onAnswer: OnAnswer | undefined;
  #place = 0;
  #after: (() => void)[] | undefined;
  #expected: readonly WrittenEnd[] | undefined;

  constructor(
    task: ClaimedTask,
    context: TaskContext,
    onReturn: (task: ClaimedTask, outcome: Outcome) => void,
  ) {
    this.task = task;
    this.context = context;
    this.#onReturn = onReturn;
  }

  /** Whether the worker may still say how it ended. */
  get isRunning(): boolean {
    return this.task.state === "started" && this.#onAnswer === undefined;
  }

  /** Whether the worker said how it ended, and nobody has answered yet. */
  get isEnding(): boolean {
    return this.#onAnswer !== undefined;
  }

  /**
   * The worker said how it ended; `onAnswer` hears, once, what the database said to that.
   *
   * @param place that `onAnswer` is told: one function may hear of many
   */
  end(outcome: Outcome, onAnswer: OnAnswer, place = 0): void {
    if (!this.isRunning) {
      onAnswer("refused", place);
      this.#return(outcome); // A slot that nobody holds any more.
      return;
    }
    this.#onAnswer = onAnswer;
    this.#place = place;
    this.#expected = expectedOf(outcome);
    this.#return(outcome);
  }

  /** This server gives it back, unless the worker has brought it to another. */
  giveBack(): void {
    this.end(abandonBy(this.context.workerId), () => {});
  }

  /** Called when what was said is answered; at once when nothing was. */
  afterAnswer(tell: () => void): void {
    if (this.isEnding) (this.#after ??= []).push(tell);
    else tell();
  }

  /** What the database wrote; something else than what was said, perhaps, when it refused that. */
  answered(written: WrittenEnd | undefined): void {
    if (written === undefined) this.#tell("refused");
    else this.#tell(this.#expected?.includes(written) === true ? "accepted" : "replaced");
  }

  /**
   * Nobody will speak for it: its slot is free, once the engine has done with it what it is about
   * to do. What was said before is not accepted any more.
   */
  drop(): void {
    this.#tell("refused");
    queueMicrotask(() => this.#return(abandon()));
  }

  #return(outcome: Outcome): void {
    if (this.#isReturned) return;
    this.#isReturned = true;
    this.#onReturn(this.task, outcome);
  }

  #tell(answer: Answer): void {
    const onAnswer = this.#onAnswer;
    this.#onAnswer = undefined;
    onAnswer?.(answer, this.#place);
    const after = this.#after;
    this.#after = undefined;
    if (after !== undefined) for (const tell of after) tell();
  }
}

/**
 * The assignments that a worker holds. Each is in one list at most, and knows its place there, so
 * that it comes and goes without being looked for.
 */
export class AssignmentList {
  #first: Assignment | undefined;
  #size = 0;

  get size(): number {
    return this.#size;
  }

  add(one: Assignment): void {
    if (one.list === this) return;
    one.list?.delete(one);
    one.list = this;
    one.next = this.#first;
    if (this.#first !== undefined) this.#first.previous = one;
    this.#first = one;
    this.#size += 1;
  }

  /** Does nothing when it is not in this list. */
  delete(one: Assignment): void {
    if (one.list !== this) return;
    const { previous, next } = one;
    if (previous === undefined) this.#first = next;
    else previous.next = next;
    if (next !== undefined) next.previous = previous;
    one.list = undefined;
    one.previous = undefined;
    one.next = undefined;
    this.#size -= 1;
  }

  /** All of them, as they are now. */
  all(): Assignment[] {
    const all: Assignment[] = [];
    for (let one = this.#first; one !== undefined; one = one.next) all.push(one);
    return all;
  }
}
