import type { Clock } from "../../base/clock.ts";
import { messageOf } from "../../base/errors.ts";
import type { Logger } from "../../base/log.ts";
import type { Tidemill } from "../../worker/tidemill.ts";

export type Readiness = "ready" | "draining" | "database";

const FRESH_MS = 1_000;

/** Whether this server should be sent requests. Asks the database at most once a second. */
export class ReadinessCheck {
  readonly #mill: Tidemill;
  readonly #clock: Clock;
  readonly #logger: Logger;
  #isDraining = false;
  #asked: { readonly atMs: number; readonly answer: Promise<boolean> } | undefined;

  constructor(mill: Tidemill, clock: Clock, logger: Logger) {
    this.#mill = mill;
    this.#clock = clock;
    this.#logger = logger;
  }

  /** From now on nobody should send more. */
  drain(): void {
    this.#isDraining = true;
  }

  async look(): Promise<Readiness> {
    if (this.#isDraining) return "draining";
    const nowMs = this.#clock.now();
    if (this.#asked === undefined || nowMs - this.#asked.atMs >= FRESH_MS) {
      this.#asked = { atMs: nowMs, answer: this.#ask() };
    }
    return (await this.#asked.answer) ? "ready" : "database";
  }

  async #ask(): Promise<boolean> {
    try {
      await this.#mill.assertReady();
      return true;
    } catch (error) {
      this.#logger.warn({ error: messageOf(error) }, "not ready");
      return false;
    }
  }
}
