import { exponentialMs } from "../base/backoff.ts";
import { Bell } from "../base/bell.ts";
import type { Clock } from "../base/clock.ts";
import { messageOf } from "../base/errors.ts";
import type { Logger } from "../base/log.ts";
import { runLoop, type TurnResult } from "../base/loop.ts";
import type { Service } from "../base/supervisor.ts";
import type { Connection, Database } from "../db/database.ts";
import { readCeiling } from "../db/sql/epoch.ts";
import type { PersistedEvent } from "../events/event.ts";
import { readEventsAfter } from "../events/sql/read.ts";
import { Announcement } from "./announcement.ts";
import { closedBy, type Epoch, safeFrontier, windowTarget } from "./frontier.ts";
import type { ConsumerMetrics } from "./metrics.ts";
import { observe, openEpoch, readFrontierHolders } from "./sql/frontier.ts";
import { type Chunk, type Window, WindowCache, windowOf } from "./window-cache.ts";

export interface ReaderOptions {
  readonly sequence: string;
  /** How long a gap may stay open before an alarm names who holds it. */
  readonly staleGapThresholdMs: number;
  readonly cacheBytesMax: number;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly metrics: ConsumerMetrics;
}

/** Why positions without an event may be passed. */
export interface GapProof {
  readonly how: "epoch" | "lockers";
  readonly ceiling: bigint;
  readonly fence: bigint;
  readonly openMs: number;
}

interface OpenEpoch extends Epoch {
  readonly openedAt: number;
}

/** A read: large enough that the round trip does not count, small enough to overlap and to hold. */
const CHUNK_ROWS_MAX = 1_000;
const CHUNK_ROWS_MIN = 10;
const CHUNK_BYTES = 4 * 1024 * 1024;
/** Reads that may be ahead of a consumer that is catching up. */
const CHUNKS_AHEAD = 2;
/** While a gap is open: how often to look, and how often to draw a new fence behind it. */
const GAP_LOOK_MS = 5;
const LONG_GAP_LOOK_MS = 20;
const EPOCH_EVERY_MS = 25;
const EPOCHS_MAX = 64;
/** An epoch open this long is held by a writer that may have nothing to do with the log. */
const LOCKERS_AFTER_MS = 200;
const ALARM_EVERY_MS = 30_000;
const IDLE_MS = 30_000;
const ANSWER_MS = 10_000;
/** How long a consumer may hold its locks for events that were announced and are not read yet. */
const ANNOUNCED_MS = 100;

/**
 * Reads the log once for all consumers of a process and knows how far it is settled.
 *
 * One connection. Each turn looks at the server first and reads rows after that, so rows read are
 * judged only by proofs that are older than they are. What is known dies with the connection,
 * because a crash of the server may take back positions that were seen: a new connection proves
 * everything anew.
 */
export class LogReader implements Service {
  readonly name = "reader";
  /** Rung when the log may have grown. */
  readonly bell = new Bell();
  readonly #db: Database;
  readonly #options: ReaderOptions;
  readonly #cache: WindowCache;
  readonly #waiting = new Set<Bell>();
  /** Where each consumer is, known by its bell: what lies below all of them is not kept. */
  readonly #positions = new Map<Bell, bigint>();
  readonly #reads = new Map<bigint, Promise<Chunk | undefined>>();
  #connection: Connection | undefined;
  #frontier: bigint | undefined;
  #epochs: OpenEpoch[] = [];
  #epochOpenedAt = -Infinity;
  #heldSince: number | undefined;
  #alarmedAt = -Infinity;
  #proof: GapProof | undefined;
  #isReadingAhead = false;
  #announced: Announcement | undefined;
  /** Small at first: nobody knows yet how large the events are. */
  #chunkRows = 100;

  constructor(db: Database, options: ReaderOptions) {
    this.#db = db;
    this.#options = options;
    this.#cache = new WindowCache(options.cacheBytesMax);
  }

  /** Undefined until the first proof on the present connection. */
  get frontier(): bigint | undefined {
    return this.#frontier;
  }

  /** The newest proof that positions without an event are dead. */
  get proof(): GapProof | undefined {
    return this.#proof;
  }

  /** Somebody told of new events: they are read, and who waits for them can prepare meanwhile. */
  announce(): void {
    this.bell.ring();
    // While a gap is open, or nothing is proven, a read may end with nothing for anybody.
    if (this.#frontier === undefined || this.#heldSince !== undefined) return;
    this.#announced ??= new Announcement(ANNOUNCED_MS, this.#options.clock);
    for (const bell of this.#waiting) bell.ring();
  }

  /** Resolves when announced events above `after` were read, where none is known yet. */
  announcedAbove(after: bigint): Promise<void> | undefined {
    return after === this.#frontier ? this.#announced?.over : undefined;
  }

  /**
   * The next settled piece of the log above `after`; undefined when there is none yet, and then
   * `bell` rings when there may be.
   */
  async window(after: bigint, countMax: number, bell: Bell): Promise<Window | undefined> {
    this.#positions.set(bell, after);
    if (this.#heldSince !== undefined && after > (this.#frontier ?? 0n)) {
      const passed = await this.#readBeyond(after, countMax);
      if (passed !== undefined) return passed;
    }
    if (this.#frontier === undefined || after >= this.#frontier) {
      this.#waiting.add(bell);
      this.bell.ring();
      return undefined;
    }
    const chunk = this.#cache.has(after) ? undefined : await this.#readChunk(after);
    // The cache may be too small to keep even what was just read.
    const window = this.#cache.take(after, countMax) ?? (chunk && windowOf(chunk, countMax));
    if (window !== undefined) void this.#readAhead(window.target);
    else this.#waiting.add(bell); // The connection was lost meanwhile.
    return window;
  }

  /** What was read is no longer what the log holds: prove and read everything anew. */
  distrust(): void {
    this.#options.logger.warn({}, "the log is not what was read; reading it again");
    this.#forget();
    this.bell.ring();
  }

  /** The consumer with this bell reads no more. */
  leave(bell: Bell): void {
    this.#positions.delete(bell);
    this.#waiting.delete(bell);
  }

  async run(signal: AbortSignal): Promise<void> {
    const { clock, logger } = this.#options;
    const onFailure = (error: unknown, failures: number): number => {
      logger.warn({ error: messageOf(error), failures }, "reading the log failed");
      this.#forget();
      return exponentialMs(failures, 100, 5_000);
    };
    const turn = async (): Promise<TurnResult> => {
      const announced = this.#announced; // One that comes later is for the next turn.
      const result = await this.#turn();
      this.#endAnnounced(announced);
      return result;
    };
    await runLoop(turn, { clock, bell: this.bell, onFailure }, signal);
    this.#forget();
  }

  #endAnnounced(announced: Announcement | undefined): void {
    announced?.end();
    if (this.#announced === announced) this.#announced = undefined;
  }

  async #turn(): Promise<TurnResult> {
    const connection = await this.#connected();
    const before = this.#frontier;
    if (this.#epochs.length > 0 || before === undefined) await this.#closeEpochs(connection);
    if (this.#isHeldByStranger()) await this.#openEpoch(connection);
    const frontier = this.#frontier ?? 0n;
    const isStillHeld = this.#heldSince !== undefined && frontier === before;
    if (isStillHeld && !(await this.#isFilled(connection, frontier))) {
      return await this.#waitForGap(connection);
    }
    const rows = this.#chunkRows;
    const events = await this.#read(connection, frontier, rows);
    if (this.#connection !== connection) return "again"; // Lost meanwhile: nothing is proven.
    const reached = safeFrontier(
      frontier,
      0n,
      events.map((event) => event.position),
    );
    const settled = events.filter((event) => event.position <= reached);
    this.#keep({ from: frontier, to: reached, events: settled });
    this.#advance(reached);
    const isHeld = settled.length < events.length;
    this.#noteHeld(isHeld);
    if (isHeld) return await this.#waitForGap(connection);
    if (events.length === rows) return this.#waiting.size > 0 ? "again" : { restMs: IDLE_MS };
    return { restMs: IDLE_MS };
  }

  /** Whether the missing position has become visible, without reading all that waits behind it. */
  async #isFilled(connection: Connection, frontier: bigint): Promise<boolean> {
    const [next] = await this.#read(connection, frontier, 1);
    return next?.position === frontier + 1n;
  }

  async #waitForGap(connection: Connection): Promise<TurnResult> {
    this.#noteHeld(true);
    await this.#openEpochIfDue(connection);
    await this.#alarmIfDue(connection);
    const heldMs = this.#options.clock.now() - (this.#heldSince ?? 0);
    const restMs = heldMs > LOCKERS_AFTER_MS ? LONG_GAP_LOOK_MS : GAP_LOOK_MS;
    return { restMs, isDeaf: true };
  }

  async #connected(): Promise<Connection> {
    if (this.#connection !== undefined) return this.#connection;
    const connection = await this.#db.connect("reader", { timeoutMs: ANSWER_MS });
    connection.client.once("end", () => {
      if (this.#connection !== connection) return;
      this.#forget();
      this.bell.ring();
    });
    this.#connection = connection;
    // Everything handed out before now, settled or not, is under one fence from the start.
    await this.#openEpoch(connection);
    return connection;
  }

  /**
   * Whether an epoch needs the proof by lock holders though no gap is in sight: a long writer that
   * holds the first epoch after a reconnect would otherwise mean a walk through the whole log.
   */
  #isHeldByStranger(): boolean {
    const [oldest] = this.#epochs;
    if (oldest === undefined || this.#epochs.some((epoch) => epoch.lockers !== undefined)) {
      return false;
    }
    return this.#options.clock.now() - oldest.openedAt > LOCKERS_AFTER_MS;
  }

  async #closeEpochs(connection: Connection): Promise<void> {
    const oldest = this.#epochs[0];
    if (oldest === undefined) return;
    const withLockers = this.#epochs.some((epoch) => epoch.lockers !== undefined);
    const seen = await observe(connection, withLockers);
    const closed = this.#epochs.findLast((epoch) => closedBy(epoch, seen) !== undefined);
    if (closed === undefined) return;
    const how = closedBy(closed, seen) ?? "epoch";
    // A closed epoch settles everything below its ceiling, so older ones have nothing to add.
    this.#epochs = this.#epochs.slice(this.#epochs.indexOf(closed) + 1);
    const { ceiling, fence } = closed;
    const openMs = this.#options.clock.now() - closed.openedAt;
    this.#proof = { how, ceiling, fence, openMs };
    this.#advance(safeFrontier(this.#frontier ?? 0n, ceiling, []));
  }

  async #openEpochIfDue(connection: Connection): Promise<void> {
    const { clock } = this.#options;
    if (this.#epochs.length >= EPOCHS_MAX) return;
    if (clock.now() - this.#epochOpenedAt < EPOCH_EVERY_MS) return;
    await this.#openEpoch(connection);
  }

  async #openEpoch(connection: Connection): Promise<void> {
    const { clock, sequence } = this.#options;
    const openedAt = clock.now();
    this.#epochOpenedAt = openedAt;
    const [oldest, newest] = [this.#epochs[0], this.#epochs.at(-1)];
    const withLockers = oldest !== undefined && openedAt - oldest.openedAt > LOCKERS_AFTER_MS;
    const ceiling = await readCeiling(connection, sequence);
    const isCovered = newest?.ceiling === ceiling && (!withLockers || newest.lockers !== undefined);
    if (isCovered) return; // Nothing was handed out since: another fence would prove no more.
    const epoch = await openEpoch(connection, ceiling, withLockers);
    if (this.#connection !== connection) return;
    this.#epochs.push({ ...epoch, openedAt });
  }

  #advance(reached: bigint): void {
    if (this.#frontier !== undefined && reached <= this.#frontier) return;
    if (this.#frontier === undefined && this.#proof === undefined && reached === 0n) return;
    this.#frontier = reached;
    this.#options.metrics.frontier.set(Number(reached));
    for (const bell of this.#waiting) bell.ring();
    this.#waiting.clear();
  }

  async #read(connection: Connection, after: bigint, count: number): Promise<PersistedEvent[]> {
    const events = await readEventsAfter(connection, after, count);
    this.#options.metrics.rowsRead.add(events.length);
    if (events.length > 1) this.#chunkRows = rowsThatFit(events);
    return events;
  }

  /**
   * For a checkpoint above the frontier: a person passed a gap that is still open. What continues
   * the checkpoint without a hole is settled all the same.
   */
  async #readBeyond(after: bigint, countMax: number): Promise<Window | undefined> {
    const connection = this.#connection;
    if (connection === undefined) return undefined;
    const events = await this.#read(connection, after, countMax);
    const positions = events.map((event) => event.position);
    const target = safeFrontier(after, 0n, positions);
    if (this.#connection !== connection || target === after) return undefined;
    return { after, target, events: events.filter((event) => event.position <= target) };
  }

  /** One read per piece, however many consumers ask for it. */
  async #readChunk(after: bigint): Promise<Chunk | undefined> {
    const running = this.#reads.get(after);
    if (running !== undefined) return await running;
    const read = this.#fetchChunk(after).finally(() => this.#reads.delete(after));
    this.#reads.set(after, read);
    return await read;
  }

  async #fetchChunk(after: bigint): Promise<Chunk | undefined> {
    const connection = this.#connection;
    const frontier = this.#frontier; // Known before the rows are read, so it may judge them.
    if (connection === undefined || frontier === undefined) return undefined;
    const rows = this.#chunkRows;
    const events = await this.#read(connection, after, rows);
    if (this.#connection !== connection) return undefined;
    const positions = events.map((event) => event.position);
    const to = windowTarget(positions, events.length === rows, frontier);
    const chunk = { from: after, to, events: events.filter((event) => event.position <= to) };
    this.#keep(chunk);
    return chunk;
  }

  #keep(chunk: Chunk): void {
    let lowest: bigint | undefined;
    for (const at of this.#positions.values()) if (lowest === undefined || at < lowest) lowest = at;
    if (lowest !== undefined) this.#cache.dropBelow(lowest);
    this.#cache.add(chunk);
  }

  /** Fetches the next pieces while the consumer is busy with this one. */
  async #readAhead(after: bigint): Promise<void> {
    if (this.#isReadingAhead) return;
    this.#isReadingAhead = true;
    try {
      let next: bigint | undefined = after;
      for (let ahead = 0; ahead < CHUNKS_AHEAD && next !== undefined; ahead += 1) {
        if (this.#frontier === undefined || next >= this.#frontier) break;
        if (!this.#cache.has(next)) await this.#readChunk(next);
        next = this.#cache.endOf(next);
      }
    } catch {
      // Shows when a consumer asks for the piece itself.
    } finally {
      this.#isReadingAhead = false;
    }
  }

  #noteHeld(isHeld: boolean): void {
    const { clock, metrics } = this.#options;
    this.#heldSince = isHeld ? (this.#heldSince ?? clock.now()) : undefined;
    const heldMs = this.#heldSince === undefined ? 0 : clock.now() - this.#heldSince;
    metrics.frontierHeldSeconds.set(heldMs / 1000);
  }

  async #alarmIfDue(connection: Connection): Promise<void> {
    const { clock, logger, staleGapThresholdMs } = this.#options;
    // The oldest may be held by others, and drawn before the append that holds the gap began.
    const newest = this.#epochs.at(-1);
    if (newest === undefined || this.#heldSince === undefined) return;
    const openMs = clock.now() - this.#heldSince;
    if (openMs < staleGapThresholdMs || clock.now() - this.#alarmedAt < ALARM_EVERY_MS) return;
    this.#alarmedAt = clock.now();
    const holders = await readFrontierHolders(connection, newest.fence);
    const position = String((this.#frontier ?? 0n) + 1n);
    logger.warn({ position, openMs, holders }, "consumer gap became stale");
  }

  #forget(): void {
    const connection = this.#connection;
    this.#connection = undefined;
    this.#frontier = undefined;
    this.#heldSince = undefined;
    this.#epochs = [];
    this.#proof = undefined;
    this.#cache.clear();
    this.#endAnnounced(this.#announced);
    void connection?.close();
  }
}

/** How many events of the size just seen a read may ask for. */
function rowsThatFit(events: readonly PersistedEvent[]): number {
  const bytes = events.reduce((sum, event) => sum + event.sizeBytes, 0);
  const fit = Math.floor(CHUNK_BYTES / (bytes / events.length));
  return Math.max(CHUNK_ROWS_MIN, Math.min(CHUNK_ROWS_MAX, fit));
}
