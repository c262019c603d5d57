import { batchMark } from "../../cluster/sql/dead-batches.ts";
import type { Connection, Queryable } from "../../db/database.ts";
import { isDivisionByZero } from "../../db/sqlstate.ts";
import { statement } from "../../db/statement.ts";
import type { PersistedEvent } from "../../events/event.ts";

export type Isolation = "READ COMMITTED" | "SERIALIZABLE";

export async function beginBatch(tx: Connection, isolation: Isolation): Promise<void> {
  await tx.client.query(`BEGIN ISOLATION LEVEL ${isolation}`);
}

/** False when the server rolled back instead. */
export async function commitBatch(tx: Connection): Promise<boolean> {
  const result = await tx.client.query("COMMIT");
  return result.command === "COMMIT";
}

export async function rollbackBatch(tx: Connection): Promise<void> {
  await tx.client.query("ROLLBACK");
}

// Lock order of the whole product: assignment, then checkpoint, then anything else. The server's
// own timeouts are set along with it: they end a batch that this process cannot end itself, such
// as one that is stopped between two statements and would keep its locks for ever. The mark tells
// the leader whose batch it is, through any pooler and to the end of the transaction: it ends those
// of dead workers sooner.
const LOCK_ASSIGNMENT = statement(
  "batch_lock_assignment",
  `SELECT worker_id,
          set_config('statement_timeout', $2, true),
          set_config('idle_in_transaction_session_timeout', $2, true),
          pg_advisory_xact_lock_shared(${batchMark("$3")})
     FROM {consumer_assignments}
    WHERE consumer_name = $1
      FOR UPDATE`,
);

/**
 * The owner, who cannot change until the transaction ends. When a worker asks, the transaction ends
 * with its death; a person's act is nobody's.
 */
export async function lockAssignment(
  tx: Queryable,
  partition: string,
  timeoutMs: number,
  workerId?: string,
): Promise<{ ownerId: string | undefined } | undefined> {
  const values = [partition, `${Math.max(1, Math.ceil(timeoutMs))}ms`, workerId ?? null];
  const [row] = await tx.query<{ worker_id: string | null }>(LOCK_ASSIGNMENT, values);
  return row === undefined ? undefined : { ownerId: row.worker_id ?? undefined };
}

// Must stay a statement of its own: its snapshot is taken after the assignment was locked, so it
// sees a pause, a rewind or a hold that the lock waited for. It also reads back the id of the last
// event of the window: if a crash had taken back what was read before, another event, or none,
// would stand there.
const LOCK_CHECKPOINT = statement(
  "batch_lock_checkpoint",
  `SELECT checkpoint.last_position,
          state.state,
          CASE WHEN hold.until > clock_timestamp() THEN hold.position END AS hold,
          (SELECT event_id FROM {events} WHERE global_position = $2::bigint) AS last_event_id
     FROM {consumer_checkpoints} AS checkpoint
     LEFT JOIN {schema}.consumer_states AS state
       ON state.consumer_name = checkpoint.consumer_name
     LEFT JOIN {schema}.consumer_holds AS hold
       ON hold.consumer_name = checkpoint.consumer_name
    WHERE checkpoint.consumer_name = $1
      FOR UPDATE OF checkpoint`,
);

export type StoppedState = "paused" | "quarantined";

export interface LockedCheckpoint {
  readonly position: bigint;
  readonly state: StoppedState | undefined;
  /** A position that must not be passed now: a rebuild is being compared or swapped. */
  readonly hold: bigint | undefined;
  readonly lastEventId: string | undefined;
}

export async function lockCheckpoint(
  tx: Queryable,
  partition: string,
  lastPosition: bigint | undefined,
): Promise<LockedCheckpoint | undefined> {
  const values = [partition, lastPosition === undefined ? null : String(lastPosition)];
  const [row] = await tx.query<{
    last_position: string;
    state: StoppedState | null;
    hold: string | null;
    last_event_id: string | null;
  }>(LOCK_CHECKPOINT, values);
  if (row === undefined) return undefined;
  return {
    position: BigInt(row.last_position),
    state: row.state ?? undefined,
    hold: row.hold === null ? undefined : BigInt(row.hold),
    lastEventId: row.last_event_id ?? undefined,
  };
}

// The COMMIT is on the wire behind this statement, so a checkpoint that is not the expected one has
// to fail here, in SQL: the division by zero spoils the transaction. It cannot happen while the row
// is locked and was read under that lock; if that is ever broken, nothing is committed.
const SAVE_CHECKPOINT = statement(
  "batch_save_checkpoint",
  `WITH saved AS (
     UPDATE {consumer_checkpoints}
        SET last_position = $2, updated_at = NOW()
      WHERE consumer_name = $1 AND last_position = $3
     RETURNING 1
   )
   SELECT 1 / count(*) FROM saved`,
);

/** Moves the checkpoint, or makes the transaction fail. */
export async function saveCheckpoint(
  tx: Queryable,
  partition: string,
  from: bigint,
  to: bigint,
): Promise<void> {
  await tx.query(SAVE_CHECKPOINT, [partition, String(to), String(from)]);
}

// Spoils the transaction in the same way: see LOCK_CHECKPOINT for what a crash may have done.
const CONFIRM_EVENT = statement(
  "batch_confirm_event",
  "SELECT 1 / count(*) FROM {events} WHERE global_position = $1 AND event_id = $2",
);

/** Whether the event is still what was read; if not, the transaction has failed. */
export async function confirmEvent(
  tx: Queryable,
  { position, id }: Pick<PersistedEvent, "position" | "id">,
): Promise<boolean> {
  try {
    await tx.query(CONFIRM_EVENT, [String(position), id]);
    return true;
  } catch (error) {
    if (isDivisionByZero(error)) return false;
    throw error;
  }
}

const RECORD_GAP = statement(
  "batch_record_gap",
  `WITH skip AS (
     INSERT INTO {consumer_gap_skips}
            (consumer_name, worker_id, gap_position, skip_to_position,
             highest_visible_position, first_seen_at)
     VALUES ($1, $2, $3, $4, $5, clock_timestamp() - make_interval(secs => $6::float8))
     RETURNING id
   )
   INSERT INTO {schema}.gap_evidence (skip_id, how, missing, ceiling, fence, reason)
   SELECT id, $7, $8, $9, $10::text::xid8, $11 FROM skip`,
);

export interface GapRecord {
  readonly partition: string;
  readonly workerId: string;
  readonly gapPosition: bigint;
  readonly skipTo: bigint;
  readonly highestVisible: bigint;
  readonly openSeconds: number;
  readonly how: "epoch" | "lockers" | "person" | "unsafe-time";
  readonly missing: bigint;
  readonly ceiling?: bigint;
  readonly fence?: bigint;
  readonly reason?: string;
}

export async function recordGap(tx: Queryable, gap: GapRecord): Promise<void> {
  await tx.query(RECORD_GAP, [
    gap.partition,
    gap.workerId,
    String(gap.gapPosition),
    String(gap.skipTo),
    String(gap.highestVisible),
    gap.openSeconds,
    gap.how,
    String(gap.missing),
    gap.ceiling === undefined ? null : String(gap.ceiling),
    gap.fence === undefined ? null : String(gap.fence),
    gap.reason ?? null,
  ]);
}

const FORGET_GAPS = statement(
  "gap_records_forget",
  `WITH old AS (
     DELETE FROM {consumer_gap_skips}
      WHERE created_at < NOW() - make_interval(secs => $1::float8)
     RETURNING id
   )
   DELETE FROM {schema}.gap_evidence USING old WHERE skip_id = old.id`,
);

export async function forgetGapRecords(db: Queryable, ageSeconds: number): Promise<void> {
  await db.query(FORGET_GAPS, [ageSeconds]);
}
