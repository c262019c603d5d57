import type { Timers } from "../../base/timers.ts";
import type { ClaimTokens } from "../../tasks/claim-tokens.ts";
import type { Assignment, AssignmentList } from "./assignment.ts";

/** Between two looks, of which there are none while nobody drains. */
const LOOK_MS = 500;
/** In one statement. */
const ASKED_MAX = 1_000;

/**
 * What streams hold that end with the last of it. Their workers were told to go elsewhere: there
 * they may keep a task, or say by its token how it ended, and only the database knows. It is asked
 * for all of them at once, so that nobody waits for what is not here any more.
 */
export class Departures {
  readonly #timers: Timers;
  readonly #tokens: () => Pick<ClaimTokens, "findOwn">;
  readonly #lists = new Set<AssignmentList>();
  #isLooking = false;

  constructor(timers: Timers, tokens: () => Pick<ClaimTokens, "findOwn">) {
    this.#timers = timers;
    this.#tokens = tokens;
  }

  /** Nothing is added to it any more. */
  add(list: AssignmentList): void {
    this.#lists.add(list);
    this.#lookLater();
  }

  #lookLater(): void {
    if (this.#isLooking || this.#lists.size === 0) return;
    this.#isLooking = true;
    this.#timers.after(LOOK_MS, () => void this.#look());
  }

  async #look(): Promise<void> {
    const running = this.#running();
    for (let from = 0; from < running.length; from += ASKED_MAX) {
      await this.#letGo(running.slice(from, from + ASKED_MAX));
    }
    this.#isLooking = false;
    this.#lookLater();
  }

  #running(): Assignment[] {
    const running: Assignment[] = [];
    for (const list of this.#lists) {
      if (list.size === 0) this.#lists.delete(list);
      for (const one of list.all()) if (one.isRunning) running.push(one);
    }
    return running;
  }

  async #letGo(some: readonly Assignment[]): Promise<void> {
    let own: ReadonlySet<number>;
    try {
      own = await this.#tokens().findOwn(some.map(({ task }) => task.token));
    } catch {
      return; // The database is away: it is asked again.
    }
    for (const [place, one] of some.entries()) {
      // Its token is the worker's, which may still use it: nothing is to be said of it here.
      if (!own.has(place) && one.isRunning) one.giveBack();
    }
  }
}
