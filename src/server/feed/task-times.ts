import type { FeedRow } from "./feed-row.ts";

/** How long the tasks of one row waited before they ran, or ran before they stopped running. */
export interface RowTimes {
  readonly waitMs: readonly number[];
  readonly runMs: readonly number[];
}

const TASKS_MAX = 50_000;
const NONE: RowTimes = { waitMs: [], runMs: [] };

/**
 * Tells how long tasks waited and ran, from the changes that pass by. Of a task whose beginning was
 * not seen it tells nothing, and it remembers so many tasks at most: the oldest are forgotten.
 */
export class TaskTimes {
  readonly #pending = new Map<string, number>();
  readonly #running = new Map<string, number>();
  readonly #tasksMax: number;

  constructor(tasksMax = TASKS_MAX) {
    this.#tasksMax = tasksMax;
  }

  /** Rows come in the order of their positions. */
  note(row: FeedRow): RowTimes {
    if (row.kind !== "task") return NONE;
    const waitMs: number[] = [];
    const runMs: number[] = [];
    const atMs = row.at.getTime();
    for (const id of row.taskIds()) {
      const startedMs = take(this.#running, id);
      if (startedMs !== undefined) runMs.push(Math.max(0, atMs - startedMs));
      const waitsSinceMs = take(this.#pending, id);
      if (row.state === "running") {
        if (waitsSinceMs !== undefined) waitMs.push(Math.max(0, atMs - waitsSinceMs));
        this.#keep(this.#running, id, atMs);
      } else if (row.state === "pending") this.#keep(this.#pending, id, waitsSinceMs ?? atMs);
    }
    return { waitMs, runMs };
  }

  clear(): void {
    this.#pending.clear();
    this.#running.clear();
  }

  #keep(times: Map<string, number>, id: string, atMs: number): void {
    if (times.size >= this.#tasksMax) {
      const [oldest] = times.keys();
      if (oldest !== undefined) times.delete(oldest);
    }
    times.set(id, atMs);
  }
}

function take(times: Map<string, number>, id: string): number | undefined {
  const found = times.get(id);
  if (found !== undefined) times.delete(id);
  return found;
}
