import { once } from "node:events";
import { exponentialMs } from "../../base/backoff.ts";
import { Bell } from "../../base/bell.ts";
import type { Clock, WallClock } from "../../base/clock.ts";
import { messageOf } from "../../base/errors.ts";
import type { Logger } from "../../base/log.ts";
import { runLoop, type TurnResult } from "../../base/loop.ts";
import type { Service } from "../../base/supervisor.ts";
import type { Database } from "../../db/database.ts";
import type { EgressGuard } from "../egress/guard.ts";
import { InFlight } from "../in-flight.ts";
import type { DeliveryMetrics } from "../metrics.ts";
import type { ResolvedDeliverOptions } from "../options.ts";
import { type Choice, chooseNotices, type WaitingWork } from "./choice.ts";
import { NoticeCourier } from "./notice-courier.ts";
import {
  type Candidate,
  type ClaimedNotice,
  claimNotices,
  type NoticeToken,
  readDue,
  readQuiet,
  recordNotice,
  releaseNotice,
  type Turn,
} from "./sql/notices.ts";
import { WorkWatch } from "./work-watch.ts";

export interface NoticeSenderOptions
  extends Pick<ResolvedDeliverOptions, "limits" | "callSeconds"> {
  /** Closed with the sender. */
  readonly guard: EgressGuard;
  /** How often it is looked for work when nobody says that there is some. */
  readonly pollMs: number;
  /** How often at most, however much is said. */
  readonly lookMs: number;
  /** It rests at least so many times as long as it looked. */
  readonly restFactor: number;
  /** How often all of a queue is looked at, and not only what is new. */
  readonly wholeMs: number;
  /** How long a transaction that enqueues is expected to take at most. */
  readonly lagMs: number;
  /** How long a stop waits for calls under way. */
  readonly drainMs: number;
  readonly clock: Clock;
  readonly wallClock: WallClock;
  readonly random: () => number;
  readonly logger: Logger;
  readonly metrics: DeliveryMetrics;
}

/** Beside the call, for what comes before and after it. */
const LEASE_MARGIN_SECONDS = 30;
/** Of which one statement reads the subscriptions: more than one tenant can have. */
const PAGE = 1_000;
const REST_MS_MAX = 30_000;
const FAILED_MS_MAX = 5_000;

/**
 * Tells subscribers that work waits. Any number of senders may run at once, in any processes.
 *
 * States of a subscription: resting (its next time is to come) → due → claimed → resting. Work that
 * waits is looked for while it is due; if there is some and it is its turn, a claim compares its
 * generation, draws a claim id and holds it for a lease that is longer than a call can take. Only
 * that claim may record what became of the call, and the interval begins then. For a group the
 * claim also takes the turn of the group for each of the queues, compared by its next time.
 * Nothing is remembered of what was enqueued: as long as something waits, whoever is due is told.
 *
 * When the process dies:
 * - before the claim: nothing happened, and any sender finds the same;
 * - after the claim, before the call: the lease ends, and it is due again while something waits;
 * - during the call, or after the answer and before it is recorded: the same; it may be told twice,
 *   closer than its interval, with another id;
 * - while it is recorded: one statement, so all of that or nothing, and then the line above.
 * A sender that was paused beyond its lease sends nothing of what it holds, or its word comes too
 * late and changes nothing.
 */
export class NoticeSender implements Service {
  readonly name = "subscriptions";
  /** Rung when work may wait. */
  readonly bell = new Bell();
  readonly #db: Database;
  readonly #options: NoticeSenderOptions;
  readonly #watch: WorkWatch;
  readonly #courier: NoticeCourier;
  readonly #inFlight: InFlight;
  readonly #calls = new Set<Promise<void>>();
  /** Ends calls that a stop does not wait for. */
  readonly #ending = new AbortController();
  readonly #claiming = new AbortController();
  #claimedUntilMs = 0;
  #givenBack = 0;
  /** Tenants up to here were looked at in this round. */
  #afterTenant = "";
  #roundMs = 0;
  #nextLookMs = -Infinity;
  #isAnyDue = false;

  constructor(db: Database, options: NoticeSenderOptions) {
    this.#db = db;
    this.#options = options;
    this.#watch = new WorkWatch(db, options);
    this.#courier = new NoticeCourier(db, options);
    this.#inFlight = new InFlight(options.limits);
  }

  /** Notices that a stop gave back although their call had begun. */
  get givenBack(): number {
    return this.#givenBack;
  }

  /** Tells nobody else. The time to drain begins. */
  stopClaiming(): void {
    if (this.#claiming.signal.aborted) return;
    this.#claimedUntilMs = this.#options.clock.now();
    this.#claiming.abort();
  }

  async run(signal: AbortSignal): Promise<void> {
    const { clock, logger, guard } = this.#options;
    const stop = (): void => this.stopClaiming();
    signal.addEventListener("abort", stop, { once: true });
    if (signal.aborted) stop();
    const onFailure = (error: unknown, failures: number): number => {
      logger.warn({ error: messageOf(error), failures }, "looking for work to tell of failed");
      return exponentialMs(failures, 100, FAILED_MS_MAX);
    };
    try {
      const loop = { clock, bell: this.bell, onFailure };
      await runLoop(() => this.#turn(), loop, this.#claiming.signal);
      if (!signal.aborted) await once(signal, "abort");
      await this.#drain();
    } finally {
      guard.close();
    }
  }

  async #turn(): Promise<TurnResult> {
    const { clock, pollMs } = this.#options;
    const startedMs = clock.now();
    const earlyMs = this.#nextLookMs - startedMs;
    if (this.#afterTenant === "" && earlyMs > 0) return { restMs: earlyMs, isDeaf: true };
    if (this.#inFlight.room === 0) return { restMs: pollMs }; // The end of a call rings.
    const page = await readDue(this.#db, this.#afterTenant, PAGE);
    const served = await this.#tell(page.candidates, page.number);
    this.#roundMs += clock.now() - startedMs;
    this.#isAnyDue ||= page.candidates.some(({ is_due }) => is_due);
    // Who got nothing because the places were used up is the first of the next look.
    this.#afterTenant = served ?? page.afterTenant;
    return this.#afterTenant === "" ? this.#endRound(page.waitSeconds * 1_000) : "again";
  }

  #endRound(waitMs: number): TurnResult {
    const { clock, lookMs, pollMs, restFactor } = this.#options;
    const restMs = Math.min(REST_MS_MAX, this.#roundMs * restFactor);
    this.#nextLookMs = clock.now() + Math.max(lookMs, restMs);
    // News are for those who are due and were told nothing; nobody else can be told more by them.
    const isDeaf = !this.#isAnyDue;
    this.#roundMs = 0;
    this.#isAnyDue = false;
    return { restMs: Math.max(restMs, Math.min(pollMs, Math.max(1, Math.ceil(waitMs)))), isDeaf };
  }

  /** Returns the last tenant that had a place, when there was none for others. */
  async #tell(candidates: readonly Candidate[], number: number): Promise<string | undefined> {
    const work = await this.#watch.look(candidates, number);
    if (work.size === 0) return undefined;
    const busy = candidates.filter(({ tenant }) => work.has(tenant));
    const isGrouped = busy.some(({ mode }) => mode === "group");
    const quiet = isGrouped ? await readQuiet(this.#db, [...work.keys()]) : [];
    const choices = [...work].flatMap(([tenant, waiting]) => {
      const own = <T extends { readonly tenant: string }>(all: readonly T[]): T[] =>
        all.filter((one) => one.tenant === tenant);
      return chooseNotices(own(busy), waiting, own<Turn>(quiet));
    });
    const affordable = this.#affordable(choices);
    await this.#claim(affordable, work);
    return affordable.length < choices.length && this.#inFlight.room === 0
      ? affordable.at(-1)?.candidate.tenant
      : undefined;
  }

  /** As many as there are places for, of each tenant, and of each host it names, their own. */
  #affordable(choices: readonly Choice[]): Choice[] {
    const { limits } = this.#options;
    const tenants = new Map(this.#inFlight.tenants);
    const lanes = new Map(this.#inFlight.lanes);
    const places = choices.filter(({ candidate }) => {
      const { lane, tenant } = placeOf(candidate);
      const [ofLane, ofTenant] = [lanes.get(lane) ?? 0, tenants.get(tenant) ?? 0];
      if (ofLane >= limits.lane || ofTenant >= limits.tenant) return false;
      lanes.set(lane, ofLane + 1);
      tenants.set(tenant, ofTenant + 1);
      return true;
    });
    return places.slice(0, this.#inFlight.room);
  }

  async #claim(choices: readonly Choice[], work: ReadonlyMap<string, WaitingWork>): Promise<void> {
    if (choices.length === 0) return;
    const { callSeconds, clock } = this.#options;
    const claimedMs = clock.now();
    const claimed = await claimNotices(this.#db, {
      chosen: choices.map(({ candidate: { id, generation } }) => ({ id, generation })),
      turns: choices.flatMap(({ candidate: { id, mode }, queues }) =>
        mode === "group" ? queues.map((queue) => ({ id, queue })) : [],
      ),
      leaseSeconds: callSeconds + LEASE_MARGIN_SECONDS,
    });
    for (const row of claimed) {
      const choice = choices.find(({ candidate }) => candidate.id === row.id);
      const queues = row.mode === "group" ? row.turns : (choice?.queues ?? []);
      const waiting = work.get(row.tenant);
      const told = queues.map((queue) => ({ queue, waiting: waiting?.get(queue) ?? 1 }));
      this.#start(row, told, claimedMs);
    }
  }

  #start(
    row: ClaimedNotice,
    queues: readonly { readonly queue: string; readonly waiting: number }[],
    claimedMs: number,
  ): void {
    const { metrics, logger } = this.#options;
    const { id, generation, claim_id: claimId } = row;
    const place = placeOf(row);
    this.#inFlight.add(place);
    metrics.noticing.set(this.#inFlight.total);
    const work =
      queues.length === 0 // Another sender had the turn of the group.
        ? releaseNotice(this.#db, { id, generation, claimId }).then(() => {})
        : this.#send(row, queues, claimedMs);
    const call = work
      .catch((error: unknown) => {
        // Its lease ends, and it is told again while something waits.
        logger.warn({ subscription: id, error: messageOf(error) }, "notice was not recorded");
      })
      .finally(() => {
        this.#calls.delete(call);
        this.#inFlight.remove(place);
        metrics.noticing.set(this.#inFlight.total);
        this.bell.ring();
      });
    this.#calls.add(call);
  }

  async #send(
    row: ClaimedNotice,
    queues: readonly { readonly queue: string; readonly waiting: number }[],
    claimedMs: number,
  ): Promise<void> {
    const { clock, metrics, logger } = this.#options;
    const { id, tenant, generation, claim_id: claimId } = row;
    const token: NoticeToken = { id, generation, claimId };
    const heldMs = clock.now() - claimedMs;
    if (heldMs > (LEASE_MARGIN_SECONDS / 2) * 1_000) return; // Another may have it before we end.
    const { signal } = this.#ending;
    const startedMs = clock.now();
    const record = await this.#courier.carry(row, queues, signal).catch((error: unknown) => {
      if (!signal.aborted) throw error;
      return undefined;
    });
    if (record === undefined) {
      this.#givenBack += 1;
      await releaseNotice(this.#db, token);
      return;
    }
    metrics.noticeDuration.observe((clock.now() - startedMs) / 1_000);
    if (!(await recordNotice(this.#db, token, record))) return; // Removed, or our lease has ended.
    metrics.notices.add(1, { outcome: record.isTold ? "told" : "failed" });
    if (!record.isFailing || row.failing_since !== null) return;
    metrics.subscriptionsFailing.add();
    logger.warn({ tenant, subscription: id, error: record.error }, "subscription is failing");
  }

  async #drain(): Promise<void> {
    const { clock, drainMs } = this.#options;
    const stop = (): void => this.#ending.abort(new Error("the sender of notices stops"));
    const leftMs = Math.max(0, this.#claimedUntilMs + drainMs - clock.now());
    const cancel = clock.after(leftMs, stop);
    await Promise.all(this.#calls);
    cancel();
  }
}

/** Those of one host may wait for each other, others not. */
const placeOf = ({ tenant, url }: { readonly tenant: string; readonly url: string }) => ({
  lane: `${tenant}\u001f${new URL(url).host}`,
  tenant,
});
