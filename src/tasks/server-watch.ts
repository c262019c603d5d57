import type { TaskSession } from "./session.ts";
import { placeMarker } from "./sql/crash-marker.ts";

/**
 * Tells whether the server is still the one that something was learnt from. A crash takes back
 * claims that were seen, and numbers that were settled. It ends every connection, but a pooler
 * hides that from clients between two statements; so each look also reads a marker that no crash
 * leaves.
 */
export class ServerWatch {
  readonly #session: TaskSession;
  readonly #onCrash: () => void;
  #incarnation = 0;
  #marker: string | undefined;

  /** @param onCrash forgets what was learnt */
  constructor(session: TaskSession, onCrash: () => void) {
    this.#session = session;
    this.#onCrash = onCrash;
  }

  /** What a claim names that must not rely on an older server. Null: nothing was learnt yet. */
  get marker(): string | null {
    return this.#marker ?? null;
  }

  /**
   * Whether what a look saw goes with what was learnt before. If not, that was forgotten, and the
   * look, which was asked with it in mind, is to be made again.
   */
  async confirms(marker: string | null): Promise<boolean> {
    const { incarnation } = this.#session;
    if (this.#marker === marker && this.#incarnation === incarnation) return true;
    const isFirst = this.#marker === undefined && marker !== null;
    this.#incarnation = incarnation;
    this.#marker = marker ?? undefined;
    if (isFirst) return true;
    this.#onCrash();
    if (marker === null) await placeMarker(this.#session);
    return false;
  }
}
