import type { Queryable } from "../../db/database.ts";
import { statement } from "../../db/statement.ts";
import type { StoppedState } from "./batch.ts";

const CHECKPOINT = statement(
  "checkpoint_read",
  `SELECT checkpoint.last_position,
          state.state,
          CASE WHEN hold.until > clock_timestamp() THEN hold.position END AS hold
     FROM {consumer_checkpoints} AS checkpoint
     LEFT JOIN {schema}.consumer_states AS state
       ON state.consumer_name = checkpoint.consumer_name
     LEFT JOIN {schema}.consumer_holds AS hold
       ON hold.consumer_name = checkpoint.consumer_name
    WHERE checkpoint.consumer_name = $1`,
);

export interface PartitionState {
  readonly checkpoint: bigint;
  readonly state: StoppedState | undefined;
  /** A position that must not be passed now. */
  readonly hold: bigint | undefined;
}

export async function readPartitionState(
  db: Queryable,
  partition: string,
): Promise<PartitionState | undefined> {
  const [row] = await db.query<{
    last_position: string;
    state: StoppedState | null;
    hold: string | null;
  }>(CHECKPOINT, [partition]);
  if (row === undefined) return undefined;
  return {
    checkpoint: BigInt(row.last_position),
    state: row.state ?? undefined,
    hold: row.hold === null ? undefined : BigInt(row.hold),
  };
}

const QUARANTINE = statement(
  "consumer_quarantine",
  `INSERT INTO {schema}.consumer_states
          (consumer_name, state, position, event_id, error, stack, failures)
   VALUES ($1, 'quarantined', $2, $3, $4, $5, $6)
       ON CONFLICT (consumer_name) DO NOTHING`,
);

export interface PoisonRecord {
  readonly position: bigint;
  readonly eventId: string;
  readonly error: string;
  readonly stack: string | undefined;
  readonly failures: number;
}

export async function insertQuarantine(
  tx: Queryable,
  partition: string,
  poison: PoisonRecord,
): Promise<void> {
  const { position, eventId, error, stack, failures } = poison;
  await tx.query(QUARANTINE, [
    partition,
    String(position),
    eventId,
    error,
    stack ?? null,
    failures,
  ]);
}

const PAUSE = statement(
  "consumer_pause",
  `INSERT INTO {schema}.consumer_states (consumer_name, state, reason)
   VALUES ($1, 'paused', $2)
       ON CONFLICT (consumer_name) DO NOTHING
   RETURNING consumer_name`,
);

/** False when it was stopped already, for whatever reason, which stays. */
export async function insertPause(
  tx: Queryable,
  partition: string,
  reason: string | undefined,
): Promise<boolean> {
  const rows = await tx.query(PAUSE, [partition, reason ?? null]);
  return rows.length === 1;
}

const RESUME = statement(
  "consumer_resume",
  "DELETE FROM {schema}.consumer_states WHERE consumer_name = $1 RETURNING state",
);

export async function deleteState(
  tx: Queryable,
  partition: string,
): Promise<StoppedState | undefined> {
  const [row] = await tx.query<{ state: StoppedState }>(RESUME, [partition]);
  return row?.state;
}

const LIFT_QUARANTINE = statement(
  "consumer_lift_quarantine",
  `DELETE FROM {schema}.consumer_states
    WHERE consumer_name = $1 AND state = 'quarantined'`,
);

/** A pause that a person ordered stays. */
export async function liftQuarantine(tx: Queryable, partition: string): Promise<void> {
  await tx.query(LIFT_QUARANTINE, [partition]);
}
