import { once } from "node:events";
import { exponentialMs } from "../base/backoff.ts";
import { Bell } from "../base/bell.ts";
import { type Clock, pause, type WallClock } from "../base/clock.ts";
import { messageOf } from "../base/errors.ts";
import type { Logger } from "../base/log.ts";
import { runLoop, type TurnResult } from "../base/loop.ts";
import type { Service } from "../base/supervisor.ts";
import { uuidv4 } from "../base/uuid.ts";
import type { Queryable } from "../db/database.ts";
import { Courier } from "./courier.ts";
import type { EgressGuard } from "./egress/guard.ts";
import { InFlight } from "./in-flight.ts";
import type { DeliveryMetrics } from "./metrics.ts";
import type { ResolvedDeliverOptions } from "./options.ts";
import {
  type ClaimedRow,
  claimDeliveries,
  type DeliveryRecord,
  type DeliveryToken,
  recordDelivery,
  releaseDelivery,
  wasRecorded,
} from "./sql/deliveries.ts";

export interface SenderOptions extends ResolvedDeliverOptions {
  /** Closed with the sender. */
  readonly guard: EgressGuard;
  /** How often due deliveries are looked for. */
  readonly pollMs: number;
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
/** Lanes that one statement looks at. */
const LANES_MAX = 500;
const RECORD_TRIES = 4;
const RECORD_PAUSE_MS = 250;
const FAILED_MS_MAX = 5_000;

/**
 * Sends webhooks. Any number of senders may run at once, in any processes.
 *
 * States of a delivery: pending → running → delivered, dead, or pending again. The end of a task
 * makes it pending, in the same transaction. A claim makes it running: it draws a claim id, counts
 * the attempt and the generation, and holds it for a lease that is longer than a call can take.
 * Only the claim that is held may record what became of it, compared by number, generation and
 * claim id in one statement with the log. A running one whose lease has ended is claimed like a
 * pending one. A person makes ended ones pending again, never running ones.
 *
 * When the process dies:
 * - after the end of the task: the delivery is pending, and any sender finds it;
 * - after the claim, before the call: its lease ends, and it is sent for the first time;
 * - during the call, or after the answer and before it is recorded: its lease ends, and it is sent
 *   again with the same webhook-id. So a message arrives at least once, and receivers tell by the
 *   id what they had before;
 * - while it is recorded: one statement, so all of that or nothing, and then the line above.
 * A sender that was paused beyond its lease sends nothing of what it holds, or its word comes too
 * late and changes nothing.
 *
 * Nothing waits here: a delivery is claimed only when its call may start at once. So a receiver
 * that is slow fills the few places of its own lane, and all else stays in the database, for
 * others.
 */
export class DeliverySender implements Service {
  readonly name = "webhooks";
  /** Rung when something may be due. */
  readonly bell = new Bell();
  readonly #db: Queryable;
  readonly #options: SenderOptions;
  readonly #courier: Courier;
  readonly #inFlight: InFlight;
  readonly #calls = new Set<Promise<void>>();
  /** Ends calls that a stop does not wait for. */
  readonly #ending = new AbortController();
  /** Lanes up to here were looked at in this round. */
  #afterLane = "";
  #foundInRound = 0;
  #waitSeconds = Infinity;
  /** Ends claims, perhaps before everything else. */
  readonly #claiming = new AbortController();
  #claimedUntilMs = 0;
  #givenBack = 0;

  constructor(db: Queryable, options: SenderOptions) {
    this.#db = db;
    this.#options = options;
    this.#courier = new Courier(db, options);
    this.#inFlight = new InFlight(options.limits);
  }

  /** Deliveries that a stop gave back although their call had begun. */
  get givenBack(): number {
    return this.#givenBack;
  }

  /** Takes no more deliveries. The time to drain begins. */
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
      logger.warn({ error: messageOf(error), failures }, "looking for due webhooks failed");
      return exponentialMs(failures, 100, FAILED_MS_MAX);
    };
    try {
      const loop = { clock, bell: this.bell, onFailure };
      await runLoop(() => this.#turn(), loop, this.#claiming.signal);
      // Calls that are under way go on until everything else stops.
      if (!signal.aborted) await once(signal, "abort");
      await this.#drain();
    } finally {
      guard.close();
    }
  }

  async #turn(): Promise<TurnResult> {
    const { clock, limits, pollMs } = this.#options;
    const { room, lanes, tenants } = this.#inFlight;
    if (room === 0) return { restMs: pollMs }; // The end of a call rings.
    const claimId = uuidv4();
    const claimedMs = clock.now();
    const found = await claimDeliveries(this.#db, {
      claimId,
      leaseSeconds: this.#leaseSeconds,
      afterLane: this.#afterLane,
      lanesMax: LANES_MAX,
      room,
      limits,
      lanes,
      tenants,
    });
    for (const row of found.rows) this.#start(row, claimId, claimedMs);
    this.#afterLane = found.afterLane;
    this.#foundInRound += found.rows.length;
    this.#waitSeconds = Math.min(this.#waitSeconds, found.waitSeconds);
    return found.afterLane === "" ? this.#endRound() : "again";
  }

  /** Every lane was looked at. What is due and was not taken is in other hands, or has no place. */
  #endRound(): TurnResult {
    const { pollMs } = this.#options;
    const [found, waitMs] = [this.#foundInRound, this.#waitSeconds * 1_000];
    this.#foundInRound = 0;
    this.#waitSeconds = Infinity;
    if (found > 0) return "again";
    return { restMs: waitMs > 0 ? Math.min(pollMs, Math.ceil(waitMs)) : pollMs };
  }

  get #leaseSeconds(): number {
    return this.#options.callSeconds + LEASE_MARGIN_SECONDS;
  }

  #start(row: ClaimedRow, claimId: string, claimedMs: number): void {
    const { metrics, logger } = this.#options;
    const { number, generation } = row;
    const token = { number, generation, claimId };
    this.#inFlight.add(row);
    metrics.calling.set(this.#inFlight.total);
    const call = this.#deliver(row, token, claimedMs)
      .catch((error: unknown) => {
        // Its lease ends, and it is sent again.
        logger.warn({ delivery: row.id, error: messageOf(error) }, "webhook was not recorded");
      })
      .finally(() => {
        this.#calls.delete(call);
        this.#inFlight.remove(row);
        metrics.calling.set(this.#inFlight.total);
        this.bell.ring();
      });
    this.#calls.add(call);
  }

  async #deliver(row: ClaimedRow, token: DeliveryToken, claimedMs: number): Promise<void> {
    const { clock, metrics } = this.#options;
    const heldMs = clock.now() - claimedMs;
    if (heldMs > (LEASE_MARGIN_SECONDS / 2) * 1_000) return; // Another may have it before we end.
    const { signal } = this.#ending;
    let record: DeliveryRecord;
    try {
      record = await this.#courier.carry(row, signal);
    } catch (error) {
      if (!signal.aborted) throw error;
      this.#givenBack += 1;
      await releaseDelivery(this.#db, token);
      return;
    }
    if (record.durationMs !== undefined) metrics.duration.observe(record.durationMs / 1_000);
    await this.#record(row, token, record);
  }

  async #record(row: ClaimedRow, token: DeliveryToken, record: DeliveryRecord): Promise<void> {
    const { metrics, logger } = this.#options;
    const written = await this.#write(token, record);
    if (written === undefined) {
      metrics.late.add();
      logger.warn({ delivery: row.id, task: row.task_id }, "webhook outcome came too late");
      return;
    }
    metrics.outcomes.add(1, { outcome: record.state === "pending" ? "failed" : record.state });
    if (written.isDisabled) {
      metrics.disabled.add();
      const { tenant, endpoint } = row;
      logger.error({ tenant, endpoint }, "webhook endpoint answered 410 and is disabled");
    }
    if (record.state !== "dead") return;
    const cause = record.cause ?? "";
    metrics.dead.add(1, { cause });
    logger.error(
      {
        delivery: row.id,
        tenant: row.tenant,
        task: row.task_id,
        endpoint: row.endpoint,
        cause,
        error: record.message,
      },
      "webhook delivery is dead",
    );
  }

  /** Tried again for a moment: what is not recorded is sent a second time. */
  async #write(
    token: DeliveryToken,
    record: DeliveryRecord,
  ): Promise<{ readonly isDisabled: boolean } | undefined> {
    const { clock } = this.#options;
    for (let tries = 1; ; tries += 1) {
      try {
        const written = await recordDelivery(this.#db, token, record);
        if (written !== undefined || tries === 1) return written;
        // A try that was not answered may have written it. Or the lease has ended meanwhile.
        return (await wasRecorded(this.#db, token)) ? { isDisabled: false } : undefined;
      } catch (error) {
        if (tries >= RECORD_TRIES) throw error;
        await pause(RECORD_PAUSE_MS * tries, clock, this.#ending.signal);
      }
    }
  }

  async #drain(): Promise<void> {
    const { clock, drainMs } = this.#options;
    const stop = (): void => this.#ending.abort(new Error("the sender of webhooks stops"));
    const leftMs = Math.max(0, this.#claimedUntilMs + drainMs - clock.now());
    const cancel = clock.after(leftMs, stop);
    await Promise.all(this.#calls);
    cancel();
  }
}
