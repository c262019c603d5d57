import { isPackLane, packLane, rowLane } from "./claimed-pack.ts";
import type { LaneOwner } from "./claimed-row.ts";
import { PROBATION, rankOf } from "./priority.ts";
import type { LaneRequest, LaneView } from "./sql/claim.ts";
import { Turns, type TurnTaker } from "./turns.ts";

/** A tenant of one queue. */
interface Tenant extends TurnTaker {
  readonly name: string;
  readonly lanes: Lane[];
}

/** What this worker knows of one lane. */
export interface Lane {
  readonly lane: number;
  readonly queue: string;
  readonly priority: number;
  readonly tenant: Tenant;
  readonly owner: LaneOwner;
  floor: number;
  /** Where the next claim begins: what was passed since the last look is found by the next one. */
  cursor: number;
  /** Nothing was found when somebody last looked. */
  isEmpty: boolean;
  headOrder: number | null;
  /** Of rows: the last that came from a pack which this worker opened. */
  openedUpTo: number;
  /** When its head could have run, on the worker's clock. */
  waitingSinceMs: number;
}

interface QueueLanes {
  readonly tenants: Map<string, Tenant>;
  readonly turns: Turns<Tenant>;
}

export interface Want {
  readonly tasks: number;
  /** Of these, how many may be on probation. */
  readonly probation: number;
  /** Of these, how many may be of low priority. Undefined: all. */
  readonly below?: Below | undefined;
}

/** So many tasks, of priorities below this one. */
export interface Below {
  readonly priority: number;
  readonly tasks: number;
}

/** How many tasks a worker can take. */
export interface Room {
  ofQueue(queue: string, priority: number): number;
  ofTenant(queue: string, tenant: string): number;
}

export interface FairnessOptions {
  /** Seconds of waiting that weigh as much as one step of priority. */
  readonly agingSeconds: number;
  /** Claims of one tenant before another one of the queue gets its turn. */
  readonly turn: number;
  readonly weightOf: (queue: string, tenant: string) => number;
}

/** Lanes are looked at one after another: what waits as long may seem to wait a little less. */
const SAME_MS = 50;
/** A floor behind everything. */
const PASSED = Number.MAX_SAFE_INTEGER;

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
  readonly #queues = new Map<string, QueueLanes>();
  readonly #options: FairnessOptions;
  #version = 0;

  constructor(options: FairnessOptions) {
    this.#options = options;
  }

  /** Where a look begins; in lanes that it is to pass over, behind everything. */
  floors(isPassed: (lane: Lane) => boolean): Map<number, number> {
    const floorOf = (lane: Lane): number => (isPassed(lane) ? PASSED : lane.floor);
    const known = [...this.#lanes.values()].map((lane) => [lane.lane, floorOf(lane)] as const);
    // A lane of packs is looked at only when it has one, or is named.
    return new Map(known.filter(([lane, floor]) => floor > 0 || isPackLane(lane)));
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
    return this.#lanes.get(lane)?.owner;
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
  saw(
    views: readonly LaneView[],
    floors: ReadonlyMap<number, number>,
    settled: number,
    nowMs: number,
  ): void {
    for (const view of views) {
      const lane = this.#lanes.get(view.lane) ?? this.#add(view);
      if (floors.get(view.lane) === PASSED) {
        lane.isEmpty = false; // What made somebody look may be here as well.
        continue;
      }
      const floor = Math.min(settled, (view.headOrder ?? Infinity) - 1);
      lane.floor = Math.max(lane.floor, floor);
      if (view.headOrder !== null) lane.cursor = view.headOrder - 1;
      lane.isEmpty = view.headOrder === null;
      lane.headOrder = view.headOrder;
      lane.waitingSinceMs = nowMs - view.waitedSeconds * 1000;
    }
  }

  #add({ lane, queue, tenant: name, priority }: LaneView): Lane {
    const { tenants } = this.#queueOf(queue);
    let tenant = tenants.get(name);
    if (tenant === undefined) {
      const weight = this.#options.weightOf(queue, name);
      tenant = { name, weight, credit: 0, isInLine: false, lanes: [] };
      tenants.set(name, tenant);
    }
    const what = { lane, queue, priority, tenant, owner: { queue, tenant: name, priority } };
    const added = {
      ...what,
      floor: 0,
      cursor: 0,
      isEmpty: true,
      headOrder: null,
      openedUpTo: 0,
      waitingSinceMs: 0,
    };
    tenant.lanes.push(added);
    this.#lanes.set(lane, added);
    return added;
  }

  #queueOf(name: string): QueueLanes {
    let queue = this.#queues.get(name);
    if (queue === undefined) {
      queue = { tenants: new Map(), turns: new Turns() };
      this.#queues.set(name, queue);
    }
    return queue;
  }

  /**
   * Work may have come to any lane: all are worth asking, but for those on probation. Hardly any
   * news are of those, and asking for them costs as much as a claim that finds something. Looks
   * find them.
   */
  assumeWork(): void {
    for (const lane of this.#lanes.values()) if (lane.priority !== PROBATION) lane.isEmpty = false;
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

  /** Whether nothing is known to wait in any lane. */
  get isDry(): boolean {
    for (const lane of this.#lanes.values()) if (!lane.isEmpty) return false;
    return true;
  }

  hasWork(queue: string): boolean {
    return [...this.#lanes.values()].some((lane) => lane.queue === queue && !lane.isEmpty);
  }

  /** Tenants of whom something waits. */
  waitingOf(queue: string): string[] {
    const waiting = [...this.#lanes.values()].filter((one) => one.queue === queue && !one.isEmpty);
    return [...new Set(waiting.map(({ tenant }) => tenant.name))];
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

  /**
   * A claim got less than it asked for. A look may have found something before where it began, and
   * may have been answered before it.
   */
  markEmpty({ lane, floor }: Pick<LaneRequest, "lane" | "floor">): void {
    const known = this.#lanes.get(lane);
    if (known !== undefined && Math.max(known.floor, known.cursor) >= floor) known.isEmpty = true;
  }

  /** Packs up to `order` became rows up to `lastRow`, which wait as long as they did. */
  opened(lane: number, order: number, lastRow: number): void {
    this.passed(lane, order);
    const packs = this.#lanes.get(lane);
    const rows = this.#lanes.get(rowLane(lane));
    if (packs === undefined || rows === undefined) return;
    rows.isEmpty = false;
    rows.waitingSinceMs = packs.waitingSinceMs;
    rows.openedUpTo = lastRow;
  }

  /**
   * Whether rows wait that come before the packs of this lane: because they waited as long, or
   * because there are still some of the last packs that were opened.
   */
  hasRowsBefore(lane: number): boolean {
    const [packs, rows] = [this.#lanes.get(lane), this.#lanes.get(rowLane(lane))];
    if (rows === undefined || rows.isEmpty) return false;
    if (packs === undefined || rows.cursor < rows.openedUpTo) return true;
    return rows.waitingSinceMs <= packs.waitingSinceMs + SAME_MS;
  }

  /** A claim of so many tasks from where the lane begins. */
  requestOf(lane: number, take: number): LaneRequest {
    const known = this.#lanes.get(lane);
    return { lane, floor: Math.max(known?.floor ?? 0, known?.cursor ?? 0), take };
  }

  /** Whether more of the lane waits than is here, as rows or in packs. */
  hasMore(lane: number): boolean {
    const sibling = isPackLane(lane) ? rowLane(lane) : packLane(lane);
    return [lane, sibling].some((one) => this.#lanes.get(one)?.isEmpty === false);
  }

  /**
   * Whom to ask for how many. Each step serves the queue whose head ranks highest by priority and
   * waiting; within it the tenant whose turn it is; within it the lane that ranks highest.
   */
  choose(want: Want, room: Room): LaneRequest[] {
    const plan = new Plan(want, room);
    const hasRoom = (lane: Lane): boolean => !lane.isEmpty && plan.roomOf(lane) > 0;
    const isReady = ({ lanes }: Tenant): boolean => lanes.some(hasRoom);
    let open = [...this.#lanes.values()].filter(hasRoom);
    for (const { queue, tenant } of open) this.#queueOf(queue).turns.join(tenant);
    const length = Math.min(this.#options.turn, want.tasks);
    for (let first = this.#highest(open); first !== undefined; first = this.#highest(open)) {
      const { turns } = this.#queueOf(first.queue);
      const tenant = turns.next(length, isReady);
      const best = this.#highest(tenant?.lanes.filter(hasRoom) ?? []);
      if (tenant === undefined || best === undefined) break;
      const turn = turns.isAlone ? Infinity : Math.floor(tenant.credit);
      tenant.credit -= plan.ask(best, turn);
      open = open.filter(hasRoom);
    }
    return plan.requests;
  }

  /** Whether there is anybody to ask. */
  canChoose(want: Want, room: Room): boolean {
    const plan = new Plan(want, room);
    return [...this.#lanes.values()].some((lane) => !lane.isEmpty && plan.roomOf(lane) > 0);
  }

  /** Lanes that have work and that somebody lacks; those that rank highest come first. */
  lacking(isLacked: (lane: Lane) => boolean): Lane[] {
    const lacking = [...this.#lanes.values()].filter((lane) => !lane.isEmpty && isLacked(lane));
    return lacking.sort((a, b) => this.#rank(b) - this.#rank(a));
  }

  /** One turn of each, whoever else waits. */
  chooseOf(lanes: readonly Lane[], want: Want, room: Room): LaneRequest[] {
    const plan = new Plan(want, room);
    for (const lane of lanes) {
      const turn = Math.ceil(this.#options.turn * lane.tenant.weight);
      if (plan.roomOf(lane) > 0) plan.ask(lane, turn);
    }
    return plan.requests;
  }

  #rank({ priority, waitingSinceMs }: Lane): number {
    const isOnProbation = priority === PROBATION;
    return rankOf({ priority, isOnProbation }, waitingSinceMs, this.#options.agingSeconds);
  }

  #highest(lanes: readonly Lane[]): Lane | undefined {
    let best: Lane | undefined;
    for (const lane of lanes) {
      if (best === undefined || this.#rank(lane) > this.#rank(best)) best = lane;
    }
    return best;
  }
}

/** What one claim asks for, within what is wanted. */
class Plan {
  readonly #asked = new Map<Lane, number>();
  readonly #byQueue = new Map<string, number>();
  readonly #byTenant = new Map<string, number>();
  readonly #room: Room;
  #tasks: number;
  #probation: number;
  readonly #below: number;
  #tasksBelow: number;

  constructor(want: Want, room: Room) {
    this.#tasks = want.tasks;
    this.#below = want.below?.priority ?? -Infinity;
    this.#tasksBelow = want.below?.tasks ?? Infinity;
    this.#probation = want.probation;
    this.#room = room;
  }

  roomOf({ queue, priority, tenant }: Lane): number {
    const ofQueue = this.#room.ofQueue(queue, priority) - (this.#byQueue.get(queue) ?? 0);
    const asked = this.#byTenant.get(tenant.name) ?? 0;
    const ofTenant = this.#room.ofTenant(queue, tenant.name) - asked;
    const ofLow = priority < this.#below ? this.#tasksBelow : Infinity;
    const ofProbation = priority < 0 ? this.#probation : Infinity;
    return Math.min(this.#tasks, ofQueue, ofTenant, ofLow, ofProbation);
  }

  /** Returns how many it asks for: no more than `most`. */
  ask(lane: Lane, most: number): number {
    const take = Math.min(most, this.roomOf(lane));
    this.#asked.set(lane, (this.#asked.get(lane) ?? 0) + take);
    this.#byQueue.set(lane.queue, (this.#byQueue.get(lane.queue) ?? 0) + take);
    const { name } = lane.tenant;
    this.#byTenant.set(name, (this.#byTenant.get(name) ?? 0) + take);
    this.#tasks -= take;
    if (lane.priority < 0) this.#probation -= take;
    if (lane.priority < this.#below) this.#tasksBelow -= take;
    return take;
  }

  get requests(): LaneRequest[] {
    return [...this.#asked].map(([{ lane, floor, cursor }, take]) => {
      return { lane, floor: Math.max(floor, cursor), take };
    });
  }
}
