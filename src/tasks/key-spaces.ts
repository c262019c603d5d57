import type { Clock } from "../base/clock.ts";
import type { Demand } from "./demand.ts";
import type { Executor } from "./executor.ts";
import { KeyClaimer, type KeyClaimerParts } from "./key-claimer.ts";
import {
  type ClaimFacts,
  isSameQueues,
  type KeyedQueues,
  type TakeRows,
  tenantSpace,
} from "./key-space.ts";
import type { Limits } from "./limits.ts";
import type { TaskSession } from "./session.ts";
import { probeKeySpaces } from "./sql/key-packs.ts";
import { type OwnedBuckets, readOwnedBuckets } from "./sql/keys.ts";
import { readStoppedKeys } from "./sql/queue-admin.ts";
import { bucketOfLane, keyId, keyLane } from "./task.ts";

/** While there is work, looking at all buckets again is worth this much. */
const LOOK_MS = 100;
/** While claims without keys find what news told of, keyed tasks that came with it may wait. */
const PROBE_MS = 20;
/** Of as many spaces tasks are claimed without waiting for each other's answers. */
const CLAIMS_AT_ONCE = 8;
/** Of so many it is looked where their lanes begin. */
const LOOKS_AT_ONCE = 8;

/** How much of a key space a worker wants: keyed tasks wait for each other in memory. */
export type WantKeyed = Pick<Demand, "wantKeyed" | "isForAll">;

/** What is known of work that may have come. */
export interface KeyNews {
  /** Somebody said that there is some. */
  readonly isNews: boolean;
  /** How many tasks without keys were found of it. */
  readonly unkeyed: Promise<number> | number;
  /** Somebody waits until everything was looked at. */
  readonly isAwaited: boolean;
}

/** All key spaces of which this worker owns buckets: of its queues, one for each tenant. */
export class KeySpaces {
  readonly #session: TaskSession;
  readonly #executor: Executor;
  readonly #facts: ClaimFacts;
  readonly #clock: Clock;
  #parts: KeyClaimerParts | undefined;
  /** By the key space that they name. */
  #queues: ReadonlyMap<number, KeyedQueues> = new Map();
  readonly #spaces = new Map<number, KeyClaimer>();
  #limits: ReadonlyMap<string, Limits> = new Map();
  /** Of which something was asked for in the last round. */
  #wanted: readonly KeyClaimer[] = [];
  /** Grows when somebody says that there is work; by space, which of that it has heard. */
  #news = 0;
  readonly #heard = new WeakMap<KeyClaimer, number>();
  #isOwnershipNews = true;
  #lookedAtMs = -Infinity;
  #probedAtMs = -Infinity;
  /** Whether the last probe found something to claim. */
  #hadWork = true;
  /** Grows with every claim. */
  #first = 0;

  constructor(session: TaskSession, executor: Executor, facts: ClaimFacts, clock: Clock) {
    this.#session = session;
    this.#executor = executor;
    this.#facts = facts;
    this.#clock = clock;
  }

  /** Set once the queues are registered. What is known of a space that is as before stays. */
  use(queues: readonly KeyedQueues[], parts: KeyClaimerParts): void {
    const isAsBefore =
      queues.length === this.#queues.size &&
      queues.every((one) => isSameQueues(this.#queues.get(one.id), one));
    if (isAsBefore) return;
    this.#parts = parts;
    this.#queues = new Map(queues.map((one) => [one.id, one]));
    for (const [id, { space }] of this.#spaces) {
      if (!isSameQueues(this.#queues.get(space.baseId), space)) this.#spaces.delete(id);
    }
    this.#isOwnershipNews = true;
  }

  useLimits(limits: ReadonlyMap<string, Limits>): void {
    this.#limits = limits;
    for (const space of this.#spaces.values()) space.useLimits(limits);
  }

  /** The space of a lane of keyed tasks. */
  of(lane: number): KeyClaimer | undefined {
    return this.#spaces.get(bucketOfLane(lane).keySpaceId);
  }

  /** Buckets may have moved, keys may flow again. */
  ownersChanged(): void {
    this.#isOwnershipNews = true;
    for (const space of this.#spaces.values()) space.changed();
  }

  /** The server may have crashed. */
  forget(): void {
    for (const space of this.#spaces.values()) space.forget();
  }

  /** Milliseconds until something is due that nobody announces. What is not wanted is not due. */
  get restMs(): number {
    return Math.min(this.owedMs, ...this.#wanted.map((space) => space.restMs));
  }

  /** Milliseconds until news are heard that are not yet. */
  get owedMs(): number {
    const isOwed = this.#wanted.some((space) => this.#hasNews(space));
    return isOwed ? Math.max(0, this.#probedAtMs + PROBE_MS - this.#clock.now()) : Infinity;
  }

  /** Whether nothing is known to wait in any of them. */
  get isDry(): boolean {
    for (const space of this.#spaces.values()) if (space.hasWork) return false;
    return true;
  }

  /** Asks what is ours when that may have changed, and gives back what is not. */
  async readOwnership(): Promise<void> {
    if (!this.#isOwnershipNews) return;
    this.#isOwnershipNews = false;
    try {
      await this.#readOwnership();
    } catch (error) {
      this.#isOwnershipNews = true;
      throw error;
    }
  }

  async #readOwnership(): Promise<void> {
    if (this.#queues.size === 0) return;
    const owned = await readOwnedBuckets(this.#session, this.#facts.workerId);
    const lanes = this.#own(owned);
    const held = new Set<number>();
    for (const { lane } of this.#executor.held) if (lane < 0) held.add(lane);
    const lost = [...held].filter((lane) => !lanes.has(lane));
    if (lost.length > 0) this.#executor.leaveLanes(new Set(lost));
    if (held.size === 0) return;
    const stopped = await readStoppedKeys(this.#session, [...held]);
    const keys = stopped.map((one) => keyId(one.lane, one.tenant, one.partition_key));
    this.#executor.stopKeys(new Set(keys));
  }

  /** Takes in what is ours. Returns the lanes. Of queues that are not known yet nothing is. */
  #own(owned: readonly OwnedBuckets[]): Set<number> {
    const lanes = new Set<number>();
    const spaces = new Set<number>();
    for (const one of owned) {
      const space = this.#spaces.get(one.keySpaceId) ?? this.#open(one);
      if (space === undefined) continue;
      spaces.add(one.keySpaceId);
      space.own(one);
      for (const bucket of one.buckets) lanes.add(keyLane(one.keySpaceId, bucket));
    }
    for (const id of this.#spaces.keys()) if (!spaces.has(id)) this.#spaces.delete(id);
    return lanes;
  }

  #open(owned: OwnedBuckets): KeyClaimer | undefined {
    const queues = this.#queues.get(owned.baseId);
    if (queues === undefined || this.#parts === undefined) return undefined;
    const space = tenantSpace(queues, owned);
    const claimer = new KeyClaimer(this.#session, this.#executor, space, this.#parts);
    claimer.useLimits(this.#limits);
    this.#spaces.set(space.id, claimer);
    return claimer;
  }

  /** Claims from each space as much as is wanted of it. */
  async claim(news: KeyNews, want: WantKeyed, take: TakeRows): Promise<number> {
    if (news.isNews) this.#news += 1;
    this.#first += 1;
    const isLookDue = this.#clock.now() - this.#lookedAtMs >= LOOK_MS;
    if (isLookDue) this.#lookedAtMs = this.#clock.now();
    const wanted = [...this.#spaces.values()].filter(
      (space) => space.owns > 0 && want.wantKeyed(space) > 0,
    );
    this.#wanted = wanted;
    const [only] = wanted;
    if (only === undefined) return 0;
    const isHeard = await this.#isHeard(wanted, news);
    if (wanted.length > 1) {
      await this.#lookAtAll(wanted, isLookDue, isHeard);
      if (isHeard) this.#hadWork = wanted.some((space) => space.hasWork);
      return await this.#claimFromAll(wanted, want, take);
    }
    await only.open();
    if (isHeard) await only.workArrived();
    else if (isLookDue) await only.look();
    if (isHeard) {
      this.#heard.set(only, this.#news);
      this.#hadWork = only.hasWork;
    }
    const heads = await only.claimHeads(want.wantKeyed(only), this.#facts, take);
    return heads + (await only.claim(want.wantKeyed(only), this.#facts, take));
  }

  #hasNews(space: KeyClaimer): boolean {
    return this.#heard.get(space) !== this.#news;
  }

  /**
   * Whether to probe now for what news told of. Where most tasks have no keys, news are mostly of
   * those, and a probe behind each claim would keep the next task waiting for the processor.
   */
  async #isHeard(wanted: readonly KeyClaimer[], news: KeyNews): Promise<boolean> {
    if (!wanted.some((space) => this.#hasNews(space))) return false;
    const isDue = this.#clock.now() - this.#probedAtMs >= PROBE_MS;
    const isHeard =
      isDue || this.#hadWork || news.isAwaited || (news.isNews && (await news.unkeyed) === 0);
    if (isHeard) this.#probedAtMs = this.#clock.now();
    return isHeard;
  }

  /** As above, with one probe for all: of many tenants few have work at a time. */
  async #lookAtAll(
    wanted: readonly KeyClaimer[],
    isLookDue: boolean,
    isHeard: boolean,
  ): Promise<void> {
    await all(wanted.map((space) => space.open()));
    const old = isLookDue ? wanted.filter((space) => !this.#hasNews(space)) : [];
    const looking = new Set(this.#inTurn(old).slice(0, LOOKS_AT_ONCE));
    const isNews = (space: KeyClaimer): boolean =>
      (isHeard && this.#hasNews(space)) || looking.has(space);
    const asked = wanted.filter(
      (space) => space.isHoldDue || (space.isProbeWorth && (isLookDue || isNews(space))),
    );
    if (asked.length > 0) {
      const before = asked.map((space) => space.asked);
      const waiting = asked.map((space) => space.waiting);
      const probes = await probeKeySpaces(this.#session, waiting);
      for (const [place, space] of asked.entries()) {
        const [probe, known] = [probes[place], before[place]];
        if (probe !== undefined && known !== undefined) {
          space.probedWith(probe, known, isNews(space));
        }
      }
    }
    if (isHeard) for (const space of wanted) this.#heard.set(space, this.#news);
    await all([...looking].map((space) => space.look(true)));
  }

  /** Beginning with another one each time, so that nobody is always last. */
  #inTurn(spaces: readonly KeyClaimer[]): KeyClaimer[] {
    const from = this.#first % Math.max(1, spaces.length);
    return [...spaces.slice(from), ...spaces.slice(0, from)];
  }

  /** Of how many spaces tasks are claimed at once. */
  #widthOf([first]: readonly KeyClaimer[], want: WantKeyed): number {
    // Of what limits allow each must know what the one before it took.
    const isLimited = this.#parts !== undefined && this.#parts.limiter.queues.length > 0;
    if (isLimited || first === undefined) return 1;
    // A claim brings one of each bucket at least: few are not asked of many.
    const most = want.isForAll ? want.wantKeyed(first) : CLAIMS_AT_ONCE;
    return Math.max(1, Math.min(CLAIMS_AT_ONCE, most));
  }

  /** Heads one after another, because one of all may be on probation. */
  async #claimFromAll(
    wanted: readonly KeyClaimer[],
    want: WantKeyed,
    take: TakeRows,
  ): Promise<number> {
    let taken = 0;
    for (const space of wanted) {
      taken += await space.claimHeads(want.wantKeyed(space), this.#facts, take);
    }
    const inTurn = this.#inTurn(wanted.filter((space) => space.hasWork));
    const width = this.#widthOf(inTurn, want);
    for (let at = 0; at < inTurn.length; at += width) {
      const some = inTurn.slice(at, at + width);
      const counts = await all(
        some.map(async (space) => {
          const most = want.wantKeyed(space);
          const share = want.isForAll ? Math.ceil(most / some.length) : most;
          return await space.claim(share, this.#facts, take);
        }),
      );
      taken += counts.reduce((sum, count) => sum + count, 0);
    }
    return taken;
  }
}

/** Waits for all, also when one fails: nothing may be under way when the next turn begins. */
async function all<T>(some: readonly Promise<T>[]): Promise<T[]> {
  const settled = await Promise.allSettled(some);
  return settled.map((one) => {
    if (one.status === "rejected") throw one.reason;
    return one.value;
  });
}
