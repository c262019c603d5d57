import type { Clock } from "../base/clock.ts";
import type { Queryable } from "../db/database.ts";
import { PACK_TASKS_MAX } from "./claimed-pack.ts";
import type { Taken } from "./claims.ts";
import type { Limiter } from "./limiter.ts";
import { bucketSet } from "./sql/bucket-owners.ts";
import type { GrantProof } from "./sql/claim.ts";
import {
  claimKeyedPacks,
  type Obstacle,
  probeKeySpace,
  type WaitingPacks,
} from "./sql/key-packs.ts";
import { openKeyedPacks } from "./sql/open-packs.ts";
import type { ClaimedPacks } from "./sql/packs.ts";
import { bucketOfLane } from "./task.ts";

export interface KeyPacksOptions {
  /** Whether packs of a queue that allows so many tasks are taken whole: a worker must be fast. */
  readonly isWhole: (queue: string, allowed: number) => boolean;
  /** How a claim of packs is made; the claimer hands it down. */
  readonly take: (claim: (claimId: string) => Promise<ClaimedPacks>) => Promise<Taken>;
  /** Tasks that waited in packs wait as rows now, some perhaps in other workers' buckets. */
  readonly onOpened: () => void;
}

/** Between two packs that are opened to see whether they hold anything that can run. */
const SEARCH_MS = 100;

/** What a claim must find true. */
export interface OwnerFacts {
  readonly workerId: string;
  /** The space that the queues name. */
  readonly baseId: number;
  readonly leaseSeconds: number;
  readonly epoch: string;
  readonly marker: string | null;
}

export interface KeyPackRequest extends OwnerFacts {
  /** Whose packs may be taken whole. Undefined: nobody's. */
  readonly queue: string | undefined;
  /** Keys of which no more may wait here. */
  readonly full: readonly string[];
}

/**
 * The packs of one key space in which this worker has buckets. Packs and rows of a bucket are one
 * line, in the order of their numbers: rows behind the first pack are not claimed, and a pack is
 * claimed when no row before it may run. One that cannot be taken whole is opened, and is rows at
 * the same place.
 */
export class KeyPacks {
  readonly #session: Queryable;
  readonly #keySpaceId: number;
  readonly #options: KeyPacksOptions & { readonly limiter: Limiter };
  readonly #clock: Clock;
  #searchAgainAtMs = -Infinity;
  #buckets = bucketSet([]);
  #owned = bucketSet([]);
  #lanes = "{}";
  #floor = 0;
  #version = 0;
  #mayWait = true;
  #obstacle: Obstacle | null = null;

  constructor(
    session: Queryable,
    keySpaceId: number,
    options: KeyPacksOptions & { readonly clock: Clock; readonly limiter: Limiter },
  ) {
    this.#clock = options.clock;
    this.#session = session;
    this.#keySpaceId = keySpaceId;
    this.#options = options;
  }

  /** Whether there may be some. */
  get mayWait(): boolean {
    return this.#mayWait;
  }

  /** Whether the first waits for something that nobody announces. */
  get isObstructed(): boolean {
    return this.#mayWait && this.#obstacle !== null;
  }

  /** Milliseconds until the next one may be opened to search it. */
  get searchMs(): number {
    if (!this.#mayWait) return Infinity;
    const waitMs = this.#searchAgainAtMs - this.#clock.now();
    return waitMs > 0 ? waitMs : Infinity;
  }

  get waiting(): WaitingPacks {
    return { keySpaceId: this.#keySpaceId, floor: this.#floor, buckets: this.#buckets };
  }

  useLanes(open: readonly number[], unopened: readonly number[]): void {
    const bucketsOf = (lanes: readonly number[]): number[] =>
      lanes.map((lane) => bucketOfLane(lane).bucket);
    this.#lanes = `{${open.join(",")}}`;
    this.#buckets = bucketSet(bucketsOf(open));
    this.#owned = bucketSet(bucketsOf([...open, ...unopened]));
    this.forget();
  }

  /** Grows whenever the floor is lowered: what was asked before must not raise it again. */
  get version(): number {
    return this.#version;
  }

  /** What was known is to be found again. */
  forget(): void {
    this.#version += 1;
    this.#floor = 0;
    this.#mayWait = true;
    this.#obstacle = null;
  }

  probed(hasPacks: boolean): void {
    this.#mayWait = hasPacks;
  }

  /** Takes in a look. `settled` is what was proven before its snapshot, or by it. */
  saw(firstPack: number, settled: number, version: number): void {
    if (version !== this.#version) return;
    this.#floor = Math.max(this.#floor, Math.min(settled, firstPack - 1));
    this.#mayWait = firstPack < Infinity;
  }

  /**
   * Takes packs for about `want` tasks, or opens some. When rows of `full` keys wait, nobody knows
   * whether the next pack has anything else: then one is opened at a time, and while nothing is
   * found, not the whole backlog at once.
   */
  async claim(want: number, request: KeyPackRequest): Promise<number> {
    if (!this.#mayWait) return 0;
    const { limiter, isWhole } = this.#options;
    const { queue, full } = request;
    if (queue !== undefined && isWhole(queue, Infinity)) {
      await limiter.take(queue, want); // Only for what may be claimed with it: others lack it.
      if (isWhole(queue, limiter.allowed(queue)))
        return await this.#claimWhole(want, queue, request);
    }
    return full.length === 0 ? await this.#open(want) : await this.#search();
  }

  async #claimWhole(want: number, queue: string, facts: OwnerFacts): Promise<number> {
    const { limiter } = this.#options;
    const take = Math.floor(Math.min(want, limiter.allowed(queue)) / PACK_TASKS_MAX);
    if (take === 0) return 0;
    const proofs = limiter.proofs().filter((one) => one.queue === queue);
    const { packs, tasks } = await this.#take(take, facts, proofs);
    await limiter.spent(queue, tasks.length, tasks[0]?.claim);
    if (packs === 0 && this.#obstacle === null && proofs.length > 0) return await this.#doubt();
    if (packs < take && this.#obstacle === null) this.#mayWait = false;
    if (packs > 0 || this.#obstacle === null || this.#obstacle === "behind") return tasks.length;
    return await this.#open(this.#obstacle === "held" ? 1 : want);
  }

  /** Nothing was found, or what the claim relied on was not so: only a look tells. */
  async #doubt(): Promise<0> {
    this.#options.limiter.doubt();
    this.#searchAgainAtMs = this.#clock.now() + SEARCH_MS;
    this.probed((await probeKeySpace(this.#session, this.waiting)).hasPacks);
    return 0;
  }

  async #take(
    take: number,
    facts: OwnerFacts,
    proofs: readonly GrantProof[],
  ): Promise<Taken & { readonly packs: number }> {
    const mine = { owned: this.#owned, lanes: this.#lanes };
    const request = { ...facts, ...this.waiting, ...mine, take, proofs };
    let packs = 0;
    const { tasks } = await this.#options.take(async (claimId) => {
      const claimed = await claimKeyedPacks(this.#session, { ...request, claimId });
      this.#obstacle = claimed.obstacle;
      packs = claimed.packs.length;
      return claimed;
    });
    return { tasks, packs };
  }

  /** Rows were claimed: the next search may begin at once. */
  found(): void {
    this.#searchAgainAtMs = -Infinity;
  }

  async #search(): Promise<number> {
    const nowMs = this.#clock.now();
    if (nowMs < this.#searchAgainAtMs) return 0;
    this.#searchAgainAtMs = nowMs + SEARCH_MS;
    return await this.#open(1);
  }

  async #open(want: number): Promise<number> {
    const take = Math.ceil(want / PACK_TASKS_MAX);
    const opened = await openKeyedPacks(this.#session, this.waiting, take);
    if (opened < take) this.#mayWait = false;
    if (opened > 0) this.#options.onOpened();
    return opened;
  }
}
