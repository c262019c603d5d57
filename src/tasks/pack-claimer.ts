import { isPackLane, PACK_TASKS_MAX, rowLane } from "./claimed-pack.ts";
import type { Claims } from "./claims.ts";
import { type Found, NOTHING } from "./found.ts";
import type { KeyPacksOptions } from "./key-packs.ts";
import type { LaneBook } from "./lanes.ts";
import type { TaskSession } from "./session.ts";
import type { GrantProof, LaneRequest } from "./sql/claim.ts";
import { openWaitingPacks } from "./sql/open-packs.ts";
import { claimPacks } from "./sql/packs.ts";

export interface PackClaimerOptions {
  readonly workerId: string;
  readonly leaseSeconds: number;
  /** How many tasks of the queue are held ready here, as so many are done in no time. */
  readonly ready: (queue: string) => number;
  /** Whether tasks of the queue must be claimed one by one. */
  readonly isByRow: (queue: string) => boolean;
  /** How many tasks of the queue its limits allow; Infinity: there are none. */
  readonly allowed: (queue: string) => number;
  /** What claims of limited queues rely on. */
  readonly proofs: () => readonly GrantProof[];
  /** Tasks that waited in packs wait as rows now: others may want some of them. */
  readonly onOpened: () => void;
}

/** How a claim is made. */
export interface Division {
  readonly rows: readonly LaneRequest[];
  readonly packs: readonly PackRequest[];
}

/** Packs of a lane, to be taken whole or to be opened; `take` counts packs. */
interface PackRequest extends LaneRequest {
  readonly isWhole: boolean;
}

/** Who holds so many ready, for a tenth of a second, is done with a pack before anybody asks. */
const READY_MIN = 5 * PACK_TASKS_MAX;

/**
 * Takes what waits in packs. A worker that does thousands of tasks per second takes packs whole.
 * Any other would keep tasks from those who are free, so it opens a pack when no row has waited as
 * long, and takes of the rows what it can do; and so does everybody for a queue whose limits may
 * bind, because a slot of a pack comes free with all others of it, or whose handlers use leases,
 * which then are each task's own.
 */
export class PackClaimer {
  readonly #session: TaskSession;
  readonly #claims: Claims;
  readonly #lanes: LaneBook;
  readonly #options: PackClaimerOptions;

  constructor(session: TaskSession, claims: Claims, lanes: LaneBook, options: PackClaimerOptions) {
    this.#session = session;
    this.#claims = claims;
    this.#lanes = lanes;
    this.#options = options;
  }

  /** How packs of keyed tasks are claimed. */
  get ofKeys(): KeyPacksOptions {
    const { ready, isByRow, onOpened } = this.#options;
    return {
      isWhole: (queue, allowed) =>
        ready(queue) >= READY_MIN && allowed >= READY_MIN && !isByRow(queue),
      take: async (claim) => await this.#claims.takePacks(claim),
      onOpened,
    };
  }

  /** What was asked of lanes of packs becomes packs, or rows when some waited longer. */
  divide(lanes: readonly LaneRequest[]): Division {
    const rows = new Map<number, LaneRequest>();
    for (const one of lanes) if (!isPackLane(one.lane)) rows.set(one.lane, one);
    if (rows.size === lanes.length) return { rows: lanes, packs: [] };
    const packs: PackRequest[] = [];
    for (const one of lanes) {
      if (!isPackLane(one.lane)) continue;
      const lane = rowLane(one.lane);
      if (this.#isTakenWhole(one)) {
        const take = Math.floor(one.take / PACK_TASKS_MAX);
        packs.push({ ...one, take, isWhole: true });
      } else if (this.#lanes.hasRowsBefore(one.lane)) {
        // Not the sum: two lanes of one tenant have no two turns.
        const take = Math.max(rows.get(lane)?.take ?? 0, one.take);
        rows.set(lane, this.#lanes.requestOf(lane, take));
      } else {
        packs.push({ ...one, take: Math.ceil(one.take / PACK_TASKS_MAX), isWhole: false });
      }
    }
    return { rows: [...rows.values()], packs };
  }

  #isTakenWhole({ lane, take }: LaneRequest): boolean {
    const { ready, isByRow, allowed } = this.#options;
    const queue = this.#queueOf(lane);
    if (take < PACK_TASKS_MAX || ready(queue) < READY_MIN || isByRow(queue)) return false;
    return allowed(queue) >= READY_MIN;
  }

  #queueOf(lane: number): string {
    return this.#lanes.ownerOf(lane)?.queue ?? "";
  }

  async claim(packs: readonly PackRequest[]): Promise<Found> {
    const whole = packs.filter((one) => one.isWhole);
    const [taken, ...opened] = await Promise.all([
      this.#take(whole),
      ...packs.filter((one) => !one.isWhole).map((one) => this.#open(one)),
    ]);
    return { ...taken, opened: opened.reduce((sum, count) => sum + count, 0) };
  }

  async #take(requests: readonly PackRequest[]): Promise<Omit<Found, "opened">> {
    if (requests.length === 0) return NOTHING;
    const byLane = new Map<number, number>();
    const { leaseSeconds, workerId } = this.#options;
    const lanes = requests.map((one) => ({ ...one, lane: rowLane(one.lane) }));
    const queues = new Set(requests.map(({ lane }) => this.#queueOf(lane)));
    const proofs = this.#options.proofs().filter(({ queue }) => queues.has(queue));
    const { tasks, packs } = await this.#claims.takePacks(async (claimId) =>
      claimPacks(this.#session, { claimId, workerId, leaseSeconds, proofs }, lanes),
    );
    const isDoubtful = packs.length === 0 && proofs.length > 0;
    for (const pack of packs) {
      this.#lanes.passed(pack.lane, Number(pack.id));
      byLane.set(pack.lane, (byLane.get(pack.lane) ?? 0) + pack.tasks.length);
    }
    for (const request of isDoubtful ? [] : requests) {
      const found = packs.filter((pack) => pack.lane === request.lane).length;
      if (found < request.take) this.#lanes.markEmpty(request);
    }
    return { byLane, claim: tasks[0]?.claim, isDoubtful };
  }

  async #open(request: PackRequest): Promise<number> {
    const lane = rowLane(request.lane);
    const { count, last, lastRow } = await openWaitingPacks(this.#session, { ...request, lane });
    if (count < request.take) this.#lanes.markEmpty(request);
    if (count === 0) return 0;
    this.#lanes.opened(request.lane, last, lastRow);
    this.#options.onOpened();
    return count;
  }
}
