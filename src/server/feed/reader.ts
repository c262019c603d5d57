import { exponentialMs } from "../../base/backoff.ts";
import { Bell } from "../../base/bell.ts";
import type { Clock } from "../../base/clock.ts";
import { messageOf } from "../../base/errors.ts";
import { quoteIdentifier } from "../../base/identifier.ts";
import type { Logger } from "../../base/log.ts";
import { runLoop, type TurnResult } from "../../base/loop.ts";
import type { Service } from "../../base/supervisor.ts";
import { safeFrontier, windowTarget } from "../../consumers/frontier.ts";
import type { Connection, Database } from "../../db/database.ts";
import { isPooled } from "../../db/listener.ts";
import { isOneLeft } from "../../tasks/feed-writers.ts";
import { readFeedWriters, readNewestChange } from "../../tasks/sql/feed.ts";
import { FeedRow } from "./feed-row.ts";
import { type FeedHub, INTERRUPTED } from "./hub.ts";
import type { FeedMetrics } from "./metrics.ts";
import { type FeedPage, listen, readChanges } from "./sql/feed.ts";

export interface FeedReaderOptions {
  /** Where enqueues are announced: there may be something to read. */
  readonly channel: string;
  readonly metrics: FeedMetrics;
  readonly clock: Clock;
  readonly logger: Logger;
}

/** How long changes are written after the last word of a server. */
const LISTEN_SECONDS = 30;
const LISTEN_EVERY_MS = 5_000;
const ANSWER_MS = 10_000;
const IDLE_MS = 60_000;
/** Between looks: while something comes, and the longest while nothing does. */
const LOOK_MS = 100;
const QUIET_LOOK_MS_MAX = 250;
/** While a transaction is waited for. */
const HELD_LOOK_MS = 10;
const LONG_HELD_LOOK_MS = 50;
const LONG_HELD_MS = 1_000;
const ALARM_MS = 10_000;
/** Changes that a client wants of those that it is given at once. */
const WANTED_MAX = 1_000;

/** Everything up to the ceiling is settled when none of these writers is left. */
interface Proof {
  readonly ceiling: bigint;
  readonly writers: ReadonlySet<string>;
}

/**
 * Reads the feed once for all clients of a server, in the order of positions, as far as it is
 * settled. docs/adr/0013-feed.md has the states and the proofs.
 *
 * While nobody is there it does nothing and holds nothing. What it knows of an era outlives its
 * connection, because a crash of the database ends the era as well.
 */
export class FeedReader implements Service {
  readonly name = "feed";
  /** Rung when somebody came, or when there may be something to read. */
  readonly bell = new Bell();
  readonly #db: Database;
  readonly #hub: FeedHub;
  readonly #options: FeedReaderOptions;
  #connection: Connection | undefined;
  #era: string | undefined;
  /** Undefined until it is proven that no change behind it is missing. */
  #frontier: bigint | undefined;
  #proof: Proof | undefined;
  /** The frontier at which a hole was seen, or that there is none yet, and since when. */
  #held:
    | { readonly at: bigint | "opening"; readonly sinceMs: number; isAlarmed: boolean }
    | undefined;
  #listenedAtMs = -Infinity;
  #quietTurns = 0;
  /** Read, and not given to clients yet. */
  #unsent: readonly FeedRow[] = [];
  /** Whether there was more to read. */
  #isCut = false;

  constructor(db: Database, hub: FeedHub, options: FeedReaderOptions) {
    this.#db = db;
    this.#hub = hub;
    this.#options = options;
  }

  /** For how long it waits for which transactions. Undefined: for none. */
  get held(): { readonly ms: number; readonly writers: ReadonlySet<string> } | undefined {
    if (this.#held === undefined) return undefined;
    const ms = this.#options.clock.now() - this.#held.sinceMs;
    return { ms, writers: this.#proof?.writers ?? new Set() };
  }

  async run(signal: AbortSignal): Promise<void> {
    const { clock, logger } = this.#options;
    const onFailure = (error: unknown, failures: number): number => {
      logger.warn({ error: messageOf(error), failures }, "reading the feed failed");
      this.#disconnect();
      return exponentialMs(failures, 100, 5_000);
    };
    await runLoop(() => this.#turn(), { clock, bell: this.bell, onFailure }, signal);
    this.#hub.close();
    this.#disconnect();
  }

  async #turn(): Promise<TurnResult> {
    if (this.#hub.isEmpty) {
      this.#forget();
      return { restMs: IDLE_MS };
    }
    const connection = await this.#connected();
    const { clock } = this.#options;
    if (clock.now() - this.#listenedAtMs >= LISTEN_EVERY_MS) await this.#listen(connection);
    if (this.#unsent.length > 0) return this.#publish();
    const settledTo = await this.#prove(connection);
    if (this.#frontier === undefined) {
      this.#noteHeld("opening");
      return this.#rest();
    }
    const era = this.#era ?? "";
    const page = await readChanges(connection, era, this.#frontier);
    if (page === undefined || page.floor > this.#frontier) {
      // Another era has begun, or a transaction was open for longer than changes are kept.
      this.#hub.reset(INTERRUPTED);
      this.#frontier = undefined;
      this.#noteHeld(undefined);
      this.#proof = undefined;
      this.#listenedAtMs = -Infinity;
      return "again";
    }
    await this.#refuseStrangers(connection);
    return this.#advance(page, settledTo);
  }

  async #connected(): Promise<Connection> {
    if (this.#connection !== undefined) return this.#connection;
    const connection = await this.#db.connect("feed", { timeoutMs: ANSWER_MS });
    try {
      // Through a pooler nobody would be told, and somebody else would: then it only looks.
      if (!(await isPooled(connection))) {
        connection.client.on("notification", () => this.bell.ring());
        await connection.client.query(`LISTEN ${quoteIdentifier(this.#options.channel)}`);
      }
    } catch (error) {
      await connection.close();
      throw error;
    }
    connection.client.once("end", () => {
      if (this.#connection === connection) this.#disconnect();
      this.bell.ring();
    });
    this.#connection = connection;
    this.#listenedAtMs = -Infinity;
    return connection;
  }

  /** Has changes written, and finds out whether they were all along. */
  async #listen(connection: Connection): Promise<void> {
    const atMs = this.#options.clock.now();
    const [era, reached] = [this.#era, this.#frontier];
    const proven = era === undefined || reached === undefined ? undefined : { era, reached };
    const found = await listen(connection, LISTEN_SECONDS, proven);
    this.#listenedAtMs = atMs;
    if (found.era === era && reached !== undefined) return;
    if (found.era !== era) {
      if (this.#hub.isOpen) this.#hub.reset(INTERRUPTED);
      this.#unsent = [];
      this.#era = found.era;
      this.#frontier = undefined;
      this.#noteHeld(undefined);
      this.#proof = undefined;
    }
    const { settled, floor } = found;
    if (settled !== undefined && settled >= floor) this.#frontier = settled;
  }

  /**
   * How far everything is settled, as far as that needs a proof: at the beginning, when some may
   * still write nothing because nobody listened, and behind a hole that does not close by itself.
   * It is asked for before rows are read that are judged by it.
   */
  async #prove(connection: Connection): Promise<bigint> {
    const isNeeded = this.#frontier === undefined || this.#held?.at === this.#frontier;
    if (!isNeeded) return 0n;
    this.#proof ??= {
      // In this order: who draws a position later is not waited for, and it is above the ceiling.
      ceiling: await readNewestChange(connection),
      writers: await readFeedWriters(connection),
    };
    const { ceiling, writers } = this.#proof;
    if (writers.size > 0 && isOneLeft(writers, await readFeedWriters(connection))) return 0n;
    this.#proof = undefined;
    if (this.#frontier === undefined) {
      this.#frontier = ceiling;
      this.#listenedAtMs = -Infinity; // Others need not prove it again.
    }
    return ceiling;
  }

  #advance({ rows, isCut }: FeedPage, settledTo: bigint): TurnResult {
    const era = this.#era ?? "";
    const positions = rows.map((row) => BigInt(row.position));
    const frontier = safeFrontier(this.#frontier ?? 0n, settledTo, positions);
    const reached = windowTarget(positions, isCut, frontier);
    const settled = rows.filter((row) => BigInt(row.position) <= reached);
    this.#noteHeld(settled.length < rows.length ? reached : undefined);
    this.#frontier = reached;
    this.#isCut = isCut && this.#held === undefined;
    this.#quietTurns = settled.length > 0 ? 0 : this.#quietTurns + 1;
    if (this.#hub.isOpen) {
      this.#unsent = settled.map((row) => new FeedRow(era, row));
      return this.#publish();
    }
    if (!isCut) this.#hub.open(era, reached);
    return this.#isCut ? "again" : this.#rest();
  }

  /** So much at once that whoever reads has room for it. Who does so slowly waits for nobody. */
  #publish(): TurnResult {
    this.#hub.relieve();
    let count = 0;
    for (let wanted = 0; wanted < WANTED_MAX && count < this.#unsent.length; count += 1) {
      const row = this.#unsent[count];
      if (row !== undefined) wanted += this.#hub.publish(row);
    }
    this.#unsent = this.#unsent.slice(count);
    if (this.#unsent.length > 0) return "again";
    this.#hub.reach(this.#frontier ?? 0n);
    return this.#isCut ? "again" : this.#rest();
  }

  /** Places that were given by another server may be ahead of this one, but not of the database. */
  async #refuseStrangers(connection: Connection): Promise<void> {
    if (this.#hub.awaited === undefined) return;
    this.#hub.refuseBehind(await readNewestChange(connection));
  }

  #rest(): TurnResult {
    if (this.#held !== undefined) {
      const heldMs = this.#options.clock.now() - this.#held.sinceMs;
      return { restMs: heldMs > LONG_HELD_MS ? LONG_HELD_LOOK_MS : HELD_LOOK_MS, isDeaf: true };
    }
    if (this.#quietTurns === 0) return { restMs: LOOK_MS, isDeaf: true };
    return { restMs: Math.min(LOOK_MS * 2 ** this.#quietTurns, QUIET_LOOK_MS_MAX) };
  }

  #noteHeld(at: bigint | "opening" | undefined): void {
    const { clock, metrics, logger } = this.#options;
    if (this.#held?.at !== at) {
      this.#held = at === undefined ? undefined : { at, sinceMs: clock.now(), isAlarmed: false };
      if (at !== "opening") this.#proof = undefined; // It was about another hole.
    }
    const heldMs = this.#held === undefined ? 0 : clock.now() - this.#held.sinceMs;
    metrics.heldSeconds.set(heldMs / 1000);
    if (this.#held === undefined || this.#held.isAlarmed || heldMs < ALARM_MS) return;
    this.#held.isAlarmed = true;
    logger.warn({ heldMs }, "an open transaction that changed tasks holds the feed");
  }

  /** Nobody is there: changes are written for a little longer, and then no more. */
  #forget(): void {
    this.#disconnect();
    this.#hub.sleep();
    this.#unsent = [];
    this.#era = undefined;
    this.#frontier = undefined;
    this.#noteHeld(undefined);
    this.#proof = undefined;
  }

  #disconnect(): void {
    const connection = this.#connection;
    this.#connection = undefined;
    this.#proof = undefined;
    void connection?.close();
  }
}
