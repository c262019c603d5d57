import type { Clock } from "../base/clock.ts";
import { UnavailableError } from "../base/errors.ts";
import type { Logger } from "../base/log.ts";
import type { Database } from "../db/database.ts";
import type { ResolvedIngestOptions } from "./ingest-options.ts";
import type { KafkaMetrics } from "./metrics.ts";
import type { KafkaSource, OffsetRange } from "./source.ts";
import { moveOffset, readOffsets, type TopicRef } from "./sql/offsets.ts";

export interface DataLossContext {
  readonly source: KafkaSource;
  readonly db: Database;
  readonly options: ResolvedIngestOptions;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly metrics: KafkaMetrics;
}

/** What Kafka does not have any more of what is to be stored next. */
export interface Loss {
  /** Where the partition can go on. */
  readonly to: bigint;
  /** Offsets that nobody will ever read. */
  readonly skipped: bigint;
  readonly problem: string;
}

/** Judged by what is stored: what a fetch asked for may be far ahead of it. */
export function lossOf(stored: bigint, { earliest, latest }: OffsetRange): Loss | undefined {
  if (stored < earliest) {
    const removed = `offsets ${stored} to ${earliest - 1n}`;
    const problem = `Kafka has removed ${removed}, which were not read`;
    return { to: earliest, skipped: earliest - stored, problem };
  }
  if (stored <= latest) return undefined;
  const problem = `the log ends at ${latest}, before ${stored} that was stored: it lost its end`;
  return { to: latest, skipped: 0n, problem };
}

/**
 * The partitions of a topic that were asked for an offset that is not there. Nothing is skipped
 * unless somebody said so, and nothing at all that was fetched: that is stored before.
 *
 * reported → judged, once nothing of it waits: placed again, if what is stored is there; moved to
 * what is left and placed, if `onDataLoss` says so; else stopped, and judged again once in a while,
 * in case a person moved the offset. If the process dies, the next member finds the same.
 */
export class LostPartitions {
  readonly #topic: string;
  readonly #context: DataLossContext;
  /** With the problem, once it is known. */
  readonly #lost = new Map<number, string | undefined>();
  readonly #ends = new Map<number, bigint>();
  #judgedMs = 0;

  constructor(topic: string, context: DataLossContext) {
    this.#topic = topic;
    this.#context = context;
  }

  report(partition: number): void {
    this.#lost.set(partition, undefined);
  }

  forget(partition: number): void {
    this.#lost.delete(partition);
    this.#ends.delete(partition);
    this.#measure();
  }

  clear(): void {
    this.#lost.clear();
    this.#ends.clear();
    this.#measure();
  }

  /** Where the log ended when it was last judged: what is not fetched tells no end. */
  endOf(partition: number): bigint | undefined {
    return this.#ends.get(partition);
  }

  /** Whether it must not be fetched. */
  has(partition: number): boolean {
    return this.#lost.has(partition);
  }

  problemOf(partition: number): string | undefined {
    return this.#lost.get(partition);
  }

  /** Gives those that are to be placed again. Those of which something waits are left for later. */
  async settle(ref: TopicRef, waits: (partition: number) => boolean): Promise<number[]> {
    const due = this.#due().filter((partition) => !waits(partition));
    if (due.length === 0) return [];
    const { source, db } = this.#context;
    const stored = await readOffsets(db, ref);
    const ranges = await source.listOffsets(this.#topic, Math.max(...due) + 1);
    const placeable: number[] = [];
    for (const partition of due) {
      const range = ranges[partition];
      const next = stored.get(partition);
      if (range === undefined) throw new UnavailableError(`partition ${partition} is not there`);
      if (next === undefined || !this.#lost.has(partition)) continue; // Given away meanwhile.
      this.#ends.set(partition, range.latest);
      const loss = lossOf(next, range);
      const goesOn = loss === undefined || (await this.#goesOn(ref, { partition, next, loss }));
      if (!goesOn || !this.#lost.delete(partition)) continue;
      this.#ends.delete(partition);
      placeable.push(partition);
    }
    this.#measure();
    return placeable;
  }

  #measure(): void {
    const stopped = [...this.#lost.values()].filter((problem) => problem !== undefined).length;
    this.#context.metrics.stopped.set(stopped, { topic: this.#topic });
  }

  #due(): number[] {
    const { clock, options } = this.#context;
    const isTime = clock.now() - this.#judgedMs >= options.topicCheckSeconds * 1000;
    if (isTime) this.#judgedMs = clock.now();
    return [...this.#lost].filter(([, problem]) => isTime || !problem).map(([one]) => one);
  }

  async #goesOn(
    ref: TopicRef,
    { partition, next, loss }: { partition: number; next: bigint; loss: Loss },
  ): Promise<boolean> {
    const { db, options, logger, metrics } = this.#context;
    const { to, skipped, problem } = loss;
    const fields = { topic: this.#topic, partition, offset: String(next), problem };
    if (options.onDataLoss === "stop") {
      if (this.#lost.get(partition) === problem) return false;
      this.#lost.set(partition, problem);
      logger.error(fields, "the partition is not read: set onDataLoss, or move its offset");
      return false;
    }
    // Somebody else may have stored more meanwhile: then it is judged again.
    if (!(await moveOffset(db, ref, { partition, from: next, to }))) return false;
    metrics.skipped.add(Number(skipped), { topic: this.#topic });
    const moved = { ...fields, goesOnAt: String(to), skipped: String(skipped) };
    logger.error(moved, "the partition goes on without them, as onDataLoss says");
    return true;
  }
}
