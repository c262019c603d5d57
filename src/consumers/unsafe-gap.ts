import type { Connection, Database } from "../db/database.ts";
import type { PersistedEvent } from "../events/event.ts";
import { readEventsAfter } from "../events/sql/read.ts";
import type { BatchPlan, Revalidated } from "./batch.ts";
import type { ConsumerSettings } from "./options.ts";

/*
 * The source systems' rule, kept for comparison and for tests of their behaviour: a gap older than
 * a threshold is taken for dead and skipped. IT LOSES EVENTS whose append takes longer than the
 * threshold. Nothing here is used unless gapPolicy is "unsafe-time".
 */

/** The longest run of positions that continues `checkpoint`. */
export function contiguousPrefix(
  checkpoint: bigint,
  events: readonly PersistedEvent[],
): PersistedEvent[] {
  let next = checkpoint + 1n;
  const prefix: PersistedEvent[] = [];
  for (const event of events) {
    if (event.position !== next) break;
    prefix.push(event);
    next += 1n;
  }
  return prefix;
}

/** Stays `lag` rows behind the visible head, and never crosses a second gap. */
export function safeHarbor(
  expected: bigint,
  positions: readonly bigint[],
  lag: number,
): bigint | undefined {
  const start = positions.indexOf(expected);
  if (start < 0) return undefined;
  const back = Math.min(Math.max(lag, 0), positions.length - 1);
  const harbor = positions[positions.length - 1 - back] ?? expected;
  let end = expected;
  for (const position of positions.slice(start + 1)) {
    if (position !== end + 1n) break;
    end = position;
  }
  return harbor < end ? (harbor < expected ? expected : harbor) : end;
}

/** Where a skip of the gap may end: consecutive missing positions are skipped together. */
export function gapSkipTarget(
  gap: bigint,
  positions: readonly bigint[],
  lag: number,
): bigint | undefined {
  const direct = safeHarbor(gap + 1n, positions, lag);
  if (direct !== undefined) return direct;
  const first = positions[0];
  return first !== undefined && first > gap + 1n ? safeHarbor(first, positions, lag) : undefined;
}

/** When this process first saw the present gap: lost with the process, as in the source. */
export class GapAge {
  #gap: bigint | undefined;
  #firstSeenAt = 0;

  observe(gap: bigint, now: number): number {
    if (gap !== this.#gap) {
      this.#gap = gap;
      this.#firstSeenAt = now;
    }
    return now - this.#firstSeenAt;
  }

  clear(): void {
    this.#gap = undefined;
  }
}

type Probe = BatchPlan | "empty" | "blocked";

/** The sources' frontier probe: contiguous prefix, else blocked, else a timed skip. */
export async function probeUnsafely(
  db: Database,
  checkpoint: bigint,
  age: GapAge,
  settings: ConsumerSettings,
): Promise<Probe> {
  const { batchSize, staleGapThresholdMs, staleGapHarborLag, clock } = settings;
  const events = await db.withConnection((c) => readEventsAfter(c, checkpoint, batchSize));
  if (events.length === 0) {
    age.clear();
    return "empty";
  }
  const prefix = contiguousPrefix(checkpoint, events);
  const last = prefix.at(-1);
  if (last !== undefined) {
    age.clear();
    const window = { after: checkpoint, target: last.position, events: prefix };
    return { window, proof: undefined };
  }
  const openMs = age.observe(checkpoint + 1n, clock.now());
  if (openMs < staleGapThresholdMs) return "blocked";
  const lag = Math.min(staleGapHarborLag, batchSize - 1);
  const revalidate = (tx: Connection, from: bigint): Promise<Revalidated> =>
    revalidateSkip(tx, from, { batchSize, lag, openMs });
  return {
    window: { after: checkpoint, target: checkpoint, events: [] },
    proof: undefined,
    revalidate,
  };
}

async function revalidateSkip(
  tx: Connection,
  checkpoint: bigint,
  rule: { readonly batchSize: number; readonly lag: number; readonly openMs: number },
): Promise<Revalidated> {
  const events = await readEventsAfter(tx, checkpoint, rule.batchSize);
  const prefix = contiguousPrefix(checkpoint, events);
  const filled = prefix.at(-1);
  if (filled !== undefined) {
    const window = { after: checkpoint, target: filled.position, events: prefix };
    return { window, skip: undefined };
  }
  const positions = events.map((event) => event.position);
  const gapPosition = checkpoint + 1n;
  const target = gapSkipTarget(gapPosition, positions, rule.lag) ?? checkpoint;
  const highestVisible = positions.at(-1) ?? checkpoint;
  return {
    window: { after: checkpoint, target, events: events.filter((e) => e.position <= target) },
    skip: { gapPosition, highestVisible, openMs: rule.openMs },
  };
}
