import { setTimeout as delay } from "node:timers/promises";
import pg from "pg";
import { mixedHash } from "../../src/base/identifier.ts";
import { consumer, Tidemill, type WorkerOptions } from "../../src/index.ts";
import { eventually } from "./eventually.ts";
import { Random } from "./random.ts";

/*
 * The random load of the gap proof: appenders with a connection each, who wait a little before
 * every step, sometimes long, and sometimes roll back; two consumers on two workers, one of them
 * split. What was handled is written in the batch's own transaction, so the tables tell at the end
 * whether each event was handled exactly once and in order.
 */

export interface StressOptions {
  /** A migrated database in which nobody else appends. */
  readonly url: string;
  readonly seed: number;
  readonly seconds: number;
  /** Defaults to 10. */
  readonly appenders?: number;
  /** Share of transactions that roll back. Defaults to 0.12. */
  readonly rollbacks?: number;
  /** Share of transactions that stay open for up to `slowMs`. Defaults to 0.05. */
  readonly slow?: number;
  /** Defaults to 900. */
  readonly slowMs?: number;
  /** Share that holds a transaction id for a while before it appends. Defaults to 0.25. */
  readonly xidFirst?: number;
  /** What happens to the server meanwhile. Defaults to nothing. */
  readonly faults?: (signal: AbortSignal) => Promise<void>;
  readonly worker?: Partial<WorkerOptions>;
}

export interface StressResult {
  readonly seed: number;
  /** Events whose commit was acknowledged. */
  readonly appended: number;
  /** Handled and committed, by both consumers together. */
  readonly handled: number;
  /** Events that are acknowledged but gone, or in the log but not handled by a consumer. */
  readonly lost: number;
  /** Handled more than once by a consumer, beyond the first time. */
  readonly repeated: number;
  /** Handled after an event with a higher position, in the same partition. */
  readonly reordered: number;
  /** Transactions of which only a part is in the log. */
  readonly torn: number;
  /** Transactions whose outcome nobody was told, because the connection broke. */
  readonly unknown: number;
  /** Positions that were drawn and have no event. */
  readonly holes: number;
  /**
   * From the moment when neither the event itself nor anything that held a lower position was
   * unfinished any more, to the start of its handler.
   */
  readonly gapDelayP50Ms: number;
  readonly gapDelayP99Ms: number;
  readonly gapDelayMaxMs: number;
  /** The same to the start of its batch: without the handlers of the events before it. */
  readonly batchDelayP99Ms: number;
  /**
   * The same, but from the end of the last transaction that was open at that moment or began
   * within the 50 ms in which a fence is drawn, whatever it held. An epoch cannot tell them apart.
   */
  readonly overrunP99Ms: number;
  readonly longestAppendMs: number;
  /** What an empty statement took from this process meanwhile: how busy the machine was. */
  readonly roundTripP99Ms: number;
}

interface Transaction {
  readonly tag: string;
  readonly positions: bigint[];
  /** Events that are in the log if it committed. */
  readonly kept: bigint[];
  readonly beganAt: number;
  endedAt: number;
  outcome: "committed" | "rolled back" | "unknown";
}

const PLAIN = "stress-plain";
const SPLIT = "stress-split";
const PARTITIONS = 4;
const STREAMS = 300;
const FENCE_MS = 50;

export async function runStress(options: StressOptions): Promise<StressResult> {
  const { url, seconds, seed, appenders = 10 } = options;
  const pool = new pg.Pool({ connectionString: url, max: 2 });
  pool.on("error", () => {});
  const mills: Tidemill[] = [];
  try {
    await pool.query(
      `CREATE TABLE stress_handled (id BIGINT GENERATED ALWAYS AS IDENTITY, consumer TEXT NOT NULL,
                                    position BIGINT NOT NULL, started_at FLOAT8 NOT NULL,
                                    batch XID8 DEFAULT pg_current_xact_id());
       CREATE TABLE stress_orders (tag TEXT)`,
    );
    mills.push(await Tidemill.connect(url), await Tidemill.connect(url));
    await startWorkers(mills, options.worker ?? {});
    const [mill] = mills;
    if (mill === undefined) throw new Error("no connection");
    const stop = AbortSignal.timeout(seconds * 1_000);
    const load = Array.from({ length: appenders }, (_, index) =>
      new Appender(mill, `${index}`, new Random(seed * 1_000 + index), options).run(stop),
    );
    const [transactions, roundTrips] = await Promise.all([
      Promise.all(load),
      measureRoundTrips(pool, stop),
      options.faults?.(stop),
    ]);
    const head = await eventually(() => mill.latestPosition());
    for (const name of [PLAIN, SPLIT]) {
      await eventually(() => mill.waitFor(name, { position: head }, { timeoutMs: 20_000 }));
    }
    const roundTripP99Ms = quantile(roundTrips, 0.99);
    return { seed, roundTripP99Ms, ...(await examine(pool, transactions.flat())) };
  } finally {
    await Promise.all(mills.map((mill) => mill.close()));
    await pool.end();
  }
}

/** Faults for a run: `act` so many times, at random moments spread over so many seconds. */
export function spread(
  times: number,
  seconds: number,
  seed: number,
  act: () => Promise<void>,
): (signal: AbortSignal) => Promise<void> {
  return async (signal) => {
    const random = new Random(seed);
    const everyMs = (seconds * 1_000) / (times + 1);
    for (let done = 0; done < times && !signal.aborted; done += 1) {
      await delay(everyMs * (0.7 + 0.3 * random.next()));
      await act();
    }
  };
}

async function measureRoundTrips(pool: pg.Pool, stop: AbortSignal): Promise<number[]> {
  const found: number[] = [];
  while (!stop.aborted) {
    const sentAt = performance.now();
    await pool.query("SELECT 1").catch(() => {});
    found.push(performance.now() - sentAt);
    await delay(20);
  }
  return found.sort((a, b) => a - b);
}

async function startWorkers(mills: readonly Tidemill[], given: Partial<WorkerOptions>) {
  const record: Parameters<typeof consumer>[1]["handle"] = async (event, { tx, consumer }) => {
    const startedAt = performance.now();
    const text = "INSERT INTO stress_handled (consumer, position, started_at) VALUES ($1, $2, $3)";
    await tx.query(text, [consumer, String(event.position), startedAt]);
  };
  const consumers = [
    consumer(PLAIN, { handle: record }),
    consumer(SPLIT, { handle: record, partitions: PARTITIONS }),
  ];
  const settings: WorkerOptions = {
    dispatcherInterval: 10,
    rebalanceInterval: 200,
    ...given,
    consumers,
  };
  const workers = await Promise.all(mills.map((mill) => mill.startWorker(settings)));
  await eventually(() => {
    const counts = workers.map((worker) => worker.assigned.length);
    const total = counts.reduce((sum, count) => sum + count, 0);
    if (total !== 1 + PARTITIONS || counts.includes(0))
      throw new Error(`assigned ${counts.join()}`);
  });
}

class Appender {
  readonly #mill: Tidemill;
  readonly #name: string;
  readonly #random: Random;
  readonly #options: StressOptions;
  readonly #done: Transaction[] = [];
  #client: pg.Client | undefined;

  constructor(mill: Tidemill, name: string, random: Random, options: StressOptions) {
    this.#mill = mill;
    this.#name = name;
    this.#random = random;
    this.#options = options;
  }

  async run(stop: AbortSignal): Promise<Transaction[]> {
    while (!stop.aborted) {
      const client = await this.#connected();
      if (client !== undefined) await this.#transact(client);
    }
    await this.#client?.end().catch(() => {});
    return this.#done;
  }

  async #connected(): Promise<pg.Client | undefined> {
    if (this.#client !== undefined) return this.#client;
    const client = new pg.Client({ connectionString: this.#options.url });
    client.on("error", () => {
      this.#client = undefined;
    });
    try {
      await client.connect();
    } catch {
      await delay(20);
      return undefined;
    }
    this.#client = client;
    return client;
  }

  async #transact(client: pg.Client): Promise<void> {
    const { rollbacks = 0.12, slow = 0.05, slowMs = 900 } = this.#options;
    const random = this.#random;
    const isRolledBack = random.chance(rollbacks);
    const holdMs = random.chance(slow) ? random.next() * slowMs : random.next() * 8;
    const transaction: Transaction = {
      tag: `${this.#name}-${this.#done.length}`,
      positions: [],
      kept: [],
      beganAt: performance.now(),
      endedAt: 0,
      outcome: "rolled back",
    };
    this.#done.push(transaction);
    try {
      await client.query("BEGIN");
      await this.#append(client, transaction);
      await delay(holdMs);
      if (isRolledBack) {
        await client.query("ROLLBACK");
      } else {
        transaction.outcome = "unknown"; // Until the answer is here, it may be either.
        await client.query("COMMIT");
        transaction.outcome = "committed";
      }
    } catch {
      this.#client = undefined;
      await client.end().catch(() => {});
    }
    transaction.endedAt = performance.now();
  }

  async #append(client: pg.Client, transaction: Transaction): Promise<void> {
    const { xidFirst = 0.25 } = this.#options;
    const random = this.#random;
    if (random.chance(xidFirst)) {
      await client.query("INSERT INTO stress_orders VALUES ($1)", [transaction.tag]);
      await delay(random.next() * 8);
    }
    // Ascending streams: two transactions that append to two of them cannot wait for each other.
    const streams = [random.below(STREAMS), ...(random.chance(0.2) ? [STREAMS] : [])];
    const isUndone = random.chance(0.1);
    for (const stream of streams) {
      await delay(random.next() * 4);
      const ref = { type: "Stress", id: `${stream}${stream === STREAMS ? this.#name : ""}` };
      if (isUndone) {
        await client.query("SAVEPOINT undone");
        const gone = await this.#mill.append(ref, [event(transaction.tag)], { tx: client });
        transaction.positions.push(...gone.positions);
        await client.query("ROLLBACK TO undone");
      }
      const events = Array.from({ length: 1 + random.below(3) }, () => event(transaction.tag));
      const appended = await this.#mill.append(ref, events, { tx: client });
      transaction.positions.push(...appended.positions);
      transaction.kept.push(...appended.positions);
    }
  }
}

const event = (tag: string) => ({ type: "Stressed", data: { tag } });

interface HandledRow {
  readonly consumer: string;
  readonly position: string;
  readonly started_at: number;
  /** When the first event of the same batch was. */
  readonly batch_at: number;
}

async function examine(
  pool: pg.Pool,
  transactions: readonly Transaction[],
): Promise<Omit<StressResult, "seed" | "roundTripP99Ms">> {
  const { rows: events } = await pool.query<{ position: string; stream: string; tag: string }>(
    `SELECT global_position AS position, stream_id AS stream,
            convert_from(payload, 'UTF8')::jsonb ->> 'tag' AS tag
       FROM tidemill.events ORDER BY global_position`,
  );
  const { rows: handled } = await pool.query<HandledRow>(
    `SELECT consumer, position, started_at,
            min(started_at) OVER (PARTITION BY batch) AS batch_at
       FROM stress_handled ORDER BY id`,
  );
  const streams = new Map(events.map((row) => [row.position, row.stream]));
  const committed = transactions.filter(({ outcome }) => outcome === "committed");
  const acknowledged = committed.flatMap(({ kept }) => kept.map(String));
  const byConsumer = new Map([PLAIN, SPLIT].map((name) => [name, new Map<string, number>()]));
  for (const { consumer: name, position } of handled) {
    const counts = byConsumer.get(name);
    counts?.set(position, (counts.get(position) ?? 0) + 1);
  }
  let lost = acknowledged.filter((position) => !streams.has(position)).length;
  let repeated = 0;
  for (const counts of byConsumer.values()) {
    lost += events.filter(({ position }) => !counts.has(position)).length;
    for (const count of counts.values()) repeated += count - 1;
  }
  const { delays, batches, overruns } = gapDelays(handled, transactions);
  const drawn = new Set(transactions.flatMap(({ positions }) => positions.map(String)));
  const wrote = transactions.filter(({ positions }) => positions.length > 0);
  return {
    appended: acknowledged.length,
    handled: handled.length,
    lost,
    repeated,
    reordered: countReordered(handled, streams),
    torn: countTorn(transactions, events),
    unknown: transactions.filter(({ outcome }) => outcome === "unknown").length,
    holes: [...drawn].filter((position) => !streams.has(position)).length,
    gapDelayP50Ms: quantile(delays, 0.5),
    gapDelayP99Ms: quantile(delays, 0.99),
    gapDelayMaxMs: delays.at(-1) ?? 0,
    batchDelayP99Ms: quantile(batches, 0.99),
    overrunP99Ms: quantile(overruns, 0.99),
    longestAppendMs: Math.max(0, ...wrote.map(({ beganAt, endedAt }) => endedAt - beganAt)),
  };
}

function quantile(sorted: readonly number[], share: number): number {
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0;
}

function countReordered(
  handled: readonly HandledRow[],
  streams: ReadonlyMap<string, string>,
): number {
  const newest = new Map<string, bigint>();
  let reordered = 0;
  for (const { consumer: name, position } of handled) {
    const stream = streams.get(position) ?? "";
    const lane = name === SPLIT ? `${name}/${mixedHash(stream) % PARTITIONS}` : name;
    if (BigInt(position) < (newest.get(lane) ?? 0n)) reordered += 1;
    else newest.set(lane, BigInt(position));
  }
  return reordered;
}

/** All events of a transaction are in the log, or none is; rolled back ones never are. */
function countTorn(
  transactions: readonly Transaction[],
  events: readonly { readonly tag: string }[],
): number {
  const stored = new Map<string, number>();
  for (const { tag } of events) stored.set(tag, (stored.get(tag) ?? 0) + 1);
  return transactions.filter(({ tag, kept, outcome }) => {
    const count = stored.get(tag) ?? 0;
    if (outcome === "rolled back") return count !== 0;
    return count !== kept.length && !(outcome === "unknown" && count === 0);
  }).length;
}

/** How late: after what an event had to wait for, and after what an epoch waits for. */
function gapDelays(
  handled: readonly HandledRow[],
  transactions: readonly Transaction[],
): { delays: number[]; batches: number[]; overruns: number[] } {
  const held = transactions
    .flatMap(({ positions, endedAt }) => positions.map((position) => ({ position, endedAt })))
    .sort((a, b) => (a.position < b.position ? -1 : 1));
  const readyAt = new Map<string, number>();
  let latest = 0;
  for (const { position, endedAt } of held) {
    latest = Math.max(latest, endedAt);
    readyAt.set(String(position), latest);
  }
  const delays: number[] = [];
  const batches: number[] = [];
  const overruns: number[] = [];
  for (const { position, started_at: startedAt, batch_at: batchAt } of handled) {
    const ready = readyAt.get(position);
    if (ready === undefined) continue;
    delays.push(Math.max(0, startedAt - ready));
    batches.push(Math.max(0, batchAt - ready));
    const closable = transactions.reduce(
      (end, one) => (one.beganAt <= ready + FENCE_MS ? Math.max(end, one.endedAt) : end),
      ready,
    );
    overruns.push(Math.max(0, batchAt - closable));
  }
  const ascending = (a: number, b: number): number => a - b;
  for (const all of [delays, batches, overruns]) all.sort(ascending);
  return { delays, batches, overruns };
}
