import type { Clock } from "../base/clock.ts";
import { bucketOf } from "../cluster/ring.ts";
import type { Queryable } from "../db/database.ts";
import { PACK_TASKS_MAX } from "./claimed-pack.ts";
import type { Executor } from "./executor.ts";
import { allowanceOf } from "./key-allowance.ts";
import { KeyHeads } from "./key-heads.ts";
import { type Asked, HELD_MAX, KeyLaneBook } from "./key-lanes.ts";
import { KeyPacks, type KeyPacksOptions } from "./key-packs.ts";
import { KeyRates, keyRatesOf } from "./key-rates.ts";
import type { ClaimFacts, KeySpace, TakeRows } from "./key-space.ts";
import type { Limiter } from "./limiter.ts";
import type { Limits } from "./limits.ts";
import type { ServerWatch } from "./server-watch.ts";
import type { Settling } from "./settling.ts";
import { FIELD } from "./sql/claim.ts";
import { lookAtKeyLanes } from "./sql/key-lanes.ts";
import { type KeySpaceProbe, probeKeySpace, type WaitingPacks } from "./sql/key-packs.ts";
import {
  claimKeyedTasks,
  findForeignLanes,
  type KeyAllowance,
  type OwnedBuckets,
} from "./sql/keys.ts";
import { keyLane } from "./task.ts";

const FOREIGN_RETRY_MS = 50;
/** Fewer are claimed one by one, not in packs. */
const FEW = 2 * PACK_TASKS_MAX;

/** What was known of a space when it was probed. */
interface AskedSpace extends Asked {
  readonly holds: number;
}

/** What all key spaces of a worker share. */
export interface KeyClaimerParts {
  readonly settling: Settling;
  readonly server: ServerWatch;
  readonly limiter: Limiter;
  /** So many of one key may wait in memory. */
  readonly perKey: (tenant: string) => number;
  /** How many of the tenant in the queue there is room for. Infinity: for anybody's. */
  readonly roomOf: (queue: string, tenant: string) => number;
  readonly clock: Clock;
  readonly packs: KeyPacksOptions;
}

/**
 * The buckets of one key space that this worker owns:
 *
 * - unopened: written as ours, but a former owner may still hold tasks in them. Nothing is claimed.
 * - open: a snapshot taken after they became ours showed no task of somebody else. From then on
 *   only we can claim there, as long as the epoch of our row is the one we know; every claim
 *   compares it.
 *
 * A new epoch closes all of them. Dying anywhere leaves leases, which keep the next owner waiting
 * until they end.
 */
export class KeyClaimer {
  readonly #session: Queryable;
  readonly #executor: Executor;
  readonly #settling: Settling;
  readonly #server: ServerWatch;
  readonly #clock: Clock;
  readonly #limiter: Limiter;
  readonly #parts: KeyClaimerParts;
  readonly space: KeySpace;
  #rates: KeyRates | undefined;
  #knownRates = "[]";
  #epoch = "";
  #unopened: number[] = [];
  readonly #lanes: KeyLaneBook;
  readonly #packs: KeyPacks;
  readonly #heads: KeyHeads;
  /** What was closed since it was last asked which lanes may open. */
  #closed = new Set<number>();
  #openAgainAtMs = -Infinity;

  constructor(session: Queryable, executor: Executor, space: KeySpace, parts: KeyClaimerParts) {
    this.#limiter = parts.limiter;
    this.#parts = parts;
    this.#session = session;
    this.#executor = executor;
    this.space = space;
    this.#settling = parts.settling;
    this.#server = parts.server;
    this.#clock = parts.clock;
    this.#lanes = new KeyLaneBook((key) => keyLane(space.id, bucketOf(key.split(FIELD)[1] ?? "")));
    this.#heads = new KeyHeads(session, space, {
      ...parts,
      executor,
      lanes: this.#lanes,
      epoch: () => this.#epoch,
      rates: () => this.#rates,
    });
    this.#packs = new KeyPacks(session, space.id, {
      ...parts.packs,
      clock: parts.clock,
      limiter: parts.limiter,
      onOpened: () => {
        this.#lanes.assumeWork();
        parts.packs.onOpened();
      },
    });
  }

  /** As they are stored: a person may have changed them. */
  useLimits(limits: ReadonlyMap<string, Limits>): void {
    const rates = keyRatesOf(this.space.queues, limits);
    const known = JSON.stringify(rates);
    if (known === this.#knownRates) return;
    this.#knownRates = known;
    this.#rates = rates.length === 0 ? undefined : new KeyRates(rates, this.#clock);
    this.#heads.next.changed();
  }

  /** What the database says we own. */
  own({ epoch, buckets }: Pick<OwnedBuckets, "epoch" | "buckets">): void {
    if (epoch === this.#epoch) return;
    this.#epoch = epoch;
    this.#lanes.clear();
    this.#unopened = buckets.map((bucket) => keyLane(this.space.id, bucket));
    this.#packs.useLanes([], this.#unopened);
    this.#openAgainAtMs = -Infinity;
    this.#rates?.restart();
  }

  get owns(): number {
    return this.#lanes.size + this.#unopened.length;
  }

  /** The server may have crashed: what was known of lanes is to be found again. */
  forget(): void {
    this.#lanes.lowerAll();
    this.#packs.forget();
  }

  /** Holds may have come or gone, and with them what is below the floors. */
  changed(): void {
    this.forget();
    this.#heads.next.changed();
  }

  /** Somebody said that there is work: one look tells whether any of it is here. */
  async workArrived(): Promise<void> {
    if (this.isProbeWorth) await this.#probe();
  }

  get isProbeWorth(): boolean {
    return this.#lanes.size > 0 && !(this.#isBusy && this.#packs.mayWait);
  }

  /** Packs that concern it. */
  get waiting(): WaitingPacks {
    return this.#packs.waiting;
  }

  /** Before it is probed with others. */
  get asked(): AskedSpace {
    return { ...this.#lanes.asks([]), holds: this.#heads.next.asked };
  }

  probed({ hasRows, hasPacks }: KeySpaceProbe): void {
    if (hasRows) this.#lanes.assumeWork();
    this.#packs.probed(hasPacks);
  }

  /** As one of many: nothing is asked for again where nothing is. */
  probedWith(probe: KeySpaceProbe, asked: AskedSpace, isNews: boolean): void {
    const { hasRows, hasPacks, hasHolds } = probe;
    if (isNews) this.probed({ hasRows, hasPacks });
    if (!hasRows) this.#lanes.markEmpty(this.#lanes.numbers, asked);
    // When one comes, somebody says so.
    if (hasHolds === false) this.#heads.next.answered(Infinity, asked.holds);
  }

  async #probe(): Promise<boolean> {
    const probe = await probeKeySpace(this.#session, this.#packs.waiting);
    this.probed(probe);
    return probe.hasRows || probe.hasPacks;
  }

  /** Whether a task of it is ready to start. */
  get isHere(): boolean {
    const { queues, tenant } = this.space;
    return queues.some((queue) => this.#executor.lines.readyOf(queue)?.hasKeyedOf(tenant));
  }

  /** How many wait here behind others of their key; of one key no more than a few. */
  get behind(): number {
    return this.#executor.keys.aheadOf(this.space.id);
  }

  get hasWork(): boolean {
    return this.isHoldDue || this.#packs.mayWait || this.#isBusy;
  }

  /** Milliseconds until something is due that nobody announces. */
  get restMs(): number {
    const now = this.#clock.now();
    const hold = this.#lanes.size > 0 ? this.#heads.next.atMs - now : Infinity;
    const opening = this.#unopened.length > 0 ? this.#openAgainAtMs - now : Infinity;
    // What a rate refused a moment ago it may allow by now, and then nobody says so.
    const isRefused = this.#rates !== undefined && this.#isBusy;
    const rate = Math.min(isRefused ? RATE_RETRY_MS : Infinity, this.#rates?.nextMs() ?? Infinity);
    const pack = this.#packs.isObstructed ? PACK_RETRY_MS : this.#packs.searchMs;
    return Math.max(0, Math.min(opening, hold, rate, pack));
  }

  get isHoldDue(): boolean {
    return this.#lanes.size > 0 && this.#clock.now() >= this.#heads.next.atMs;
  }

  get #isBusy(): boolean {
    return this.#lanes.isBusy(() => this.#fullKeys());
  }

  #fullKeys(): string[] {
    return this.#executor.keys.fullKeys(this.space.id, this.#parts.perKey(this.space.tenant));
  }

  /** Claimed from no more, until it is shown again that nothing in it is held by others. */
  close(lane: number): void {
    this.#closed.add(lane);
    if (!this.#lanes.close(lane)) return;
    this.#unopened.push(lane);
    this.#packs.useLanes(this.#lanes.numbers, this.#unopened);
  }

  /** Opens buckets in which nobody else holds a task any more. */
  async open(): Promise<void> {
    if (this.#unopened.length === 0 || this.#clock.now() < this.#openAgainAtMs) return;
    const epoch = this.#epoch;
    const asked = new Set(this.#unopened);
    this.#closed = new Set();
    // A lease that we lost, or adopted without its place in line, is somebody else's until its end.
    const ids = [...this.#executor.held]
      .filter(({ lane, ranMs }) => asked.has(lane) && ranMs === undefined)
      .map(({ id }) => id);
    const foreign = await findForeignLanes(this.#session, [...asked], ids);
    if (this.#epoch !== epoch) return;
    // What was lost meanwhile was ours when it was asked.
    const isShut = (lane: number): boolean => foreign.has(lane) || this.#closed.has(lane);
    for (const lane of asked) if (!isShut(lane)) this.#lanes.open(lane);
    this.#unopened = this.#unopened.filter((lane) => isShut(lane) || !asked.has(lane));
    this.#packs.useLanes(this.#lanes.numbers, this.#unopened);
    this.#openAgainAtMs = this.#clock.now() + FOREIGN_RETRY_MS;
    this.#heads.next.changed();
  }

  /** Where each lane begins. The snapshot may also close an epoch of the numbers. */
  async look(isProbed = false): Promise<void> {
    if (this.#lanes.size === 0) return;
    if (!this.#isBusy && (isProbed ? !this.#packs.mayWait : !(await this.#probe()))) return;
    const [epoch, before] = [this.#epoch, this.#settling.settled];
    const asked = this.#lanes.asks(this.#fullKeys());
    const { version } = this.#packs;
    const look = await lookAtKeyLanes(
      this.#session,
      { packs: this.#packs.waiting, exceptKeys: asked.full, heldMax: HELD_MAX },
      this.#lanes.starts(this.#lanes.numbers, asked.full),
    );
    if (!(await this.#server.confirms(look.marker))) return;
    const settled = this.#settling.observe(look.oldestRunning, before);
    for (const { passed } of look.lanes) this.#settling.sawNumber(passed?.lastOrder ?? 0);
    if (this.#epoch !== epoch) return;
    this.#lanes.saw(look, asked, Math.min(settled, look.firstPack - 1));
    this.#packs.saw(look.firstPack, settled, version);
  }

  /** Claims up to about `want` tasks: rows first, which are before the first pack. */
  async claim(want: number, facts: ClaimFacts, take: TakeRows): Promise<number> {
    const rows = await this.#claimRows(want, facts, take);
    if (rows > 0) this.#packs.found();
    if (rows >= want || this.#lanes.size === 0) return rows;
    // Whole packs if nothing but limits bounds them.
    const isBound = this.#allowance(want, () => Infinity) !== undefined;
    const [queue] = isBound ? [] : this.space.queues;
    const { marker } = this.#server;
    const owner = { ...facts, baseId: this.space.baseId, epoch: this.#epoch, marker };
    const request = { ...owner, queue, full: this.#fullKeys() };
    return rows + (await this.#packs.claim(want - rows, request));
  }

  async #claimRows(want: number, facts: ClaimFacts, take: TakeRows): Promise<number> {
    if (want <= 0 || !this.#isBusy) return 0;
    const { queues, tenant } = this.space;
    // A server takes no slots of a queue that nobody orders there.
    const ordered = queues.filter((queue) => this.#parts.roomOf(queue, tenant) > 0);
    await this.#limiter.takeAll(ordered, want);
    // From here to the statement nothing is waited for: no lane of it is closed meanwhile.
    const asked = this.#lanes.asks(this.#fullKeys());
    const busy = this.#lanes.busy(asked.full);
    if (busy.length === 0) {
      await this.#limiter.spentAll(this.space.queues, []);
      return 0;
    }
    const each = Math.max(1, Math.ceil((want * 1.5) / busy.length));
    const lanes = this.#lanes.starts(busy, asked.full).map((one) => ({ ...one, take: each }));
    // Of the same moment as the floors.
    const { marker } = this.#server;
    const { settled } = this.#settling;
    const taken = new Map<number, { count: number; last: number }>();
    let isLimited = false;
    let hasPassed = asked.full.length > 0;
    const tasks = await take(async (claimId) => {
      const perKey = this.#allowance(want);
      isLimited = perKey !== undefined;
      const claimed = await claimKeyedTasks(
        this.#session,
        {
          ...facts,
          claimId,
          proofs: this.#limiter.proofs(),
          keySpaceId: this.space.id,
          baseId: this.space.baseId,
          epoch: this.#epoch,
          marker,
          packs: this.#packs.waiting,
          exceptKeys: asked.full,
          ...(perKey === undefined ? {} : { perKey }),
        },
        lanes,
      );
      hasPassed ||= claimed.hasPassed;
      return claimed;
    }, false);
    const count = tasks.length;
    for (const task of tasks) {
      const { count: before, last } = taken.get(task.lane) ?? { count: 0, last: 0 };
      taken.set(task.lane, { count: before + 1, last: Math.max(last, task.claimOrder) });
      this.#rates?.spend(task.tenant, task.partitionKey ?? "");
    }
    await this.#limiter.spentAll(this.space.queues, tasks);
    // What a limit refused is still there: only an end here, or time, makes it possible.
    if (isLimited) return count;
    const poor = busy.filter((lane) => (taken.get(lane)?.count ?? 0) < each);
    this.#lanes.markEmpty(poor, asked);
    // Who got nothing at all may have been refused.
    if (hasPassed || marker === null || count === 0) return count;
    for (const lane of busy) {
      const { count: ofLane = 0, last = 0 } = taken.get(lane) ?? {};
      this.#lanes.took(lane, ofLane < each ? settled : last, asked, settled);
    }
    return count;
  }

  #allowance(
    want: number,
    limitOf = (queue: string): number => this.#limiter.allowed(queue),
  ): KeyAllowance | undefined {
    const { id, tenant, isShared } = this.space;
    // Of few that are wanted none too many are taken, and of a queue that nobody asks for none.
    const isFew = isShared || want < Math.max(this.#lanes.size, FEW);
    return allowanceOf({
      ...this.space,
      perKey: this.#parts.perKey(tenant),
      held: () => this.#executor.keys.counts(id),
      rates: this.#rates,
      limitOf,
      roomOf: (queue) => {
        const room = this.#parts.roomOf(queue, tenant);
        if (room === Infinity || !isFew) return Infinity;
        return room > 0 ? want : 0;
      },
    });
  }

  /** Claims the heads of held keys whose time has come, and lets keys flow that may. */
  async claimHeads(want: number, facts: ClaimFacts, take: TakeRows): Promise<number> {
    return this.isHoldDue ? await this.#heads.claim(want, facts, take) : 0;
  }

  /** A head that was claimed alone has ended: see what comes next of its key. */
  headEnded(): void {
    this.#heads.next.changed();
  }

  /** Tasks below the floor may be wanted again. */
  flowAgain(lane: number): void {
    this.#lanes.lower(lane);
  }
}

const RATE_RETRY_MS = 100;
const PACK_RETRY_MS = 20;
