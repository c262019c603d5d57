import type { Clock } from "../../src/base/clock.ts";
import type { Random } from "../support/random.ts";
import type { Timeline } from "./timeline.ts";

export interface ClockFault {
  /** What its clock shows at the beginning. */
  readonly startMs: number;
  /** Milliseconds that its clock counts in one. */
  readonly rate: number;
}

/** A timer of Node's waits at least so long. */
const TIMER_MS_MIN = 1;
/** How late a timer may be in a process that has other things to do. */
const LATE_MS_MAX = 2;

/**
 * One process: everything that happens to it comes through here, its timers and what it hears from
 * the network. While it stands still nothing happens; then all of it at once, late.
 */
export class SimProcess {
  readonly clock: Clock;
  /** When it last went on after standing still. */
  stoodStillUntil = -Infinity;
  readonly #timeline: Timeline;
  #state: "running" | "still" | "dead" = "running";
  #missed: { readonly isTimer: boolean; readonly run: () => void }[] = [];

  constructor(timeline: Timeline, random: Random, { startMs, rate }: ClockFault) {
    this.#timeline = timeline;
    this.clock = {
      now: () => startMs + timeline.now * rate,
      after: (ms, wake) => {
        const lateMs = random.next() * LATE_MS_MAX;
        const trueMs = Math.max(TIMER_MS_MIN, ms) / rate + lateMs;
        let isOff = false;
        const cancel = timeline.after(trueMs, () => this.#happen(true, () => isOff || wake()));
        return () => {
          isOff = true;
          cancel();
        };
      },
    };
  }

  get isDead(): boolean {
    return this.#state === "dead";
  }
  get isStill(): boolean {
    return this.#state === "still";
  }

  /** Something arrived from outside. */
  hear(run: () => void): void {
    this.#happen(false, run);
  }

  #happen(isTimer: boolean, run: () => void): void {
    if (this.#state === "dead") return;
    if (this.#state === "still") {
      this.#missed.push({ isTimer, run });
      return;
    }
    this.#timeline.stir();
    run();
  }

  standStill(): void {
    if (this.#state === "running") this.#state = "still";
  }

  /** What was missed happens now: what was heard before the timers, or after them. */
  goOn(timersFirst: boolean): void {
    if (this.#state !== "still") return;
    this.#state = "running";
    this.stoodStillUntil = this.#timeline.now;
    const missed = this.#missed;
    this.#missed = [];
    const [first, second] = timersFirst ? [true, false] : [false, true];
    const ordered = [
      ...missed.filter((one) => one.isTimer === first),
      ...missed.filter((one) => one.isTimer === second),
    ];
    // Each in an event of its own: promises go on between them, and it may stand still again.
    for (const { isTimer, run } of ordered) {
      this.#timeline.after(0, () => this.#happen(isTimer, run));
    }
  }

  die(): void {
    this.#state = "dead";
    this.#missed = [];
  }
}
