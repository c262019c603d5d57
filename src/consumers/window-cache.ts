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
 * Bounded in bytes; the pieces lowest in the log go first, because consumers move up.
 */
export class WindowCache {
  readonly #bytesMax: number;
  #entries: Entry[] = [];
  #bytes = 0;

  constructor(bytesMax: number) {
    this.#bytesMax = bytesMax;
  }

  clear(): void {
    this.#entries = [];
    this.#bytes = 0;
  }

  /** Pieces may not overlap: one that does replaces nothing and is dropped. */
  add(chunk: Chunk): void {
    if (chunk.to <= chunk.from) return;
    let index = this.#entries.length;
    while (index > 0 && (this.#entries[index - 1]?.from ?? 0n) >= chunk.from) index -= 1;
    const before = this.#entries[index - 1];
    const behind = this.#entries[index];
    if (before !== undefined && before.to > chunk.from) return;
    if (behind !== undefined && behind.from < chunk.to) return;
    const sizeBytes = chunk.events.reduce((sum, event) => sum + event.sizeBytes, 100);
    this.#entries.splice(index, 0, { ...chunk, sizeBytes });
    this.#bytes += sizeBytes;
    while (this.#bytes > this.#bytesMax && this.#entries.length > 1) {
      const lowest = this.#entries.shift();
      this.#bytes -= lowest?.sizeBytes ?? 0;
    }
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
