import type { PersistedEvent } from "../events/event.ts";

/** All events above `from` up to and including `to`: nothing else exists or ever will there. */
export interface Chunk {
  readonly from: bigint;
  readonly to: bigint;
  readonly events: readonly PersistedEvent[];
}

/** A piece of the log for one batch, complete in (after, target]. */
export interface Window {
  readonly after: bigint;
  readonly target: bigint;
  readonly events: readonly PersistedEvent[];
}

interface Entry extends Chunk {
  readonly sizeBytes: number;
}

/**
 * Recent pieces of the log, shared by the consumers of a process so that each event is read once.
 * Bounded in bytes; the pieces that nobody took for longest go first, and never the newest: a
 * consumer far behind could not go on without it.
 */
export class WindowCache {
  readonly #bytesMax: number;
  #entries: Entry[] = [];
  /** The same entries, those not used for longest first. */
  readonly #byUse = new Set<Entry>();
  #bytes = 0;

  constructor(bytesMax: number) {
    this.#bytesMax = bytesMax;
  }

  clear(): void {
    this.#entries = [];
    this.#byUse.clear();
    this.#bytes = 0;
  }

  /** Pieces do not overlap: of one that would, the first part that is not known yet is kept. */
  add(chunk: Chunk): void {
    let index = this.#entries.length;
    while (index > 0 && (this.#entries[index - 1]?.from ?? 0n) > chunk.from) index -= 1;
    const from = larger(chunk.from, this.#entries[index - 1]?.to ?? chunk.from);
    const to = smaller(chunk.to, this.#entries[index]?.from ?? chunk.to);
    if (to <= from) return;
    const events = chunk.events.filter(({ position }) => position > from && position <= to);
    const sizeBytes = events.reduce((sum, event) => sum + event.sizeBytes, 100);
    const entry = { from, to, events, sizeBytes };
    this.#entries.splice(index, 0, entry);
    this.#byUse.add(entry);
    this.#bytes += sizeBytes;
    for (const unused of this.#byUse) {
      if (this.#bytes <= this.#bytesMax || unused === entry) break;
      this.#byUse.delete(unused);
      this.#entries.splice(this.#find(unused.from), 1);
      this.#bytes -= unused.sizeBytes;
    }
  }

  /** Forgets pieces that end at or below `position`. */
  dropBelow(position: bigint): void {
    let count = 0;
    for (const entry of this.#entries) {
      if (entry.to > position) break;
      this.#byUse.delete(entry);
      this.#bytes -= entry.sizeBytes;
      count += 1;
    }
    if (count > 0) this.#entries.splice(0, count);
  }

  /** Where the piece that covers the position above `after` ends. */
  endOf(after: bigint): bigint | undefined {
    return this.#entries[this.#find(after)]?.to;
  }

  /** Whether the piece that begins here, or covers it, is present. */
  has(after: bigint): boolean {
    return this.#find(after) >= 0;
  }

  /** As much as is known above `after`, at most `countMax` events; undefined when nothing is. */
  take(after: bigint, countMax: number): Window | undefined {
    let index = this.#find(after);
    if (index < 0) return undefined;
    const events: PersistedEvent[] = [];
    let target = after;
    for (let entry = this.#entries[index]; entry !== undefined; entry = this.#entries[index]) {
      if (entry.from > target) break; // A piece in between is missing.
      this.#byUse.delete(entry);
      this.#byUse.add(entry);
      const start = firstAbove(entry.events, after);
      const room = countMax - events.length;
      const available = entry.events.length - start;
      if (available > room) {
        events.push(...entry.events.slice(start, start + room));
        return { after, target: events.at(-1)?.position ?? target, events };
      }
      events.push(...entry.events.slice(start));
      target = entry.to;
      index += 1;
    }
    return { after, target, events };
  }

  #find(after: bigint): number {
    let low = 0;
    let high = this.#entries.length - 1;
    while (low <= high) {
      const middle = (low + high) >> 1;
      const entry = this.#entries[middle];
      if (entry === undefined) return -1;
      if (after < entry.from) high = middle - 1;
      else if (after >= entry.to) low = middle + 1;
      else return middle;
    }
    return -1;
  }
}

/** The first events of a piece, at most `countMax`. */
export function windowOf({ from, to, events }: Chunk, countMax: number): Window {
  if (events.length <= countMax) return { after: from, target: to, events };
  const first = events.slice(0, countMax);
  return { after: from, target: first.at(-1)?.position ?? from, events: first };
}

const larger = (a: bigint, b: bigint): bigint => (a > b ? a : b);
const smaller = (a: bigint, b: bigint): bigint => (a < b ? a : b);

function firstAbove(events: readonly PersistedEvent[], position: bigint): number {
  let low = 0;
  let high = events.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((events[middle]?.position ?? 0n) > position) high = middle;
    else low = middle + 1;
  }
  return low;
}
