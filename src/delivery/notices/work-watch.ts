import { BoundedMap } from "../../base/bounded-map.ts";
import type { Clock } from "../../base/clock.ts";
import type { Database } from "../../db/database.ts";
import { shapePlansHere } from "../../db/sql/session.ts";
import type { WaitingWork } from "./choice.ts";
import { WAITING_MAX } from "./notice.ts";
import type { Candidate } from "./sql/notices.ts";
import { lookForWork, type Place, readTenantQueues } from "./sql/work.ts";

interface Known {
  readonly floor: number;
  /** When all of it was last looked at. */
  readonly wholeAtMs: number;
}

const PLACES_MAX = 100_000;

export interface WorkWatchOptions {
  readonly clock: Clock;
  /** Transactions that enqueue are expected to take no longer: no memory is younger. */
  readonly lagMs: number;
  /** How often all of a place is looked at, and not only what is new. */
  readonly wholeMs: number;
}

/**
 * Finds out where work waits, of those places that somebody subscribed to.
 *
 * It remembers up to which number nothing waited at a place, and looks behind that: an index keeps
 * what is done until the next vacuum, and to walk through it again with every look would cost as
 * much as there was done. That memory is no proof: a transaction that was open for longer than
 * `lagMs` may commit a task below it, and a crash may take back a claim. So now and then all of a
 * place is looked at, and what was missed is found then, a few seconds late.
 */
export class WorkWatch {
  readonly #db: Database;
  readonly #options: WorkWatchOptions;
  readonly #known = new BoundedMap<string, Known>(PLACES_MAX);
  /** The last numbers that were drawn, oldest first. */
  #numbers: { readonly atMs: number; readonly number: number }[] = [];

  constructor(db: Database, options: WorkWatchOptions) {
    this.#db = db;
    this.#options = options;
  }

  /**
   * What waits, by tenant, for those who are due and whoever they compete with.
   *
   * @param number the last one that was drawn for a task, read before this is called
   */
  async look(
    candidates: readonly Candidate[],
    number: number,
  ): Promise<ReadonlyMap<string, WaitingWork>> {
    const places = await this.#placesOf(candidates.filter(({ is_due }) => is_due));
    const work = new Map<string, Map<string, number>>();
    if (places.length === 0) return work;
    const nowMs = this.#options.clock.now();
    const passed = this.#passed(number, nowMs);
    const asked = places.map((place) => ({ ...place, ...this.#askedOf(place, nowMs) }));
    const found = await this.#db.transaction(async (tx) => {
      await shapePlansHere(tx);
      return await lookForWork(tx, asked, WAITING_MAX);
    });
    for (const [index, { waiting, head }] of found.entries()) {
      const place = asked[index];
      if (place === undefined) continue;
      const { tenant, queue, wholeAtMs } = place;
      const floor = Math.max(place.floor, Math.min(passed, (head ?? Infinity) - 1));
      this.#known.set(keyOf(place), { floor, wholeAtMs });
      if (waiting === 0) continue;
      const ofTenant = work.get(tenant) ?? new Map<string, number>();
      work.set(tenant, ofTenant.set(queue, waiting));
    }
    return work;
  }

  /** The newest number that is old enough to be behind everything that is still to come. */
  #passed(number: number, nowMs: number): number {
    this.#numbers.push({ atMs: nowMs, number });
    const old = this.#numbers.filter(({ atMs }) => atMs <= nowMs - this.#options.lagMs);
    if (old.length > 1) this.#numbers = this.#numbers.slice(old.length - 1);
    return old.at(-1)?.number ?? 0;
  }

  #askedOf(place: Place, nowMs: number): Known {
    const known = this.#known.get(keyOf(place));
    const isFresh = known !== undefined && nowMs - known.wholeAtMs < this.#options.wholeMs;
    return isFresh ? known : { floor: 0, wholeAtMs: nowMs };
  }

  async #placesOf(due: readonly Candidate[]): Promise<Place[]> {
    const places = new Map<string, Place>();
    const forAll = new Set<string>();
    for (const { tenant, queues } of due) {
      if (queues === null) forAll.add(tenant);
      for (const queue of queues ?? []) places.set(keyOf({ tenant, queue }), { tenant, queue });
    }
    const others = forAll.size === 0 ? [] : await readTenantQueues(this.#db, [...forAll]);
    for (const place of others) places.set(keyOf(place), place);
    return [...places.values()];
  }
}

/** No name holds the separator. */
const keyOf = ({ tenant, queue }: Place): string => `${tenant}\u001f${queue}`;
