import type pg from "pg";
import type { SalsaFamily } from "./salsa-schema.ts";

/*
 * The consumer half of the model in salsa-member.ts: frontier probe, gap age, safe harbor and the
 * batch transaction with its lock order.
 */

export interface SalsaConsumer {
  readonly name: string;
  /** Only streams of these types; all when empty. */
  readonly types?: readonly string[];
}

export interface SalsaBatchOptions {
  readonly family: SalsaFamily;
  readonly batchSize: number;
  readonly staleGapMs: number;
  readonly harborLag: number;
}

export type SalsaOutcome = "lost" | "blocked" | "idle" | "full" | "partial";

interface Row {
  readonly position: bigint;
  readonly type: string;
}

/** What a batch handles, how far it moves the checkpoint, and the gap that it skips. */
interface Plan {
  readonly target: bigint;
  readonly rows: readonly Row[];
  readonly gap?: Gap;
}

interface Gap {
  readonly position: bigint;
  readonly firstSeenAt: number;
  highestVisible: bigint;
}

interface Ended {
  readonly outcome: "done" | "lost" | "blocked";
  /** False: nothing is to be kept. */
  readonly isDone: boolean;
}

const SERIALIZATION_ATTEMPTS = 3;

/** One run of a consumer on one member; what it knows of a gap dies with the run. */
export class SalsaRun {
  readonly #pool: pg.Pool;
  readonly #workerId: string;
  readonly #consumer: SalsaConsumer;
  readonly #options: SalsaBatchOptions;
  #gap: Gap | undefined;

  constructor(
    pool: pg.Pool,
    workerId: string,
    consumer: SalsaConsumer,
    options: SalsaBatchOptions,
  ) {
    this.#pool = pool;
    this.#workerId = workerId;
    this.#consumer = consumer;
    this.#options = options;
  }

  /** Probe, then one transaction. `control` aborts a batch in flight, which rolls it back. */
  async processBatch(control: AbortSignal): Promise<SalsaOutcome> {
    const { checkpoint, rows } = await this.#probe();
    if (rows.length === 0) {
      this.#gap = undefined;
      return "idle";
    }
    const prefix = contiguousFrom(checkpoint + 1n, rows);
    const target = prefix.at(-1)?.position;
    if (target !== undefined) {
      this.#gap = undefined;
      const outcome = await this.#commit(checkpoint, { target, rows: prefix }, control);
      if (outcome !== "done") return outcome;
      return rows.length === this.#options.batchSize ? "full" : "partial";
    }
    const age = this.#observe(checkpoint + 1n, rows.at(-1)!.position);
    return age < this.#options.staleGapMs ? "blocked" : await this.#skip(checkpoint, control);
  }

  async #probe(): Promise<{ checkpoint: bigint; rows: Row[] }> {
    return await inTransaction(this.#pool, "BEGIN READ ONLY", async (tx) => {
      const { rows } = await tx.query<{ last_position: string }>(
        "SELECT last_position FROM consumer_checkpoints WHERE consumer_name = $1",
        [this.#consumer.name],
      );
      const checkpoint = BigInt(rows[0]?.last_position ?? 0);
      return { checkpoint, rows: await this.#readEvents(tx, checkpoint), isDone: false };
    });
  }

  async #readEvents(tx: pg.PoolClient, after: bigint): Promise<Row[]> {
    const { family, batchSize } = this.#options;
    const { rows } = await tx.query<{ global_position: string; type: string }>(
      `SELECT global_position, ${family}_type AS type FROM events
        WHERE global_position > $1 ORDER BY global_position LIMIT $2`,
      [String(after), batchSize],
    );
    return rows.map((row) => ({ position: BigInt(row.global_position), type: row.type }));
  }

  #observe(missing: bigint, highestVisible: bigint): number {
    const now = performance.now();
    if (this.#gap?.position !== missing) {
      this.#gap = { position: missing, firstSeenAt: now, highestVisible };
      return 0;
    }
    this.#gap.highestVisible = highestVisible;
    return now - this.#gap.firstSeenAt;
  }

  /** Handlers run again on every attempt; what is left blocked tries again after the pause. */
  async #skip(checkpoint: bigint, control: AbortSignal): Promise<SalsaOutcome> {
    for (let attempt = 0; attempt < SERIALIZATION_ATTEMPTS; attempt += 1) {
      try {
        const outcome = await this.#commit(checkpoint, "skip", control);
        return outcome === "done" ? "partial" : outcome;
      } catch (error) {
        if ((error as { code?: string }).code !== "40001") throw error;
      }
    }
    return "blocked";
  }

  /** Lock order is a rule: assignment, then checkpoint, then anything else. */
  async #commit(
    checkpoint: bigint,
    plan: Plan | "skip",
    control: AbortSignal,
  ): Promise<Ended["outcome"]> {
    const begin = plan === "skip" ? "BEGIN ISOLATION LEVEL SERIALIZABLE" : "BEGIN";
    const { outcome } = await inTransaction<Ended>(this.#pool, begin, async (tx) => {
      const refused = await this.#lock(tx, checkpoint);
      if (refused !== undefined) return { outcome: refused, isDone: false };
      const chosen = plan === "skip" ? await this.#chooseSkip(tx, checkpoint) : plan;
      if (chosen === undefined) return { outcome: "blocked", isDone: false };
      await this.#handle(tx, chosen.rows, control);
      if (chosen.gap !== undefined) await this.#recordSkip(tx, chosen.gap, chosen.target);
      await tx.query(
        `INSERT INTO consumer_checkpoints (consumer_name, last_position, updated_at)
         VALUES ($1, $2, NOW())
         ON CONFLICT (consumer_name) DO UPDATE
           SET last_position = GREATEST(consumer_checkpoints.last_position,
                                        EXCLUDED.last_position),
               updated_at = NOW()`,
        [this.#consumer.name, String(chosen.target)],
      );
      control.throwIfAborted();
      return { outcome: "done", isDone: true };
    });
    return outcome;
  }

  async #lock(tx: pg.PoolClient, probed: bigint): Promise<"lost" | "blocked" | undefined> {
    const owner = await tx.query<{ worker_id: string | null }>(
      "SELECT worker_id FROM consumer_assignments WHERE consumer_name = $1 FOR UPDATE",
      [this.#consumer.name],
    );
    if (owner.rows[0]?.worker_id !== this.#workerId) return "lost";
    const found = await tx.query<{ last_position: string }>(
      "SELECT last_position FROM consumer_checkpoints WHERE consumer_name = $1 FOR UPDATE",
      [this.#consumer.name],
    );
    return BigInt(found.rows[0]?.last_position ?? 0) === probed ? undefined : "blocked";
  }

  /** Looks again inside the transaction: a gap that was filled meanwhile is not skipped. */
  async #chooseSkip(tx: pg.PoolClient, checkpoint: bigint): Promise<Plan | undefined> {
    const rows = await this.#readEvents(tx, checkpoint);
    const prefix = contiguousFrom(checkpoint + 1n, rows);
    const filled = prefix.at(-1)?.position;
    if (filled !== undefined) return { target: filled, rows: prefix };
    const gap = this.#gap;
    const positions = rows.map((row) => row.position);
    const target = skipTarget(checkpoint + 1n, positions, this.#options.harborLag);
    if (gap === undefined || target === undefined) return undefined;
    gap.highestVisible = positions.at(-1)!;
    return { target, rows: rows.filter((row) => row.position <= target), gap };
  }

  async #handle(tx: pg.PoolClient, rows: readonly Row[], control: AbortSignal): Promise<void> {
    const { name, types = [] } = this.#consumer;
    for (const { position, type } of rows) {
      if (types.length > 0 && !types.includes(type)) continue;
      control.throwIfAborted();
      await tx.query(
        "INSERT INTO handled (consumer, position, worker, member) VALUES ($1, $2, $3, 'salsa')",
        [name, String(position), this.#workerId],
      );
    }
  }

  async #recordSkip(tx: pg.PoolClient, gap: Gap, target: bigint): Promise<void> {
    await tx.query(
      `INSERT INTO consumer_gap_skips (consumer_name, worker_id, gap_position, skip_to_position,
                                       highest_visible_position, first_seen_at)
       VALUES ($1, $2, $3, $4, $5, NOW() - $6 * INTERVAL '1 millisecond')`,
      [
        this.#consumer.name,
        this.#workerId,
        String(gap.position),
        String(target),
        String(gap.highestVisible),
        performance.now() - gap.firstSeenAt,
      ],
    );
  }
}

async function inTransaction<T extends { readonly isDone: boolean }>(
  pool: pg.Pool,
  begin: string,
  work: (tx: pg.PoolClient) => Promise<T>,
): Promise<T> {
  const tx = await pool.connect();
  try {
    await tx.query(begin);
    const result = await work(tx);
    await tx.query(result.isDone ? "COMMIT" : "ROLLBACK");
    tx.release();
    return result;
  } catch (error) {
    tx.release(true); // The server rolls back with the session.
    throw error;
  }
}

function contiguousFrom(expected: bigint, rows: readonly Row[]): Row[] {
  const end = rows.findIndex((row, index) => row.position !== expected + BigInt(index));
  return end < 0 ? [...rows] : rows.slice(0, end);
}

/** The lesser of the row `lag` behind the last one and the end of the run from `expected`. */
function safeHarbor(
  expected: bigint,
  positions: readonly bigint[],
  lag: number,
): bigint | undefined {
  if (positions[0] !== expected) return undefined;
  const harbor =
    positions[positions.length - 1 - Math.min(Math.max(lag, 0), positions.length - 1)]!;
  let end = expected;
  while (positions.includes(end + 1n)) end += 1n;
  return harbor < end ? harbor : end;
}

/** Missing positions that follow each other are skipped together; a second gap never is. */
export function skipTarget(
  gap: bigint,
  positions: readonly bigint[],
  lag: number,
): bigint | undefined {
  const first = positions[0];
  const direct = safeHarbor(gap + 1n, positions, lag);
  if (direct !== undefined || first === undefined || first <= gap + 1n) return direct;
  return safeHarbor(first, positions, lag);
}
