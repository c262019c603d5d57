import { LimitError } from "../../base/errors.ts";
import type { Budget, Place } from "../producer/budget.ts";

const RETRY_MS = 1_000;

/** What the body of one call takes of the room that all bodies have, until it is given back. */
export class BodyRoom {
  readonly #budget: Budget;
  #place: Place | undefined;

  constructor(budget: Budget) {
    this.#budget = budget;
  }

  /**
   * So much instead of what it took before; throws a LimitError when there is not so much. Nobody
   * waits: whoever sends slowly would keep all others waiting.
   */
  take(tenant: string, bytes: number): void {
    this.release();
    this.#place = this.#budget.take(tenant, bytes);
    if (this.#place.waiting === undefined) return;
    this.release();
    throw new LimitError(
      "the bodies that are under way take all the room there is; send fewer at once, or later",
      RETRY_MS,
    );
  }

  release(): void {
    this.#place?.release();
    this.#place = undefined;
  }
}
