import type { ClaimedTask } from "./claimed-task.ts";
import { Fifo } from "./fifo.ts";

interface Line {
  /** Released to run and not settled. */
  running: number;
  readonly waiting: Fifo<ClaimedTask>;
}

/**
 * The keyed tasks that this worker holds, one line per key. A task is released to run only when the
 * database has accepted the end of the one before it; a line that was cut is given back whole.
 */
export class KeyLines {
  readonly #lines = new Map<string, Line>();
  #waiting = 0;
  /** By key: how many are on their way back to the database. */
  readonly #returning = new Map<string, number>();
  readonly #recorders = new Set<Set<string>>();

  /** Held behind others of their key. */
  get waiting(): number {
    return this.#waiting;
  }

  /** Whether it may run now; otherwise it waits in its line. Tasks of a key come in order. */
  enter(key: string, task: ClaimedTask): boolean {
    let line = this.#lines.get(key);
    if (line === undefined) {
      line = { running: 0, waiting: new Fifo() };
      this.#lines.set(key, line);
    }
    if (line.waiting.size === 0 && line.running < keyConcurrency(task)) {
      line.running += 1;
      task.holdsKey = true;
      return true;
    }
    line.waiting.push(task);
    this.#waiting += 1;
    return false;
  }

  /** The next of the line, after one of it ended for good. */
  leave(key: string): ClaimedTask | undefined {
    const line = this.#lines.get(key);
    if (line === undefined) return undefined;
    line.running -= 1;
    let next = line.waiting.peek();
    // What was cancelled or lost while it waited is no longer there to run.
    while (next !== undefined && next.state !== "claimed") {
      line.waiting.shift();
      this.#waiting -= 1;
      next = line.waiting.peek();
    }
    if (next !== undefined && line.running < keyConcurrency(next)) {
      line.waiting.shift();
      this.#waiting -= 1;
      line.running += 1;
      next.holdsKey = true;
      return next;
    }
    if (line.running === 0 && line.waiting.size === 0) this.#lines.delete(key);
    return undefined;
  }

  /** Everything that waits in the line: it must not run here now. */
  cut(key: string): ClaimedTask[] {
    const line = this.#lines.get(key);
    if (line === undefined) return [];
    const cut = line.waiting.drain();
    this.#waiting -= cut.length;
    return cut;
  }

  cutAll(): ClaimedTask[] {
    return [...this.#lines.keys()].flatMap((key) => this.cut(key));
  }

  /** Is to be given back: until the database has it, later ones of its key must not be claimed. */
  startReturning(key: string): void {
    this.#returning.set(key, (this.#returning.get(key) ?? 0) + 1);
  }

  endReturning(key: string): void {
    const left = (this.#returning.get(key) ?? 0) - 1;
    if (left > 0) this.#returning.set(key, left);
    else this.#returning.delete(key);
  }

  isReturning(key: string): boolean {
    return this.#returning.has(key);
  }

  /**
   * Keys of the space of which nothing more is wanted now: so many wait here that more would only
   * be kept from other workers, or some are on their way back.
   */
  fullKeys(keySpaceId: number, max: number): string[] {
    const full = [...this.#returning.keys()];
    if (this.#waiting >= max) {
      for (const [key, line] of this.#lines) if (line.waiting.size >= max) full.push(key);
    }
    return full.flatMap((id) => {
      const one = splitKey(id);
      return one.keySpaceId === keySpaceId ? [one.key] : [];
    });
  }

  /**
   * Keys that are cut from now on. A claim that is on its way may bring tasks that were behind a
   * head which comes back meanwhile: those must not run before it.
   */
  recordCuts(): Set<string> {
    const cuts = new Set<string>();
    this.#recorders.add(cuts);
    return cuts;
  }

  stopRecording(cuts: Set<string>): void {
    this.#recorders.delete(cuts);
  }

  recordCut(key: string): void {
    for (const cuts of this.#recorders) cuts.add(key);
  }

  /** How many of each key of the space this worker holds. */
  counts(keySpaceId: number): { tenant: string; key: string; count: number }[] {
    return [...this.#lines].flatMap(([id, line]) => {
      const { tenant, key, ...of } = splitKey(id);
      return of.keySpaceId === keySpaceId
        ? [{ tenant, key, count: line.running + line.waiting.size }]
        : [];
    });
  }
}

/** As keyId() made it. */
function splitKey(id: string): { keySpaceId: number; tenant: string; key: string } {
  const [keySpaceId, tenant = "", key = ""] = id.split("\u0000");
  return { keySpaceId: Number(keySpaceId), tenant, key };
}

const keyConcurrency = (task: ClaimedTask): number => task.handler.queue.settings.keyConcurrency;
