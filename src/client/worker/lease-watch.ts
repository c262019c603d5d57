import type { Clock } from "../../base/clock.ts";
import type { RemoteTask } from "./remote-task.ts";

type Watched = Pick<
  RemoteTask,
  | "state"
  | "timeoutAtMs"
  | "trustedUntilMs"
  | "orphanUntilMs"
  | "renewAtMs"
  | "isDoubtful"
  | "isRenewing"
>;

/** `timeout`: its time is up. `doubt`: its trust has ended. `renew`: ask for an extension. */
export type Due = "timeout" | "doubt" | "renew";

/** What is to be done about a task that waits or runs. */
export function dueOf(task: Watched, nowMs: number, canAsk: boolean): Due | undefined {
  if (task.state === "running" && task.timeoutAtMs <= nowMs) return "timeout";
  if (task.isDoubtful) return undefined;
  if (Math.min(task.trustedUntilMs, task.orphanUntilMs) <= nowMs) return "doubt";
  return canAsk && !task.isRenewing && task.renewAtMs <= nowMs ? "renew" : undefined;
}

/** When to look at it again. */
export function nextLookMs(task: Watched, canAsk: boolean): number {
  const timeoutMs = task.state === "running" ? task.timeoutAtMs : Infinity;
  if (task.isDoubtful) return timeoutMs;
  const trustMs = Math.min(task.trustedUntilMs, task.orphanUntilMs);
  const renewMs = canAsk && !task.isRenewing ? task.renewAtMs : Infinity;
  return Math.min(timeoutMs, trustMs, renewMs);
}

/** Looks no more often than this, however many tasks there are. */
const LOOK_MS_MIN = 20;

/** One timer for the deadlines of all tasks. */
export class LeaseWatch {
  readonly #clock: Clock;
  /** Does what is due, and says when to look again. */
  readonly #look: (nowMs: number) => number;
  #cancel: (() => void) | undefined;
  #atMs = Infinity;
  #isClosed = false;

  constructor(clock: Clock, look: (nowMs: number) => number) {
    this.#clock = clock;
    this.#look = look;
  }

  noLaterThan(atMs: number): void {
    if (this.#isClosed || atMs >= this.#atMs) return;
    this.#cancel?.();
    this.#atMs = atMs;
    const waitMs = Math.max(LOOK_MS_MIN, atMs - this.#clock.now());
    this.#cancel = this.#clock.after(waitMs, () => {
      this.#cancel = undefined;
      this.#atMs = Infinity;
      this.noLaterThan(this.#look(this.#clock.now()));
    });
  }

  close(): void {
    this.#isClosed = true;
    this.#cancel?.();
  }
}
