import type { ClaimedTask, KeyLine } from "./claimed-task.ts";
import { PER_KEY_MAX } from "./prefetch.ts";
import { FIELD } from "./sql/claim.ts";
import { bucketOfLane } from "./task.ts";

/**
 * The keyed tasks that this worker holds, one line per key. A task is released to run only when the
 * database has accepted the end of the one before it; a line that was cut is given back whole.
 */
export class KeyLines {
  readonly #lines = new Map<string, KeyLine>();
  #waiting = 0;
  #ahead = 0;
  /** By key: how many are on their way back to the database. */
  readonly #returning = new Map<string, number>();
  readonly #recorders = new Set<Set<string>>();
  readonly #spaces = new Map<number, { ahead: number }>();

  /** Held behind others of their key. */
  get waiting(): number {
    return this.#waiting;
  }

  /** The same, but of one key no more than a few: the others wait for each other, not for slots. */
  get ahead(): number {
    return this.#ahead;
  }

  /** Whether it holds none, and none is on its way back. */
  get isEmpty(): boolean {
    return this.#lines.size === 0 && this.#returning.size === 0;
  }

  /** Whether it may run now; otherwise it waits in its line. Tasks of a key come in order. */
  enter(key: string, task: ClaimedTask): boolean {
    let line = this.#lines.get(key);
    if (line === undefined) {
      const space = this.#spaceOf(bucketOfLane(task.lane).keySpaceId);
      line = { running: 0, waiting: 0, first: undefined, last: undefined, space };
      this.#lines.set(key, line);
    }
    if (line.first === undefined && line.running < keyConcurrency(task)) {
      line.running += 1;
      task.releasedFrom = line;
      return true;
    }
    if (line.last === undefined) line.first = task;
    else line.last.nextInLine = task;
    line.last = task;
    this.#count(line, 1);
    return false;
  }

  /** The next of its line, after one that was released has ended here. */
  leave(key: string, task: ClaimedTask): ClaimedTask | undefined {
    const line = task.releasedFrom;
    if (line === undefined) return undefined; // It waited behind another one.
    task.releasedFrom = undefined;
    line.running -= 1;
    let next = line.first;
    // What was cancelled or lost while it waited is no longer there to run.
    while (next !== undefined && next.state !== "claimed") next = this.#shift(line);
    if (next !== undefined && line.running < keyConcurrency(next)) {
      this.#shift(line);
      line.running += 1;
      next.releasedFrom = line;
      return next;
    }
    if (line.running === 0 && line.first === undefined) this.#lines.delete(key);
    return undefined;
  }

  /** Takes the first out, and gives the one behind it. */
  #shift(line: KeyLine): ClaimedTask | undefined {
    const { first } = line;
    if (first === undefined) return undefined;
    line.first = first.nextInLine;
    first.nextInLine = undefined;
    if (line.first === undefined) line.last = undefined;
    this.#count(line, -1);
    return line.first;
  }

  #count(line: KeyLine, change: 1 | -1): void {
    const before = Math.min(line.waiting, PER_KEY_MAX);
    line.waiting += change;
    this.#waiting += change;
    const more = Math.min(line.waiting, PER_KEY_MAX) - before;
    this.#ahead += more;
    line.space.ahead += more;
  }

  #spaceOf(keySpaceId: number): { ahead: number } {
    const known = this.#spaces.get(keySpaceId);
    if (known !== undefined) return known;
    // Lines hold on to theirs; one of which none waits counts nothing.
    if (this.#lines.size === 0) this.#spaces.clear();
    const space = { ahead: 0 };
    this.#spaces.set(keySpaceId, space);
    return space;
  }

  /** As `ahead`, of one key space. */
  aheadOf(keySpaceId: number): number {
    return this.#spaces.get(keySpaceId)?.ahead ?? 0;
  }

  /** Everything that waits in the line: it must not run here now. */
  cut(key: string): ClaimedTask[] {
    const line = this.#lines.get(key);
    if (line === undefined) return [];
    const cut: ClaimedTask[] = [];
    for (let next = line.first; next !== undefined; next = this.#shift(line)) cut.push(next);
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
   * Keys of the space, each behind its tenant, of which nothing more is wanted now: so many wait
   * here that more would only be kept from other workers, or some are on their way back.
   */
  fullKeys(keySpaceId: number, max: number): string[] {
    const full = [...this.#returning.keys()];
    if (this.#waiting >= max) {
      // Without a pair for each of thousands of lines.
      this.#lines.forEach((line, key) => {
        if (line.waiting >= max) full.push(key);
      });
    }
    return full.flatMap((id) => {
      const { tenant, key, ...of } = splitKey(id);
      return of.keySpaceId === keySpaceId ? [`${tenant}${FIELD}${key}`] : [];
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
        ? [{ tenant, key, count: line.running + line.waiting }]
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
