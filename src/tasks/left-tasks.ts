import type { Clock } from "../base/clock.ts";
import type { Timers } from "../base/timers.ts";
import type { LeaseToken } from "./task.ts";

export interface LeftTasksOptions {
  readonly clock: Clock;
  readonly timers: Timers;
  /** Places of those whose claims stand in the database. */
  readonly findStanding: (tokens: readonly LeaseToken[]) => Promise<ReadonlySet<number>>;
  /** Whether the queue has a limit of concurrency now. */
  readonly isLimited: (queue: string) => boolean;
}

interface Left {
  readonly queue: string;
  readonly token: LeaseToken;
  readonly uncount: () => void;
  /** Not asked for before. */
  dueMs: number;
}

/** The database is asked no more often than this, for all of them at once. */
const TURN_MS = 1_000;
/** Without a limit nobody waits for a slot; but one may come, and must find them counted. */
const UNLIMITED_MS = 30_000;
const TOKENS_MAX = 1_000;

/**
 * Tasks that were claimed here and are left to others: their leases were lost, or somebody outside
 * has them. Each counts against the limits of its queue until its claim is over. Only the database
 * knows when: another server may have taken the task over, and renew its lease for hours.
 */
export class LeftTasks {
  readonly #options: LeftTasksOptions;
  /** Those that were asked for last come last. */
  readonly #left = new Set<Left>();
  #isResting = false;

  constructor(options: LeftTasksOptions) {
    this.#options = options;
  }

  /**
   * Asked for after so long. Gives what is to be called when it is known to be over before that.
   *
   * @param uncount called once, when the claim is over
   */
  leave(
    { queue, token }: Pick<Left, "queue" | "token">,
    ms: number,
    uncount: () => void,
  ): () => void {
    const left: Left = { queue, token, uncount, dueMs: this.#options.clock.now() + ms };
    this.#left.add(left);
    this.#rest();
    return () => this.#end(left);
  }

  #rest(): void {
    if (this.#isResting || this.#left.size === 0) return;
    this.#isResting = true;
    this.#options.timers.after(TURN_MS, () => void this.#turn());
  }

  async #turn(): Promise<void> {
    const due = this.#due();
    if (due.length > 0) await this.#ask(due);
    this.#isResting = false;
    this.#rest();
  }

  #due(): Left[] {
    const { clock, isLimited } = this.#options;
    const due: Left[] = [];
    for (const left of this.#left) {
      const atMs = left.dueMs + (isLimited(left.queue) ? 0 : UNLIMITED_MS);
      if (atMs <= clock.now()) due.push(left);
      if (due.length === TOKENS_MAX) break;
    }
    return due;
  }

  async #ask(due: readonly Left[]): Promise<void> {
    const standing = await this.#standing(due);
    for (const [place, left] of due.entries()) {
      if (standing?.has(place) === false) this.#end(left);
      else if (this.#left.delete(left)) {
        left.dueMs = this.#options.clock.now();
        this.#left.add(left);
      }
    }
  }

  /** Undefined: the database did not answer, and all of them count until it does. */
  async #standing(some: readonly Left[]): Promise<ReadonlySet<number> | undefined> {
    try {
      return await this.#options.findStanding(some.map(({ token }) => token));
    } catch {
      return undefined;
    }
  }

  #end(left: Left): void {
    if (this.#left.delete(left)) left.uncount();
  }
}
