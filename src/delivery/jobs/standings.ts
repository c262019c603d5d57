import { PRIORITY_NAMES, rankOf } from "../../tasks/priority.ts";
import type { Standing } from "./targets.ts";

/** What is asked of a task to tell how it stands. */
export interface Ranked {
  readonly id: string;
  readonly priority: number;
  readonly isOnProbation: boolean;
  /** From when on it may run. */
  readonly runAt: Date;
}

export interface StandingsOptions {
  /** Seconds of waiting that weigh as much as one step of priority. */
  readonly agingSeconds: number;
  /** Of those that were sent away, so many are remembered. Defaults to 20,000. */
  readonly awayMax?: number;
}

const AWAY_MAX = 20_000;

/**
 * How tasks stand to each other that want a place of one host: as those that want a slot of the
 * engine, by priority and by since when they might run. A task that was sent away because its host
 * was full did not choose to wait: this worker remembers since when it does. Another one that gets
 * it counts from when it came back.
 */
export class Standings {
  readonly #options: StandingsOptions;
  readonly #sinceMs = new Map<string, number>();

  constructor(options: StandingsOptions) {
    this.#options = options;
  }

  of(task: Ranked): Standing {
    const sinceMs = this.#sinceOf(task);
    return {
      rank: rankOf(task, sinceMs, this.#options.agingSeconds),
      isHigh: task.priority >= PRIORITY_NAMES.high,
    };
  }

  /** It comes back later. */
  sentAway(task: Ranked): void {
    const sinceMs = this.#sinceOf(task);
    this.#sinceMs.delete(task.id);
    const { awayMax = AWAY_MAX } = this.#options;
    const [oldest] = this.#sinceMs.keys();
    if (oldest !== undefined && this.#sinceMs.size >= awayMax) this.#sinceMs.delete(oldest);
    this.#sinceMs.set(task.id, sinceMs);
  }

  /** It has its place. If it is tried again it waits anew. */
  called(task: Ranked): void {
    this.#sinceMs.delete(task.id);
  }

  #sinceOf({ id, runAt }: Ranked): number {
    return this.#sinceMs.get(id) ?? runAt.getTime();
  }
}
