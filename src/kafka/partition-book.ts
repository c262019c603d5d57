import type { FetchedBatch, KafkaMessage } from "./source.ts";

/** A message that waits to become a task. */
export interface Buffered<Note> {
  readonly partition: number;
  readonly message: KafkaMessage;
  /** What is stored when this is the last that was taken in. */
  readonly nextOffset: bigint;
  readonly bytes: number;
  /** What was found out about it, so that a second try need not. */
  note: Note | undefined;
}

/** Messages of one partition, from what is stored up to what is to be stored. */
export interface Part<Note> {
  readonly partition: number;
  readonly from: bigint;
  readonly to: bigint;
  readonly messages: readonly Buffered<Note>[];
}

interface Held<Note> {
  /** The next offset as PostgreSQL has it. */
  stored: bigint;
  /** Up to here it was fetched. */
  fetched: bigint;
  waiting: Buffered<Note>[];
}

/** What is to be done about a batch that was fetched. */
export type Reception = "taken" | "ignored" | { readonly seek: bigint };

const HEADER_BYTES = 100;

function bytesOf({ key, value, headers }: KafkaMessage): number {
  let bytes = HEADER_BYTES + (key?.length ?? 0) + (value?.length ?? 0);
  for (const header of headers) bytes += header.name.length + header.value.length;
  return bytes;
}

/**
 * What one member has of its partitions, and how far each of them is. A pure book: it asks nobody.
 *
 * For each partition `stored ≤ fetched`, and what lies between is waiting, in order and without a
 * hole: a batch is taken only when it was asked for at or before `fetched`. So whatever the client
 * does, after a rebalance or a restart of its own, nothing is skipped; and because the offset is
 * compared when it is stored, nothing comes twice.
 */
export class PartitionBook<Note> {
  readonly #held = new Map<number, Held<Note>>();
  #count = 0;
  #bytes = 0;
  /** Whose turn it is. */
  #turn = 0;

  get count(): number {
    return this.#count;
  }

  get bytes(): number {
    return this.#bytes;
  }

  get partitions(): number[] {
    return [...this.#held.keys()];
  }

  /** What PostgreSQL has of each. */
  get stored(): Map<number, bigint> {
    return new Map([...this.#held].map(([partition, { stored }]) => [partition, stored]));
  }

  /** Whether messages of it wait to be stored. */
  waitsOf(partition: number): boolean {
    return (this.#held.get(partition)?.waiting.length ?? 0) > 0;
  }

  /** Forgets everything about it. Nothing is lost: nobody has stored it. */
  drop(partition: number): void {
    const held = this.#held.get(partition);
    if (held === undefined) return;
    this.#release(held.waiting);
    this.#held.delete(partition);
  }

  /**
   * Begins with it, or begins anew. What waits and follows what is stored stays; the answer is
   * where to fetch from.
   */
  rebase(partition: number, stored: bigint): bigint {
    const held = this.#held.get(partition);
    if (held === undefined || stored < held.stored || stored > held.fetched) {
      this.drop(partition);
      this.#held.set(partition, { stored, fetched: stored, waiting: [] });
      return stored;
    }
    const keptFrom = held.waiting.findIndex(({ message }) => message.offset >= stored);
    this.#release(held.waiting.splice(0, keptFrom < 0 ? held.waiting.length : keptFrom));
    held.stored = stored;
    return held.fetched;
  }

  receive(batch: FetchedBatch): Reception {
    const held = this.#held.get(batch.partition);
    if (held === undefined) return "ignored";
    if (batch.fetchedOffset > held.fetched) return { seek: held.fetched };
    const { messages } = batch;
    messages.forEach((message, place) => {
      if (message.offset < held.fetched) return;
      const isLast = place === messages.length - 1;
      const buffered = {
        partition: batch.partition,
        message,
        nextOffset: isLast ? maxOf(batch.nextOffset, message.offset + 1n) : message.offset + 1n,
        bytes: bytesOf(message),
        note: undefined,
      };
      held.waiting.push(buffered);
      this.#count += 1;
      this.#bytes += buffered.bytes;
    });
    held.fetched = maxOf(held.fetched, batch.nextOffset);
    return "taken";
  }

  /**
   * The next messages to store, of each partition in turn. They stay until they are settled. A part
   * without messages moves the offset alone: it would look like a loss when Kafka removes the tail.
   */
  next(countMax: number, bytesMax: number): Part<Note>[] {
    const all = [...this.#held].filter(([, { waiting }]) => waiting.length > 0);
    const parts = this.#moves();
    let count = 0;
    let bytes = 0;
    this.#turn = all.length === 0 ? 0 : (this.#turn + 1) % all.length;
    for (const [partition, held] of [...all.slice(this.#turn), ...all.slice(0, this.#turn)]) {
      let length = 0;
      for (const one of held.waiting) {
        // The first always comes, or what is larger than all would wait for ever.
        if (count >= countMax || (count > 0 && bytes + one.bytes > bytesMax)) break;
        count += 1;
        bytes += one.bytes;
        length += 1;
      }
      const messages = held.waiting.slice(0, length);
      const last = messages.at(-1);
      if (last === undefined) break;
      parts.push({ partition, from: held.stored, to: last.nextOffset, messages });
    }
    return parts.sort((a, b) => a.partition - b.partition);
  }

  /** Where nothing waits and what was fetched is no message: the markers of transactions, say. */
  #moves(): Part<Note>[] {
    return [...this.#held]
      .filter(([, { stored, fetched, waiting }]) => waiting.length === 0 && fetched > stored)
      .map(([partition, { stored, fetched }]) => ({
        partition,
        from: stored,
        to: fetched,
        messages: [],
      }));
  }

  /** They are stored. Those that were dropped or begun anew meanwhile are none of its business. */
  settle(parts: readonly Part<Note>[]): void {
    for (const { partition, from, to, messages } of parts) {
      const held = this.#held.get(partition);
      if (held?.stored !== from || to > held.fetched) continue;
      if (messages.length > 0 && held.waiting[0] !== messages[0]) continue;
      this.#release(held.waiting.splice(0, messages.length));
      held.stored = to;
    }
  }

  #release(gone: readonly Buffered<Note>[]): void {
    this.#count -= gone.length;
    for (const { bytes } of gone) this.#bytes -= bytes;
  }
}

const maxOf = (a: bigint, b: bigint): bigint => (a > b ? a : b);
