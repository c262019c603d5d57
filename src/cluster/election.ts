import type { Clock } from "../base/clock.ts";
import { messageOf } from "../base/errors.ts";
import type { Logger } from "../base/log.ts";
import type { Connection, Database } from "../db/database.ts";
import { assertDirect } from "../db/listener.ts";
import {
  beginTerm,
  endTerm,
  holdTerm,
  oustStaleLeader,
  readLeaseLeft,
  releaseLeaderLock,
  releaseLease,
  takeLease,
  tryLeaderLock,
} from "./sql/leader.ts";

export type LeaderStrategy = "advisory" | "lease";

/**
 * Decides who leads. `hold` is called again and again: it takes or keeps the lead and returns the
 * term, or `undefined` when somebody else leads or nothing can be known. A term is valid only
 * until `trustedUntil` on this process's clock; leader writes are guarded by the term row anyway.
 */
export interface Election {
  /** Refuses, before anything is registered, an address that this strategy cannot work with. */
  open(): Promise<void>;
  hold(): Promise<bigint | undefined>;
  release(): Promise<void>;
  readonly trustedUntil: number;
  /** When somebody else leads: in how long the lead is free, unless the leader goes on. */
  readonly freeInMs: number;
}

/** A leader that gets no answer for so long cannot know whether it still leads. */
const ANSWER_MS = 5_000;
/** Looked a little later than something runs out, so that it has. */
const MARGIN_MS = 10;
/** The session that was ended is gone in a moment, and its lock with it. */
const OUSTED_MS = 20;

export interface AdvisoryOptions {
  readonly key: bigint;
  /** Past the pooler, when there is one. */
  readonly url: string;
  /** Silence after which a leader has lost the lead. Undefined: others lead by their own rules. */
  readonly staleSeconds: number | undefined;
  readonly logger: Logger;
}

/** A session lock on a direct connection: freed by the server the moment the session ends. */
export class AdvisoryElection implements Election {
  trustedUntil = 0;
  readonly #db: Database;
  freeInMs = Infinity;
  readonly #workerId: string;
  readonly #key: bigint;
  readonly #url: string;
  readonly #options: AdvisoryOptions;
  #connection: Connection | undefined;
  #term: bigint | undefined;

  constructor(db: Database, workerId: string, options: AdvisoryOptions) {
    this.#db = db;
    this.#workerId = workerId;
    this.#key = options.key;
    this.#url = options.url;
    this.#options = options;
  }

  async open(): Promise<void> {
    this.#connection ??= await this.#connect();
  }

  async hold(): Promise<bigint | undefined> {
    try {
      this.#connection ??= await this.#connect();
      if (this.#term !== undefined) {
        // The lock is ours as long as the session lives; the term must still be, too.
        if (await holdTerm(this.#connection, this.#term, this.#workerId)) return this.#term;
        this.#term = await beginTerm(this.#connection, this.#workerId);
        return this.#term;
      }
      const { staleSeconds } = this.#options;
      const tried = await tryLeaderLock(this.#connection, this.#key, staleSeconds);
      if (!tried.held) {
        const { expiresInSeconds = Infinity } = tried;
        this.freeInMs = expiresInSeconds * 1000 + MARGIN_MS;
        if (tried.isSilent && staleSeconds !== undefined) {
          const isOusted = await this.#oust(this.#connection, staleSeconds);
          this.freeInMs = isOusted ? OUSTED_MS : Infinity;
        }
        return undefined;
      }
      this.#term = await beginTerm(this.#connection, this.#workerId);
      // The lock lives as long as the session, which no local clock can shorten further.
      this.trustedUntil = Infinity;
      return this.#term;
    } catch (error) {
      this.#drop(); // On any doubt: the server frees the lock with the session.
      throw error;
    }
  }

  async release(): Promise<void> {
    const [connection, term] = [this.#connection, this.#term];
    this.#term = undefined;
    try {
      if (connection !== undefined && term !== undefined) {
        await endTerm(connection, term, this.#workerId);
        await releaseLeaderLock(connection, this.#key);
      }
    } finally {
      this.#drop();
    }
  }

  /** A paused process keeps its session and the lock; its silence tells. */
  async #oust(connection: Connection, staleSeconds: number): Promise<boolean> {
    const { logger } = this.#options;
    try {
      if (!(await oustStaleLeader(connection, this.#key, staleSeconds))) return false;
      logger.warn({}, "ended the session of a leader that stopped beating");
      return true;
    } catch (error) {
      if (!connection.isDestroyed)
        logger.warn({ error: messageOf(error) }, "could not oust a leader");
      return false;
    }
  }

  async #connect(): Promise<Connection> {
    const connection = await this.#db.connect("leader", {
      url: this.#url,
      timeoutMs: ANSWER_MS,
    });
    try {
      await assertDirect(connection, 'leaderStrategy "advisory"');
    } catch (error) {
      await connection.close();
      throw error;
    }
    return connection;
  }

  #drop(): void {
    const connection = this.#connection;
    this.#connection = undefined;
    this.#term = undefined;
    this.trustedUntil = 0;
    void connection?.close();
  }
}

/** A row with an expiry: works through any pooler. */
export class LeaseElection implements Election {
  trustedUntil = 0;
  readonly #db: Database;
  freeInMs = Infinity;
  readonly #workerId: string;
  readonly #ttlMs: number;
  readonly #clock: Clock;
  #term: bigint | undefined;

  constructor(db: Database, workerId: string, ttlMs: number, clock: Clock) {
    this.#db = db;
    this.#workerId = workerId;
    this.#ttlMs = ttlMs;
    this.#clock = clock;
  }

  async open(): Promise<void> {
    // A row works through anything.
  }

  async hold(): Promise<bigint | undefined> {
    const startedAt = this.#clock.now();
    if (startedAt >= this.trustedUntil) this.#term = undefined;
    const held = this.#term;
    this.#term = await this.#db.transaction(async (tx) => {
      if (!(await takeLease(tx, this.#workerId, this.#ttlMs / 1000))) {
        this.freeInMs = (await readLeaseLeft(tx)) * 1000 + MARGIN_MS;
        return undefined;
      }
      const isHeld = held !== undefined && (await holdTerm(tx, held, this.#workerId));
      return isHeld ? held : await beginTerm(tx, this.#workerId);
    });
    // A tenth is left for the clocks' drift: we stop trusting it before others may take it.
    this.trustedUntil = this.#term === undefined ? 0 : startedAt + this.#ttlMs * 0.9;
    return this.#term;
  }

  async release(): Promise<void> {
    const term = this.#term;
    this.#term = undefined;
    this.trustedUntil = 0;
    if (term === undefined) return;
    await this.#db.transaction(async (tx) => {
      await endTerm(tx, term, this.#workerId);
      await releaseLease(tx, this.#workerId);
    });
  }
}
