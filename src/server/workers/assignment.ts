import type { ClaimedTask } from "../../tasks/claimed-task.ts";
import type { TaskContext } from "../../tasks/context.ts";
import { abandon, abandonBy, type Outcome } from "../../tasks/outcome.ts";
import type { WrittenEnd } from "../../tasks/queue.ts";

/**
 * What became of what a worker said: written as it was said; not, because the claim is over; or
 * something else was written, because that could not be.
 */
export type Answer = "accepted" | "refused" | "replaced";

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
 * a word.
 */
export class Assignment {
  readonly task: ClaimedTask;
  readonly context: TaskContext;
  /** For the executor: resolves when the slot is free. */
  readonly returned: Promise<Outcome>;
  #resolve: (outcome: Outcome) => void = () => {};
  #onAnswer: ((answer: Answer) => void) | undefined;
  #after: (() => void)[] = [];
  #expected: readonly WrittenEnd[] = [];

  constructor(task: ClaimedTask, context: TaskContext) {
    this.task = task;
    this.context = context;
    this.returned = new Promise((resolve) => {
      this.#resolve = resolve;
    });
  }

  /** Whether the worker may still say how it ended. */
  get isRunning(): boolean {
    return this.task.state === "started" && !this.isEnding;
  }

  /** Whether the worker said how it ended, and nobody has answered yet. */
  get isEnding(): boolean {
    return this.#onAnswer !== undefined;
  }

  /** The worker said how it ended; `onAnswer` hears, once, what the database said to that. */
  end(outcome: Outcome, onAnswer: (answer: Answer) => void): void {
    if (!this.isRunning) {
      onAnswer("refused");
      this.#resolve(outcome); // A slot that nobody holds any more.
      return;
    }
    this.#onAnswer = onAnswer;
    this.#expected = expectedOf(outcome);
    this.#resolve(outcome);
  }

  /** This server gives it back, unless the worker has brought it to another. */
  giveBack(): void {
    this.end(abandonBy(this.context.workerId), () => {});
  }

  /** Called when what was said is answered; at once when nothing was. */
  afterAnswer(tell: () => void): void {
    if (this.isEnding) this.#after.push(tell);
    else tell();
  }

  /** What the database wrote; something else than what was said, perhaps, when it refused that. */
  answered(written: WrittenEnd | undefined): void {
    if (written === undefined) this.#tell("refused");
    else this.#tell(this.#expected.includes(written) ? "accepted" : "replaced");
  }

  /** Nobody will speak for it: its slot is free. What was said before is not accepted any more. */
  drop(): void {
    this.#tell("refused");
    this.#resolve(abandon());
  }

  #tell(answer: Answer): void {
    const onAnswer = this.#onAnswer;
    this.#onAnswer = undefined;
    onAnswer?.(answer);
    for (const tell of this.#after.splice(0)) tell();
  }
}
