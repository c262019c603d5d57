import type { ClaimedTask } from "./claimed-task.ts";
import { Fifo } from "./fifo.ts";
import { rankOf } from "./priority.ts";
import { type QueueSettings, tenantWeight } from "./queue.ts";
import { Turns, type TurnTaker } from "./turns.ts";

export interface ReadyLineOptions {
  /** Starts of one tenant before another one has its turn. */
  readonly fairnessTurn: number;
  /** Seconds of waiting that weigh as much as one step of priority. */
  readonly agingSeconds: number;
  /** Nothing more of the lane is ready; of a keyed one, nothing keyed of its tenant. */
  readonly onDry: (lane: number) => void;
  /** Whether tasks of the tenant may start now. Defaults to always. */
  readonly isOpen?: (tenant: string) => boolean;
  /** Counts turns that were over before their tenant had started all it has here. */
  readonly turns?: { value: number };
}

/** Tasks that start in the order in which they came: of one lane, or all keyed ones of a tenant. */
interface Strand {
  readonly lane: number;
  readonly tenant: Tenant;
  readonly tasks: Fifo<ClaimedTask>;
  /** Of the task that was first when it was last asked for. */
  rank: number;
  ranked: ClaimedTask | undefined;
}

interface Tenant extends TurnTaker {
  readonly name: string;
  readonly lanes: Strand[];
  keyed: Strand | undefined;
  ready: number;
}

/** So many tenants are remembered before those are forgotten of whom nothing is here. */
const TENANTS_KEPT = 5_000;

/**
 * The tasks of one queue that are claimed and free to start, in the order in which they do: the
 * tenants take turns; of one tenant the lane comes first whose head ranks highest, by priority and
 * waiting; tasks of one lane keep their order. Priority means nothing among keyed tasks, so these
 * go by how long they are here.
 */
export class ReadyLine {
  readonly #settings: QueueSettings;
  readonly #options: ReadyLineOptions;
  readonly #turns: Turns<Tenant>;
  readonly #tenants = new Map<string, Tenant>();
  readonly #lanes = new Map<number, Strand>();
  readonly #mayStart: (tenant: Tenant) => boolean;
  /** Where the last unkeyed task went, as the next one often does. */
  #last: Strand | undefined;
  #size = 0;

  constructor(settings: QueueSettings, options: ReadyLineOptions) {
    this.#settings = settings;
    this.#options = options;
    this.#turns = new Turns(options.turns);
    const { isOpen } = options;
    this.#mayStart =
      isOpen === undefined ? hasReady : (tenant) => tenant.ready > 0 && isOpen(tenant.name);
  }

  get size(): number {
    return this.#size;
  }

  /** Whether something keyed of the tenant is here. */
  hasKeyedOf(tenant: string): boolean {
    return (this.#tenants.get(tenant)?.keyed?.tasks.size ?? 0) > 0;
  }

  /** Whether something of this lane of unkeyed tasks is here. */
  has(lane: number): boolean {
    return (this.#lanes.get(lane)?.tasks.size ?? 0) > 0;
  }

  push(task: ClaimedTask): void {
    const strand = this.#last?.lane === task.lane ? this.#last : this.#find(task);
    strand.tasks.push(task);
    strand.tenant.ready += 1;
    this.#turns.join(strand.tenant);
    this.#size += 1;
  }

  /** How many of the tenant wait here. */
  readyOf(tenant: string): number {
    return this.#tenants.get(tenant)?.ready ?? 0;
  }

  /** Tenants of whom something waits here. */
  *tenants(): Generator<string> {
    for (const { name, ready } of this.#tenants.values()) if (ready > 0) yield name;
  }

  /** Tasks of the tenant may start again: those that wait take their turns. */
  reopen(tenant: string): void {
    const known = this.#tenants.get(tenant);
    if (known !== undefined && known.ready > 0) this.#turns.join(known);
  }

  /**
   * The next task to start. Undefined when none may.
   *
   * @param least only of this priority and above. Undefined: any
   */
  shift(least?: number): ClaimedTask | undefined {
    const strand = this.#next(least);
    const task = strand?.tasks.shift();
    if (strand === undefined || task === undefined) return undefined;
    const { tenant } = strand;
    tenant.ready -= 1;
    if (task.state === "claimed") tenant.credit -= 1; // Else it was given back, and starts nowhere.
    this.#size -= 1;
    if (strand.tasks.size === 0) this.#options.onDry(task.lane);
    return task;
  }

  /** The next task to start; it stays. */
  peek(least?: number): ClaimedTask | undefined {
    return this.#next(least)?.tasks.peek();
  }

  /** The highest priority that is here, of a tenant or of all. */
  highest(tenant?: string): number {
    const known = tenant === undefined ? this.#tenants.values() : [this.#tenants.get(tenant)];
    const heads = [...known].flatMap((one) => strandsOf(one).map(({ tasks }) => tasks.peek()));
    return Math.max(-Infinity, ...heads.flatMap((head) => head?.priority ?? []));
  }

  drain(): ClaimedTask[] {
    return [...this.#tenants.keys()].flatMap((tenant) => this.drainOf(tenant));
  }

  /** Takes out what waits of one tenant. */
  drainOf(name: string): ClaimedTask[] {
    const tenant = this.#tenants.get(name);
    if (tenant === undefined) return [];
    const all = strandsOf(tenant).flatMap(({ tasks }) => tasks.drain());
    tenant.ready = 0;
    this.#size -= all.length;
    return all;
  }

  #next(least: number | undefined): Strand | undefined {
    if (least !== undefined) return this.#atLeast(least);
    const tenant = this.#turns.next(this.#options.fairnessTurn, this.#mayStart);
    if (tenant === undefined) return undefined;
    let best: Strand | undefined;
    for (const lane of tenant.lanes) {
      if (lane.tasks.size === 0) continue;
      if (best === undefined || this.#rankOf(lane) > this.#rankOf(best)) best = lane;
    }
    const keyed = tenant.keyed?.tasks.peek();
    const unkeyed = best?.tasks.peek();
    if (keyed === undefined) return best;
    const isKeyedFirst = unkeyed === undefined || keyed.renewedAtMs <= unkeyed.renewedAtMs;
    return isKeyedFirst ? tenant.keyed : best;
  }

  /** Whoever's rank is highest, without turns: so few slots are reserved that all may want them. */
  #atLeast(least: number): Strand | undefined {
    let best: Strand | undefined;
    for (const tenant of this.#tenants.values()) {
      if (!this.#mayStart(tenant)) continue;
      for (const strand of strandsOf(tenant)) {
        const head = strand.tasks.peek();
        if (head === undefined || head.priority < least) continue;
        if (best === undefined || this.#rankOf(strand) > this.#rankOf(best)) best = strand;
      }
    }
    return best;
  }

  /** Everything waits at the same pace, so since when it does is all that differs. */
  #rankOf(lane: Strand): number {
    const head = lane.tasks.peek();
    if (head === undefined || head === lane.ranked) return lane.rank;
    lane.ranked = head;
    lane.rank = rankOf(head, head.runAt.getTime(), this.#options.agingSeconds);
    return lane.rank;
  }

  #find(task: ClaimedTask): Strand {
    if (task.lane < 0) {
      const tenant = this.#tenantOf(task.tenant);
      tenant.keyed ??= newStrand(tenant, task.lane);
      return tenant.keyed;
    }
    this.#last = this.#lanes.get(task.lane) ?? this.#addLane(task);
    return this.#last;
  }

  #addLane(task: ClaimedTask): Strand {
    const tenant = this.#tenantOf(task.tenant);
    const lane = newStrand(tenant, task.lane);
    tenant.lanes.push(lane);
    this.#lanes.set(task.lane, lane);
    return lane;
  }

  #tenantOf(name: string): Tenant {
    const known = this.#tenants.get(name);
    if (known !== undefined) return known;
    if (this.#tenants.size >= TENANTS_KEPT) this.#forget();
    const tenant: Tenant = {
      name,
      weight: tenantWeight(this.#settings, name),
      credit: 0,
      isInLine: false,
      lanes: [],
      keyed: undefined,
      ready: 0,
    };
    this.#tenants.set(name, tenant);
    return tenant;
  }

  #forget(): void {
    // One that may not start is in no line, and its tasks are here all the same.
    const isGone = ({ isInLine, ready }: Tenant): boolean => !isInLine && ready === 0;
    for (const [name, tenant] of this.#tenants) if (isGone(tenant)) this.#tenants.delete(name);
    for (const [lane, { tenant }] of this.#lanes) if (isGone(tenant)) this.#lanes.delete(lane);
    this.#last = undefined;
  }
}

const newStrand = (tenant: Tenant, lane: number): Strand => {
  return { lane, tenant, tasks: new Fifo(), rank: 0, ranked: undefined };
};

function strandsOf(tenant: Tenant | undefined): Strand[] {
  if (tenant === undefined) return [];
  return tenant.keyed === undefined ? tenant.lanes : [...tenant.lanes, tenant.keyed];
}

const hasReady = ({ ready }: Tenant): boolean => ready > 0;
