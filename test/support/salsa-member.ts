/*
 * A MODEL of a member of an eventsalsa/worker cluster. It is not the Go program and shares no code
 * with it, nor with src/: it was written from the documented contract (tables, statements,
 * algorithm of the assignment, lock order, order of start and stop), so that our worker can be
 * tested beside something that keeps that contract by itself. What the contract does not say, the
 * model cannot show. Left out: NOTIFY, the timeout of a batch, logs.
 */
import { randomUUID } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import pg from "pg";
import { type SalsaBatchOptions, type SalsaConsumer, SalsaRun } from "./salsa-consumer.ts";

export const SALSA_LEADER_KEY = "7237492748123847";

export interface SalsaOptions extends SalsaBatchOptions {
  readonly leader: "advisory" | "lease";
  readonly batchPauseMs: number;
  readonly pollMs: number;
  readonly maxPollMs: number;
  readonly dispatcherMs: number;
  readonly heartbeatMs: number;
  readonly heartbeatTimeoutMs: number;
  readonly rebalanceMs: number;
  readonly maxConsecutiveFailures: number;
  /** Assignments are looked at every max(this, rebalanceMs): one second in the source. */
  readonly syncFloorMs: number;
  /** False: it does not try to lead until `stand` is called. A control of the tests. */
  readonly stands: boolean;
}

const DEFAULTS: Omit<SalsaOptions, "family"> = {
  leader: "advisory",
  batchSize: 100,
  batchPauseMs: 200,
  pollMs: 1_000,
  maxPollMs: 30_000,
  dispatcherMs: 200,
  heartbeatMs: 5_000,
  heartbeatTimeoutMs: 30_000,
  rebalanceMs: 5_000,
  staleGapMs: 30_000,
  harborLag: 8,
  maxConsecutiveFailures: 5,
  syncFloorMs: 1_000,
  stands: true,
};

interface RunningConsumer {
  readonly cancel: AbortController;
  readonly ended: Promise<void>;
}

const MISSES_MAX = 2;

/** Wakes everybody who waits for it, once; whoever comes later waits for the next. */
class Wakeup {
  happen: () => void = () => {};
  readonly happened = new Promise<void>((resolve) => {
    this.happen = resolve;
  });
}

export class SalsaMember {
  readonly kind = "salsa";
  readonly id: string = randomUUID();
  /** Looks at the assignments that it made as leader, whether or not they changed anything. */
  rebalances = 0;
  /** What it could not do and, as the source, only logs. */
  readonly problems: string[] = [];
  /** Why it ended by itself. */
  failure: unknown;
  readonly #consumers: ReadonlyMap<string, SalsaConsumer>;
  readonly #options: SalsaOptions;
  readonly #url: string;
  readonly #pool: pg.Pool;
  readonly #control = new AbortController();
  readonly #running = new Map<string, RunningConsumer>();
  #loops: Promise<void>[] = [];
  #wake = new Wakeup();
  #leaderSession: pg.Client | undefined;
  #isLeader = false;
  #stands: boolean;
  #leaseHeldAt = -Infinity;
  #stopped: Promise<void> | undefined;

  private constructor(url: string, consumers: readonly SalsaConsumer[], options: SalsaOptions) {
    this.#url = url;
    this.#consumers = new Map(consumers.map((one) => [one.name, one]));
    this.#options = options;
    this.#stands = options.stands;
    const config = { connectionString: url, application_name: "salsa", max: 12 };
    this.#pool = new pg.Pool(config);
    this.#pool.on("error", () => {});
  }

  /** Clean up, register, register the consumers, then run. */
  static async start(
    url: string,
    consumers: readonly SalsaConsumer[],
    options: Partial<SalsaOptions> & Pick<SalsaOptions, "family">,
  ): Promise<SalsaMember> {
    const member = new SalsaMember(url, consumers, { ...DEFAULTS, ...options });
    try {
      await member.#initialize();
    } catch (error) {
      await member.stop();
      throw error;
    }
    const { heartbeatMs, rebalanceMs, dispatcherMs, syncFloorMs } = member.#options;
    let latest = await member.#readLatest();
    let misses = 0;
    member.#loops = [
      member.#every(heartbeatMs, async () => {
        misses = (await member.#beat()) ? 0 : misses + 1;
        if (misses >= MISSES_MAX) member.#fail(new Error("worker registration lost"));
      }),
      member.#every(rebalanceMs, () => member.#lead()),
      member.#every(Math.max(syncFloorMs, rebalanceMs), () => member.#sync()),
      member.#every(dispatcherMs, async () => {
        const position = await member.#readLatest();
        if (position > latest) member.#broadcast();
        latest = position;
      }),
    ];
    return member;
  }

  get isLeader(): boolean {
    return this.#isLeader;
  }

  /** From now on it tries to lead. */
  stand(): void {
    this.#stands = true;
  }

  /** At its next turn it gives the lead back, if it has it, and does not try again. */
  standDown(): void {
    this.#stands = false;
  }

  /** Consumers are told to end, the registration goes, all loops end, then the lead is given up. */
  async stop(): Promise<void> {
    this.#stopped ??= this.#stop();
    await this.#stopped;
  }

  async #stop(): Promise<void> {
    this.#control.abort();
    for (const { cancel } of this.#running.values()) cancel.abort();
    await this.#attempt("deregister", async () => {
      await this.#pool.query("DELETE FROM worker_nodes WHERE worker_id = $1", [this.id]);
    });
    await Promise.all(this.#loops);
    await Promise.all([...this.#running.values()].map(({ ended }) => ended));
    await this.#attempt("release leadership", () => this.#releaseLeadership());
    await this.#pool.end();
  }

  #fail(error: unknown): void {
    this.failure ??= error;
    void this.stop();
  }

  async #initialize(): Promise<void> {
    const { heartbeatTimeoutMs } = this.#options;
    await this.#attempt("clean up", async () => {
      await this.#pool.query(
        "DELETE FROM worker_nodes WHERE heartbeat_at < NOW() - $1 * INTERVAL '1 millisecond'",
        [2 * heartbeatTimeoutMs],
      );
    });
    await this.#pool.query(
      `INSERT INTO worker_nodes (worker_id, heartbeat_at, created_at, updated_at)
       VALUES ($1, NOW(), NOW(), NOW())`,
      [this.id],
    );
    const names = [...this.#consumers.keys()];
    const places = names.map((_, index) => `($${index + 1}, NULL)`).join(", ");
    await this.#pool.query(
      `INSERT INTO consumer_assignments (consumer_name, worker_id) VALUES ${places}
       ON CONFLICT DO NOTHING`,
      names,
    );
    for (const name of names) {
      await this.#pool.query(
        `INSERT INTO consumer_checkpoints (consumer_name, last_position) VALUES ($1, 0)
         ON CONFLICT DO NOTHING`,
        [name],
      );
    }
  }

  /** At once and then again and again. Errors are kept and never end it. */
  async #every(restMs: number, turn: () => Promise<void>): Promise<void> {
    const { signal } = this.#control;
    while (!signal.aborted) {
      // The source deregisters under a turn that still runs, and whose writes may then be refused.
      await this.#attempt("turn", turn, signal);
      await delay(restMs, undefined, { signal }).catch(() => {});
    }
  }

  async #attempt(what: string, work: () => Promise<void>, until?: AbortSignal): Promise<void> {
    try {
      await work();
    } catch (error) {
      if (until?.aborted === true) return;
      this.problems.push(`${what}: ${String(error)}`);
    }
  }

  async #beat(): Promise<boolean> {
    const { rowCount } = await this.#pool.query(
      "UPDATE worker_nodes SET heartbeat_at = NOW(), updated_at = NOW() WHERE worker_id = $1",
      [this.id],
    );
    return rowCount === 1;
  }

  async #readLatest(): Promise<bigint> {
    const { rows } = await this.#pool.query<{ latest: string }>(
      "SELECT COALESCE(MAX(global_position), 0) AS latest FROM events",
    );
    return BigInt(rows[0]!.latest);
  }

  #broadcast(): void {
    this.#wake.happen();
    this.#wake = new Wakeup();
  }

  async #lead(): Promise<void> {
    if (!this.#stands) {
      if (this.#isLeader) await this.#releaseLeadership();
      return;
    }
    const { leader, heartbeatTimeoutMs } = this.#options;
    if (leader === "advisory") {
      if (!(await this.#holdLock())) return;
    } else {
      const isOld = performance.now() - this.#leaseHeldAt >= heartbeatTimeoutMs;
      if (this.#isLeader && isOld) {
        this.#isLeader = false;
        return;
      }
      if (!(await this.#holdLease())) return;
    }
    await this.#rebalance();
    this.rebalances += 1;
  }

  async #holdLock(): Promise<boolean> {
    try {
      this.#leaderSession ??= await this.#openSession();
      if (this.#isLeader) {
        await this.#leaderSession.query("SELECT 1");
        return true;
      }
      const { rows } = await this.#leaderSession.query<{ held: boolean }>(
        "SELECT pg_try_advisory_lock($1) AS held",
        [SALSA_LEADER_KEY],
      );
      this.#isLeader = rows[0]?.held === true;
      return this.#isLeader;
    } catch (error) {
      this.#isLeader = false;
      await this.#closeSession();
      throw error;
    }
  }

  async #openSession(): Promise<pg.Client> {
    const session = new pg.Client({
      connectionString: this.#url,
      application_name: "salsa leader",
    });
    session.on("error", () => {});
    await session.connect();
    return session;
  }

  async #closeSession(): Promise<void> {
    const session = this.#leaderSession;
    this.#leaderSession = undefined;
    await session?.end().catch(() => {});
  }

  async #holdLease(): Promise<boolean> {
    const { rowCount } = await this.#pool.query(
      `INSERT INTO worker_leader_election AS lease (lease_key, leader_id, expires_at, updated_at)
       VALUES ('leader', $1, NOW() + $2 * INTERVAL '1 microsecond', NOW())
       ON CONFLICT (lease_key) DO UPDATE
         SET leader_id = EXCLUDED.leader_id, expires_at = EXCLUDED.expires_at, updated_at = NOW()
       WHERE lease.leader_id = EXCLUDED.leader_id
          OR lease.leader_id IS NULL
          OR lease.expires_at < NOW()`,
      [this.id, this.#options.heartbeatTimeoutMs * 1_000],
    );
    this.#isLeader = rowCount === 1;
    if (this.#isLeader) this.#leaseHeldAt = performance.now();
    return this.#isLeader;
  }

  async #releaseLeadership(): Promise<void> {
    const led = this.#isLeader;
    this.#isLeader = false;
    if (this.#options.leader === "advisory") {
      await this.#closeSession(); // Its lock ends with it.
    } else if (led) {
      await this.#pool.query(
        `UPDATE worker_leader_election
            SET leader_id = NULL, expires_at = NOW() - INTERVAL '1 minute', updated_at = NOW()
          WHERE lease_key = 'leader' AND leader_id = $1`,
        [this.id],
      );
    }
  }

  /** Every row that was ever registered counts, also those that no live worker knows. */
  async #rebalance(): Promise<void> {
    const live = await this.#pool.query<{ worker_id: string }>(
      `SELECT worker_id FROM worker_nodes
        WHERE heartbeat_at >= NOW() - $1 * INTERVAL '1 millisecond'`,
      [this.#options.heartbeatTimeoutMs],
    );
    const found = await this.#pool.query<{ consumer_name: string; worker_id: string | null }>(
      "SELECT consumer_name, worker_id FROM consumer_assignments",
    );
    const owners = new Map(found.rows.map((row) => [row.consumer_name, row.worker_id]));
    const workers = live.rows.map((row) => row.worker_id.toLowerCase()).sort();
    const ideal = new Map<string, string | null>();
    const names = [...owners.keys()].map((name) => Buffer.from(name));
    names.sort((a, b) => a.compare(b));
    for (const [index, name] of names.entries()) {
      ideal.set(name.toString(), workers[index % workers.length] ?? null);
    }
    const isIdeal = [...ideal].every(([name, worker]) => owners.get(name) === worker);
    if (!isIdeal) await this.#write(ideal, workers.length > 0);
  }

  /** One UPDATE per consumer, all of them, in no order, as a Go map is walked. */
  async #write(ideal: ReadonlyMap<string, string | null>, hasWorkers: boolean): Promise<void> {
    const tx = await this.#pool.connect();
    try {
      await tx.query("BEGIN");
      if (hasWorkers) {
        const order = new Map([...ideal.keys()].map((name) => [name, Math.random()]));
        const names = [...ideal.keys()].sort((a, b) => order.get(a)! - order.get(b)!);
        for (const name of names) {
          await tx.query(
            `UPDATE consumer_assignments SET worker_id = $2, updated_at = NOW()
              WHERE consumer_name = $1`,
            [name, ideal.get(name)],
          );
        }
      } else {
        await tx.query(
          `UPDATE consumer_assignments SET worker_id = NULL, updated_at = NOW()
            WHERE worker_id IS NOT NULL`,
        );
      }
      this.#control.signal.throwIfAborted(); // A stop rolls back what is under way.
      await tx.query("COMMIT");
      tx.release();
    } catch (error) {
      tx.release(true); // Such as 23503, a worker that vanished: the next interval looks again.
      throw error;
    }
  }

  async #sync(): Promise<void> {
    const { rows } = await this.#pool.query<{ consumer_name: string }>(
      "SELECT consumer_name FROM consumer_assignments WHERE worker_id = $1",
      [this.id],
    );
    const desired = new Set(rows.map((row) => row.consumer_name));
    for (const [name, { cancel }] of this.#running) if (!desired.has(name)) cancel.abort();
    for (const name of desired) {
      const consumer = this.#consumers.get(name);
      if (consumer === undefined || this.#running.has(name)) continue;
      if (this.#control.signal.aborted) return;
      const cancel = new AbortController();
      const ended = this.#consume(consumer, cancel.signal).finally(() => {
        this.#running.delete(name);
      });
      this.#running.set(name, { cancel, ended });
    }
  }

  async #consume(consumer: SalsaConsumer, cancelled: AbortSignal): Promise<void> {
    const { pollMs, maxPollMs, batchPauseMs, maxConsecutiveFailures } = this.#options;
    const run = new SalsaRun(this.#pool, this.id, consumer, this.#options);
    let currentMs = pollMs;
    let restMs = 0;
    let failures = 0;
    while (!cancelled.aborted) {
      if (restMs > 0 && (await this.#rest(restMs, cancelled))) currentMs = pollMs;
      if (cancelled.aborted) return;
      try {
        const outcome = await run.processBatch(this.#control.signal);
        failures = 0;
        if (outcome === "lost") return;
        currentMs = outcome === "idle" ? Math.min(currentMs * 2, maxPollMs) : pollMs;
        restMs = outcome === "idle" || outcome === "partial" ? currentMs : batchPauseMs;
      } catch (error) {
        if (this.#control.signal.aborted) return;
        failures += 1;
        restMs = currentMs;
        this.problems.push(`${consumer.name}: ${String(error)}`);
        if (failures >= maxConsecutiveFailures) {
          this.#fail(error);
          return;
        }
      }
    }
  }

  /** True when the dispatcher ended it. */
  async #rest(ms: number, cancelled: AbortSignal): Promise<boolean> {
    const timer = new AbortController();
    const signal = AbortSignal.any([cancelled, timer.signal]);
    const rested = delay(ms, false, { signal }).catch(() => false);
    const isWoken = await Promise.race([rested, this.#wake.happened.then(() => true)]);
    timer.abort();
    return isWoken;
  }
}
