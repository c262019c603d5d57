import type { LaneOwner } from "./claimed-row.ts";
import type { LaneRequest, LaneView } from "./sql/claim.ts";

/** What this worker knows of one lane. */
interface Lane extends LaneView {
  floor: number;
  /** Where the next claim begins: what was passed since the last look is found by the next one. */
  cursor: number;
  /** Nothing was found when somebody last looked. */
  isEmpty: boolean;
  /** When its head could have run, on the worker's clock. */
  waitingSinceMs: number;
}

export interface Want {
  readonly tasks: number;
  /** Of these, how many may be on probation. */
  readonly probation: number;
}

export interface FairnessOptions {
  /** Seconds of waiting that weigh as much as one step of priority. */
  readonly agingSeconds: number;
  /** Claims of one tenant before another one of the queue gets its turn. */
  readonly turn: number;
  readonly weightOf: (queue: string, tenant: string) => number;
}

/**
 * The lanes of unkeyed tasks that a worker serves: where to begin looking, and which is next.
 *
 * A floor says that nothing at or below it is pending. It moves only when an epoch has closed over
 * it and the snapshot of a look, taken then or later, showed nothing: a task that commits late, or
 * whose claim is rolled back, is still found. It is a memory of the server, and dies when that
 * crashes.
 */
export class LaneBook {
  readonly #lanes = new Map<number, Lane>();
  readonly #served = new Map<string, number>();
  readonly #options: FairnessOptions;
  #version = 0;

  constructor(options: FairnessOptions) {
    this.#options = options;
  }

  get floors(): Map<number, number> {
    const known = [...this.#lanes.values()].filter((lane) => lane.floor > 0);
    return new Map(known.map((lane) => [lane.lane, lane.floor]));
  }

  /** Grows when floors are forgotten: a look that was asked with them in mind counts no more. */
  get version(): number {
    return this.#version;
  }

  get size(): number {
    return this.#lanes.size;
  }

  /** Whose tasks wait in it. Undefined for a lane that no look has shown. */
  ownerOf(lane: number): LaneOwner | undefined {
    return this.#lanes.get(lane);
  }

  forgetFloors(): void {
    this.#version += 1;
    for (const lane of this.#lanes.values()) {
      lane.floor = 0;
      lane.cursor = 0;
      lane.isEmpty = false;
    }
  }

  /** Takes in a look. `settled` is what was proven before its snapshot, or by it. */
  saw(views: readonly LaneView[], settled: number, nowMs: number): void {
    for (const view of views) {
      const floor = Math.min(settled, (view.headOrder ?? Infinity) - 1);
      const known = this.#lanes.get(view.lane);
      this.#lanes.set(view.lane, {
        ...view,
        floor: Math.max(known?.floor ?? 0, floor),
        cursor: view.headOrder === null ? (known?.cursor ?? 0) : view.headOrder - 1,
        isEmpty: view.headOrder === null,
        waitingSinceMs: nowMs - view.waitedSeconds * 1000,
      });
    }
  }

  /** Work may have come to any lane: all are worth asking. */
  assumeWork(): void {
    for (const lane of this.#lanes.values()) lane.isEmpty = false;
  }

  /** Seconds that the head of the queue's oldest lane has waited. */
  oldestSeconds(queue: string, nowMs: number): number {
    let oldest = 0;
    for (const lane of this.#lanes.values()) {
      if (lane.queue !== queue || lane.headOrder === null) continue;
      oldest = Math.max(oldest, (nowMs - lane.waitingSinceMs) / 1000);
    }
    return oldest;
  }

  hasWork(queue: string): boolean {
    return [...this.#lanes.values()].some((lane) => lane.queue === queue && !lane.isEmpty);
  }

  /** Of counts by lane, those of one queue. */
  sumOf(queue: string, counts: ReadonlyMap<number, number>): number {
    let sum = 0;
    for (const [lane, count] of counts) if (this.#lanes.get(lane)?.queue === queue) sum += count;
    return sum;
  }

  /** A claim took everything up to this order that it could get. */
  passed(lane: number, order: number): void {
    const known = this.#lanes.get(lane);
    if (known !== undefined && order > known.cursor) known.cursor = order;
  }

  /** A claim got less than it asked for. */
  markEmpty(lane: number): void {
    const known = this.#lanes.get(lane);
    if (known !== undefined) known.isEmpty = true;
  }

  /**
   * Whom to ask for how many. Each step gives a turn to the queue whose head ranks highest by
   * priority and waiting; within it to the tenant that was served least for its weight; within it
   * to the lane that ranks highest.
   *
   * @param room how many tasks of the queue this worker can take
   */
  choose(want: Want, room: (queue: string) => number, nowMs: number): LaneRequest[] {
    const asked = new Map<Lane, number>();
    const byQueue = new Map<string, number>();
    let { probation } = want;
    const roomOf = (lane: Lane): number => {
      const left = room(lane.queue) - (byQueue.get(lane.queue) ?? 0);
      return lane.priority < 0 ? Math.min(left, probation) : left;
    };
    let left = want.tasks;
    let open = [...this.#lanes.values()].filter((lane) => !lane.isEmpty && roomOf(lane) > 0);
    while (left > 0 && open.length > 0) {
      const best = this.#next(open, nowMs);
      if (best === undefined) break;
      const alone = open.length === 1;
      const take = Math.min(left, roomOf(best), alone ? left : this.#options.turn);
      asked.set(best, (asked.get(best) ?? 0) + take);
      byQueue.set(best.queue, (byQueue.get(best.queue) ?? 0) + take);
      if (best.priority < 0) probation -= take;
      this.#serve(best, take, open);
      left -= take;
      open = open.filter((lane) => roomOf(lane) > 0);
    }
    return [...asked].map(([{ lane, floor, cursor }, take]) => {
      return { lane, floor: Math.max(floor, cursor), take };
    });
  }

  #next(open: readonly Lane[], nowMs: number): Lane | undefined {
    const rank = (lane: Lane): number =>
      lane.priority + (nowMs - lane.waitingSinceMs) / 1000 / this.#options.agingSeconds;
    const highest = (lanes: readonly Lane[]): Lane | undefined =>
      lanes.reduce<Lane | undefined>(
        (best, lane) => (best === undefined || rank(lane) > rank(best) ? lane : best),
        undefined,
      );
    const first = highest(open);
    if (first === undefined || open.length === 1) return first;
    const rivals = open.filter((lane) => lane.queue === first.queue);
    const served = (lane: Lane): number => this.#served.get(tenantKey(lane)) ?? 0;
    const least = Math.min(...rivals.map(served));
    return highest(rivals.filter((lane) => served(lane) === least));
  }

  #serve(lane: Lane, count: number, open: readonly Lane[]): void {
    const rivals = open.filter((one) => one.queue === lane.queue);
    // Who was away gets no credit for it: it begins level with the least served of those present.
    const present = rivals.flatMap((one) => this.#served.get(tenantKey(one)) ?? []);
    const start = present.length === 0 ? 0 : Math.min(...present);
    for (const one of rivals) {
      if (!this.#served.has(tenantKey(one))) this.#served.set(tenantKey(one), start);
    }
    const weight = this.#options.weightOf(lane.queue, lane.tenant);
    const key = tenantKey(lane);
    this.#served.set(key, (this.#served.get(key) ?? start) + count / weight);
  }
}

const tenantKey = (lane: LaneView): string => JSON.stringify([lane.queue, lane.tenant]);
