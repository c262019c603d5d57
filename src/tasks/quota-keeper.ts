import { exponentialMs } from "../base/backoff.ts";
import { Bell } from "../base/bell.ts";
import type { Clock } from "../base/clock.ts";
import { messageOf } from "../base/errors.ts";
import type { Logger } from "../base/log.ts";
import { runLoop, type TurnResult } from "../base/loop.ts";
import type { Service } from "../base/supervisor.ts";
import { uuidv7 } from "../base/uuid.ts";
import type { Database } from "../db/database.ts";
import { type Amount, grantFor, NOTHING, QuotaError } from "./quota.ts";
import { type Grant, type Held, QuotaBook } from "./quota-book.ts";
import {
  forgetGrants,
  lockQuota,
  readOtherGrants,
  readQuotas,
  readUsage,
  shrinkGrants,
  writeGrant,
} from "./sql/quotas.ts";

export interface QuotaKeeperOptions {
  readonly clock: Clock;
  readonly logger: Logger;
}

/** To be called once, with whether it was stored. */
export type Settle = (isStored: boolean) => void;

interface Entry {
  readonly tenant: string;
  readonly book: QuotaBook;
  renewing: Promise<void> | undefined;
  /** Not asked again before: a tenant that is full must not keep the database counting. */
  nextMs: number;
  isFull: boolean;
}

/** Of a tenant whose quota was just lifted. */
const UNLIMITED: Amount = { tasks: Infinity, bytes: Infinity };
/** Within this, a change of a quota is known to every server. */
const LOOK_MS = 1_000;
/** How long a grant is trusted, and how much longer others count it. */
const TRUST_MS = 10_000;
const EXPIRES_SECONDS = 40;
const RENEWAL_MS_MIN = 50;
/** A tenant with room left waits so long for more of it. */
const PATIENCE_MS = 1_000;
const FULL_MS_MIN = 500;
/** Counting takes at most one part in so many of the time. */
const REST_FACTOR = 10;
const MS_MAX = 30_000;

/**
 * Keeps tenants within their quotas at one server. What a tenant has is counted in its tables, and
 * what this server may add is granted to it, in a row that all others count as used: so together
 * they never store more than the quota. Tenants without a quota cost a look into a map.
 */
export class QuotaKeeper implements Service {
  readonly name = "quotas";
  readonly #db: Database;
  readonly #options: QuotaKeeperOptions;
  readonly #server = uuidv7();
  readonly #bell = new Bell();
  readonly #entries = new Map<string, Entry>();

  constructor(db: Database, options: QuotaKeeperOptions) {
    this.#db = db;
    this.#options = options;
  }

  /** Whether its tasks are to be marked, so that they are counted. */
  isMetered(tenant: string): boolean {
    return this.#entries.has(tenant);
  }

  /**
   * Undefined when the tenant has no quota. Throws a QuotaError when there is no room. What it
   * gives is to be called when it is known whether the tasks were stored.
   */
  admit(tenant: string, amount: Amount): Settle | Promise<Settle> | undefined {
    const entry = this.#entries.get(tenant);
    if (entry === undefined) return undefined;
    return entry.book.take(amount) ?? this.#renewAndTake(entry, amount);
  }

  /** Reads all quotas. To be called before anything is admitted. */
  async load(): Promise<void> {
    const { clock } = this.#options;
    const all = await readQuotas(this.#db);
    const found = new Set(all.map(({ tenant }) => tenant));
    for (const tenant of this.#entries.keys()) if (!found.has(tenant)) this.#entries.delete(tenant);
    for (const { tenant, ...quota } of all) {
      const known = this.#entries.get(tenant);
      if (known !== undefined) known.book.change(quota);
      else {
        const book = new QuotaBook(quota, clock);
        this.#entries.set(tenant, { tenant, book, renewing: undefined, nextMs: 0, isFull: false });
      }
    }
  }

  async run(signal: AbortSignal): Promise<void> {
    const { clock, logger } = this.#options;
    const onFailure = (error: unknown, failures: number): number => {
      logger.warn({ error: messageOf(error), failures }, "could not read the quotas of tenants");
      return exponentialMs(failures, LOOK_MS, MS_MAX);
    };
    const turn = async (): Promise<TurnResult> => {
      await this.load();
      await this.#giveBack();
      return { restMs: LOOK_MS };
    };
    await runLoop(turn, { clock, bell: this.#bell, onFailure }, signal);
    // They expire by themselves.
    await forgetGrants(this.#db, this.#server).catch(() => {});
  }

  /** Room that was used, or that nobody uses here, is left to other servers. */
  async #giveBack(): Promise<void> {
    const changed = [...this.#entries.values()].flatMap(({ tenant, book, renewing }) => {
      const held = renewing === undefined ? book.shrink(LOOK_MS) : undefined;
      return held === undefined ? [] : [{ tenant, ...held }];
    });
    if (changed.length > 0) await shrinkGrants(this.#db, this.#server, changed);
  }

  async #renewAndTake(entry: Entry, amount: Amount): Promise<Settle> {
    const waitMs = Math.max(0, entry.nextMs - this.#options.clock.now());
    const isRefused = waitMs > 0 && (entry.isFull || waitMs > PATIENCE_MS);
    if (isRefused && entry.renewing === undefined) throw full(entry, waitMs);
    entry.renewing ??= this.#renew(entry, amount, waitMs).finally(() => {
      entry.renewing = undefined;
    });
    await entry.renewing;
    const settle = entry.book.take(amount);
    if (settle !== undefined) return settle;
    throw full(entry, Math.max(1, entry.nextMs - this.#options.clock.now()));
  }

  async #renew(entry: Entry, wanted: Amount, waitMs: number): Promise<void> {
    const { clock } = this.#options;
    if (waitMs > 0) await new Promise<void>((resolve) => void clock.after(waitMs, resolve));
    const begunMs = clock.now();
    const inFlight = entry.book.beginRenewal();
    const { held, ...grant } = await this.#ask(entry, inFlight, wanted);
    const tookMs = clock.now() - begunMs;
    entry.book.granted({ ...grant, untilMs: begunMs + TRUST_MS }, held);
    entry.isFull = grant.tasks < wanted.tasks || grant.bytes < wanted.bytes;
    const restMs = Math.max(entry.isFull ? FULL_MS_MIN : RENEWAL_MS_MIN, REST_FACTOR * tookMs);
    entry.nextMs = clock.now() + Math.min(MS_MAX, restMs);
  }

  /**
   * Under the lock, first what others hold and only then what is there: what they stored and hold
   * no more is visible to the later statement.
   */
  async #ask(
    { tenant, book }: Entry,
    inFlight: Amount,
    wanted: Amount,
  ): Promise<Omit<Grant, "untilMs"> & { readonly held: Held }> {
    const server = this.#server;
    return await this.#db.transaction(async (tx) => {
      const quota = await lockQuota(tx, tenant);
      if (quota === undefined) return { ...UNLIMITED, servers: 1, held: book.heldWith(NOTHING) };
      const { servers, ...others } = await readOtherGrants(tx, tenant, server);
      const isCounted = quota.pendingTasks !== null || quota.pendingBytes !== null;
      const used = isCounted ? await readUsage(tx, tenant) : NOTHING;
      const grant = grantFor(quota, { used, others, inFlight, wanted });
      // Less may be under way by now, never more: nothing is taken meanwhile.
      const held = book.heldWith(grant);
      await writeGrant(tx, { tenant, server }, held, EXPIRES_SECONDS);
      return { ...grant, servers: servers + 1, held };
    });
  }
}

function full({ book }: Entry, waitMs: number): QuotaError {
  const { pendingTasks, pendingBytes } = book.quota;
  const limits = [
    pendingTasks === null ? undefined : `${pendingTasks} tasks`,
    pendingBytes === null ? undefined : `${pendingBytes} bytes`,
  ].filter((one) => one !== undefined);
  return new QuotaError(
    `this tenant may have ${limits.join(" and ")} that wait or run, and there is no room now; ` +
      "come back when some have ended",
    Math.ceil(waitMs),
  );
}
