import { exponentialMs } from "../base/backoff.ts";
import { Bell } from "../base/bell.ts";
import type { Clock } from "../base/clock.ts";
import { messageOf } from "../base/errors.ts";
import type { Logger } from "../base/log.ts";
import { runLoop, type TurnResult } from "../base/loop.ts";
import { Claims, sourcesOf } from "./claims.ts";
import { type Demand, HandlerDemand } from "./demand.ts";
import type { Executor } from "./executor.ts";
import { countOf, type Found } from "./found.ts";
import type { KeyedQueues, TakeRows } from "./key-space.ts";
import { KeySpaces } from "./key-spaces.ts";
import { isHere, isLacked } from "./lacking.ts";
import { type Lane, LaneBook, type Room, type Want } from "./lanes.ts";
import { Limiter } from "./limiter.ts";
import type { Limits } from "./limits.ts";
import { Looks } from "./looks.ts";
import type { TaskMetrics } from "./metrics.ts";
import { PackClaimer } from "./pack-claimer.ts";
import { RowClaimer } from "./row-claimer.ts";
import { ServerWatch } from "./server-watch.ts";
import type { TaskSession } from "./session.ts";
import { Settling } from "./settling.ts";
import { type GrantProof, type LaneRequest, lookAtLanes } from "./sql/claim.ts";

export interface ClaimerOptions {
  readonly workerId: string;
  readonly leaseSeconds: number;
  readonly concurrency: number;
  /** Defaults to what handlers in this process ask for. */
  readonly demand?: Demand;
  /** How often to look when nobody says that there is work. */
  readonly pollMs: number;
  readonly agingSeconds: number;
  readonly fairnessTurn: number;
  readonly weightOf: (queue: string, tenant: string) => number;
  readonly sequence: string;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly metrics: TaskMetrics;
  /** Whether handlers of the queue use leases. */
  readonly isByRow: (queue: string) => boolean;
  /** Tasks that waited in packs wait as rows now: others may want some of them. */
  readonly onOpened: () => void;
  /** Whether others must still take this worker for alive. */
  readonly isTrusted: () => boolean;
}

/** While there is work, looking at all lanes again is worth this much. */
const LOOK_MS = 100;
/** While no more is wanted, news are worth a glance at the other lanes no more often than this. */
const GLANCE_MS = 20;
/** While claims find what news told of, what came to unknown lanes with it may wait so long. */
const NEWS_LOOK_MS = 20;
/** Asking this many lanes blindly costs less than looking first. */
const BLIND_LANES_MAX = 32;
const RETRY_MS_MAX = 2_000;
const UNTRUSTED_MS = 100;
/** After a claim that relied on what was not so. */
const DOUBT_MS = 20;
/** Numbers handed out since the last epoch that make another one worth a write. */
const EPOCH_NUMBERS = 1_000;

/**
 * Takes tasks for this worker: as many as its slots and a prefetch need, from the lanes whose turn
 * it is. It knows where the lanes begin (their floors), nothing else: what is pending is asked of
 * the database with every claim.
 */
export class Claimer {
  /** Rung when there may be work, or room for it. */
  readonly bell = new Bell();
  readonly looks = new Looks();
  readonly #session: TaskSession;
  readonly #executor: Executor;
  readonly #options: ClaimerOptions;
  readonly #claims: Claims;
  readonly #lanes: LaneBook;
  readonly #settling: Settling;
  readonly #server: ServerWatch;
  readonly #demand: Demand;
  #lookedAtMs = -Infinity;
  #isWorkNews = true;
  /** News of which it is not known whether they were of a lane that a claim asked. */
  #isLookOwed = false;
  /** News of which the lanes that have nothing here were not told yet. */
  #isLackNews = true;
  /** A limit keeps a lane from having something here. */
  #isHeldBack = false;
  #glancedAtMs = -Infinity;
  /** Nothing waits that is known of, and nothing that ends here changes that: only news do. */
  #isDry = false;
  /** Room was made while it was dry, perhaps in the turn that ends that. */
  #isRoomMissed = false;
  readonly #rows: RowClaimer;
  readonly #packs: PackClaimer;
  readonly #limiter: Limiter;
  readonly #spaces: KeySpaces;
  #isDoubted = false;

  constructor(session: TaskSession, executor: Executor, options: ClaimerOptions) {
    this.#session = session;
    this.#executor = executor;
    this.#options = options;
    const { agingSeconds, fairnessTurn: turn, weightOf } = options;
    this.#lanes = new LaneBook({ agingSeconds, turn, weightOf });
    this.#settling = new Settling(options.sequence);
    this.#claims = new Claims(session, executor, {
      ...options,
      settling: this.#settling,
      sources: sourcesOf(this.#lanes, executor),
    });
    const proofs = (): readonly GrantProof[] => this.#limiter.proofs();
    this.#rows = new RowClaimer(session, this.#claims, this.#lanes, { ...options, proofs });
    this.#packs = new PackClaimer(session, this.#claims, this.#lanes, {
      ...options,
      proofs,
      ready: (queue) => this.#demand.aheadOf(queue),
      allowed: (queue) => this.#limiter.allowed(queue),
    });
    this.#server = new ServerWatch(session, () => this.#forget());
    this.#demand = options.demand ?? new HandlerDemand(executor, options);
    this.#spaces = new KeySpaces(session, executor, options, options.clock);
    this.#limiter = new Limiter(session, {
      workerId: options.workerId,
      leaseSeconds: options.leaseSeconds,
      clock: options.clock,
      metrics: options.metrics,
      held: (queue) => executor.lines.heldOf(queue),
    });
  }

  /** Somebody said that there is work. */
  workArrived(): void {
    this.#isWorkNews = true;
    this.#isLackNews = true;
    this.bell.ring();
  }

  /** Set once the queues are registered. */
  useKeySpaces(queues: readonly KeyedQueues[]): void {
    this.#spaces.use(queues, {
      settling: this.#settling,
      server: this.#server,
      limiter: this.#limiter,
      clock: this.#options.clock,
      perKey: (tenant) => this.#demand.perKey(tenant),
      roomOf: (queue, tenant) => this.#demand.roomOfTenant(queue, tenant),
      packs: this.#packs.ofKeys,
    });
  }

  useLimits(limits: ReadonlyMap<string, Limits>): void {
    this.#limiter.use(limits);
    this.#spaces.useLimits(limits);
    this.workArrived();
  }

  /** Gives back what this worker holds of limits. */
  async close(): Promise<void> {
    await this.#limiter.trim(true);
  }

  /** Buckets may have moved, keys may flow again. */
  ownersChanged(): void {
    this.#spaces.ownersChanged();
    this.workArrived();
  }

  /** A held head has ended. */
  headEnded(lane: number): void {
    this.#spaces.of(lane)?.headEnded();
    this.bell.ring();
  }

  /** A task came back to it, at its old place. */
  lowerLane(lane: number): void {
    this.#spaces.of(lane)?.flowAgain(lane);
    this.bell.ring();
  }

  /** A task in it is neither ours nor free: the lane opens again when it was reaped. */
  closeLane(lane: number): void {
    this.#spaces.of(lane)?.close(lane);
    this.bell.ring();
  }

  /** A slot came free: worth waking only when too little is left to do, and there may be more. */
  roomMade(): void {
    if (this.#isDry) this.#isRoomMissed = true;
    else if (this.#isHeldBack || this.#demand.mayWant) this.bell.ring();
  }

  /** Nothing of the lane is ready any more: if it has more, it must not miss its turn. */
  ranDry(lane: number): void {
    if (this.#demand.mayWant) return; // Then all are asked anyway.
    const space = lane < 0 ? this.#spaces.of(lane) : undefined;
    if (space?.hasWork === true || this.#lanes.hasMore(lane)) this.bell.ring();
  }

  async run(signal: AbortSignal): Promise<void> {
    const { clock, logger } = this.#options;
    const onFailure = (error: unknown, failures: number): number => {
      logger.warn({ error: messageOf(error), failures }, "could not claim tasks");
      // Whatever came while this failed was not looked at.
      this.#isWorkNews = true;
      this.#isLackNews = true;
      this.#rows.metOthers(); // Perhaps it waited for them too long.
      return exponentialMs(failures, 50, RETRY_MS_MAX);
    };
    const turn = (): Promise<TurnResult> => this.looks.during(() => this.#turn());
    await runLoop(turn, { clock, bell: this.bell, onFailure }, signal);
  }

  async #turn(): Promise<TurnResult> {
    const { pollMs, isTrusted } = this.#options;
    await this.#claims.undoDoubtful();
    this.#demand.measure();
    await this.#spaces.readOwnership();
    if (!isTrusted()) return { restMs: UNTRUSTED_MS }; // Nobody rings when the heart beats again.
    this.#isHeldBack = false;
    await this.#limiter.trim(); // Who is busy with other queues keeps no slots from others.
    if (this.#demand.want <= 0) return await this.#fillGaps();
    const isNews = this.#isWorkNews;
    this.#isWorkNews = false;
    // Both are written without waiting for each other, unless they share limits.
    const isLimited = this.#limiter.queues.length > 0;
    const unkeyed = this.#claimUnkeyed(isNews);
    if (isLimited) await unkeyed;
    const news = { isNews, unkeyed, isAwaited: this.looks.isAwaited };
    const [some, others] = await Promise.all([
      unkeyed,
      this.#spaces.claim(news, this.#demand, this.#take),
    ]);
    const taken = some + others;
    this.#demand.filled();
    if (this.#mayTakeMore(taken > 0)) return "again";
    if (this.#isDoubted) {
      this.#isDoubted = false;
      return { restMs: DOUBT_MS };
    }
    const owedMs = this.#isLookOwed ? NEWS_LOOK_MS - this.#sinceLookMs : Infinity;
    return { restMs: Math.min(pollMs, owedMs, this.#limiter.restMs, this.#spaces.restMs) };
  }

  #mayTakeMore(hasTaken: boolean): boolean {
    const isRoomMissed = this.#isRoomMissed;
    this.#isRoomMissed = false;
    this.#isDry =
      this.#lanes.isDry &&
      this.#limiter.queues.length === 0 &&
      this.#executor.keys.isEmpty &&
      this.#spaces.isDry;
    if (this.#isDry) return false;
    return hasTaken || isRoomMissed || this.#lanes.canChoose(this.#wanted, this.#room);
  }

  get #sinceLookMs(): number {
    return this.#options.clock.now() - this.#lookedAtMs;
  }

  /**
   * No more is wanted, and all that is ready would start before what comes now. So another tenant,
   * or a higher priority, of which nothing is ready gets a turn's worth of tasks all the same.
   */
  async #fillGaps(): Promise<TurnResult> {
    const { clock, fairnessTurn } = this.#options;
    this.#isDry = false;
    const pollMs = Math.min(this.#options.pollMs, this.#limiter.restMs);
    const tasks = this.#demand.reserve;
    if (tasks <= 0) return { restMs: pollMs };
    const everyMs = this.#lanes.size > BLIND_LANES_MAX ? LOOK_MS : GLANCE_MS;
    const waitMs = this.#isLackNews ? this.#glancedAtMs + everyMs - clock.now() : pollMs;
    const isNews = waitMs <= 0;
    if (isNews) await this.#look(isHere(this.#executor.lines));
    const lacking = this.#lanes.lacking(isLacked(this.#executor.lines));
    const limited = this.#limiter.queues.filter((name) =>
      lacking.some((one) => one.queue === name),
    );
    for (const queue of limited) await this.#limiter.take(queue, fairnessTurn);
    const want = { ...this.#wanted, tasks, below: undefined };
    const ofQueue = (queue: string): number => this.#limiter.allowed(queue);
    const lanes = this.#lanes.chooseOf(lacking, want, { ...this.#room, ofQueue });
    const taken = lanes.length === 0 ? 0 : await this.#claim(lanes);
    const news = { isNews, unkeyed: 0, isAwaited: this.looks.isAwaited };
    if (taken + (await this.#spaces.claim(news, this.#demand, this.#take)) > 0) return "again";
    this.#isHeldBack = limited.length > 0;
    return { restMs: Math.min(pollMs, isNews ? Infinity : waitMs, this.#spaces.owedMs) };
  }

  async #claimUnkeyed(isNews: boolean): Promise<number> {
    const isBlind = isNews && this.#lanes.size > 0 && this.#lanes.size <= BLIND_LANES_MAX;
    const sinceLookMs = this.looks.isAwaited ? Infinity : this.#sinceLookMs;
    const isOwed = this.#isLookOwed && sinceLookMs >= NEWS_LOOK_MS;
    if (isBlind) this.#lanes.assumeWork();
    else if (isNews || isOwed || sinceLookMs >= LOOK_MS) await this.#look();
    await this.#takeLimits();
    const lanes = this.#lanes.choose(this.#wanted, this.#room);
    // When news came, the claim is sent first and the look right behind it, on the same wire.
    const claiming = this.#claim(lanes);
    const isLooking = isBlind && sinceLookMs >= NEWS_LOOK_MS;
    const [taken] = await Promise.all([claiming, isLooking ? this.#look() : undefined]);
    const isUnsure = isBlind && !isLooking;
    this.#isLookOwed ||= isUnsure;
    if (isUnsure && taken === 0) await this.#look(); // The news were of something else.
    return taken;
  }

  async #takeLimits(): Promise<void> {
    for (const queue of this.#limiter.queues) {
      if (!this.#lanes.hasWork(queue)) continue;
      const room = Math.min(this.#demand.roomOf(queue), this.#roomOfTenants(queue));
      await this.#limiter.take(queue, Math.min(this.#demand.want, room));
    }
  }

  /** For what waits. A server takes no slots of a queue that nobody orders there. */
  #roomOfTenants(queue: string): number {
    const tenants = this.#lanes.waitingOf(queue);
    return tenants.reduce((sum, one) => sum + this.#demand.roomOfTenant(queue, one), 0);
  }

  /** A claim of keyed tasks. What was not answered is undone before anything else is claimed. */
  readonly #take: TakeRows = async (claim, isHeldHead) =>
    (await this.#claims.take(claim, isHeldHead)).tasks;

  get #wanted(): Want {
    const { want: tasks, below } = this.#demand;
    return { tasks, below, probation: this.#executor.hasProbation ? 0 : 1 };
  }

  readonly #room: Room = {
    ofQueue: (queue, priority) =>
      Math.min(this.#demand.roomOf(queue, priority), this.#limiter.allowed(queue)),
    ofTenant: (queue, tenant) => this.#demand.roomOfTenant(queue, tenant),
  };

  async #claim(lanes: readonly LaneRequest[]): Promise<number> {
    const { rows, packs } = this.#packs.divide(lanes);
    const answers = await Promise.allSettled([this.#rows.claim(rows), this.#packs.claim(packs)]);
    const found = answers.flatMap((one) => (one.status === "fulfilled" ? one.value : []));
    // One that failed is undone before anything else is claimed; what the other took has started.
    await this.#chargeLimits(found);
    for (const answer of answers) if (answer.status === "rejected") throw answer.reason;
    if (found.some(({ isDoubtful }) => isDoubtful)) {
      this.#limiter.doubt();
      this.#isDoubted = true;
      this.#lookedAtMs = -Infinity;
    }
    return found.reduce((sum, one) => sum + one.opened + countOf(one.byLane), 0);
  }

  /** Starts count from the later of the claims that used them. */
  async #chargeLimits(found: readonly Found[]): Promise<void> {
    const claims = found.flatMap(({ claim }) => claim ?? []);
    const [last] = claims.sort((a, b) => b.until.getTime() - a.until.getTime());
    for (const queue of this.#limiter.queues) {
      const count = found.reduce((sum, { byLane }) => sum + this.#lanes.sumOf(queue, byLane), 0);
      await this.#limiter.spent(queue, count, last);
    }
  }

  /** Where each lane begins. Also the moment at which an epoch may have closed. */
  async #look(isPassed?: (lane: Lane) => boolean): Promise<void> {
    const { clock } = this.#options;
    const queues = this.#executor.lines.names;
    this.#isLackNews = false;
    const [version, before] = [this.#lanes.version, this.#settling.settled];
    const floors = this.#lanes.floors(isPassed ?? (() => false));
    const look = await lookAtLanes(this.#session, queues, floors);
    const nowMs = clock.now();
    this.#glancedAtMs = nowMs;
    if (isPassed === undefined) {
      this.#lookedAtMs = nowMs;
      this.#isLookOwed = false;
    }
    if (look !== undefined) {
      if (!(await this.#server.confirms(look.marker))) return;
      const settled = this.#settling.observe(look.oldestRunning, before);
      if (this.#lanes.version !== version) return;
      this.#lanes.saw(look.lanes, floors, settled, nowMs);
    }
    if (isPassed !== undefined) return;
    for (const queue of queues) {
      const seconds = this.#lanes.oldestSeconds(queue, nowMs);
      this.#options.metrics.oldestPending.set(seconds, { queue });
    }
    // Without a marker nobody could tell whether the epoch closes on the same server.
    const isWorthIt = this.#settling.unsettled > EPOCH_NUMBERS && this.#server.marker !== null;
    if (!this.#settling.isOpen && isWorthIt) await this.#settling.open(this.#session);
  }

  /** The server may have crashed: what it had not written is gone, and what we saw of it. */
  #forget(): void {
    this.#options.logger.info({}, "the server may have crashed: looks at all lanes again");
    this.#lanes.forgetFloors();
    this.#spaces.forget();
    this.#settling.forget();
    this.workArrived();
  }
}
