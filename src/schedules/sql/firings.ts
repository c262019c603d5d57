import type { Queryable } from "../../db/database.ts";
import { statement } from "../../db/statement.ts";
import type { ScheduleKey, ScheduleRow } from "./schedules.ts";

// One row of one index, about every second in one worker: all that waiting costs.
const PROBE = statement(
  "schedules_probe",
  `SELECT extract(epoch FROM GREATEST(next_at, retry_at) - NOW())::float8 AS wait
     FROM {schema}.schedules
    WHERE next_at IS NOT NULL AND paused_at IS NULL
    ORDER BY GREATEST(next_at, retry_at)
    LIMIT 1`,
);

/** Seconds until a schedule is due, not positive when one is; undefined when none will be. */
export async function probeSchedules(db: Queryable): Promise<number | undefined> {
  const [row] = await db.query<{ wait: number }>(PROBE);
  return row?.wait;
}

const DUE = statement(
  "schedules_due",
  `SELECT tenant, name, next_at
     FROM {schema}.schedules
    WHERE next_at IS NOT NULL
      AND paused_at IS NULL
      AND GREATEST(next_at, retry_at) <= NOW()
    ORDER BY GREATEST(next_at, retry_at)
    LIMIT $1`,
);

/** A schedule as it was seen: it may fire only if it still waits for this tick. */
export interface DueSchedule extends ScheduleKey {
  readonly nextAt: Date;
}

export async function readDueSchedules(db: Queryable, max: number): Promise<DueSchedule[]> {
  const rows = await db.query<ScheduleKey & { readonly next_at: Date }>(DUE, [max]);
  return rows.map(({ tenant, name, next_at }) => ({ tenant, name, nextAt: next_at }));
}

// A row that is locked is being fired or changed by somebody: not to be waited for.
const LOCK = statement(
  "schedule_lock_due",
  `SELECT tenant, cron, time_zone, queue, payload, options, catch_up, catch_up_max, NOW() AS now
     FROM {schema}.schedules
    WHERE tenant = $3
      AND name = $1
      AND next_at = $2::timestamptz
      AND paused_at IS NULL
      FOR UPDATE SKIP LOCKED`,
);

export interface LockedSchedule
  extends Pick<
    ScheduleRow,
    "tenant" | "cron" | "time_zone" | "queue" | "payload" | "options" | "catch_up" | "catch_up_max"
  > {
  /** The database's clock. */
  readonly now: Date;
}

/** Undefined when it no longer waits for this tick, was paused, or is in other hands. */
export async function lockDueSchedule(
  tx: Queryable,
  due: DueSchedule,
): Promise<LockedSchedule | undefined> {
  const { tenant, name, nextAt } = due;
  const [row] = await tx.query<LockedSchedule>(LOCK, [name, nextAt.toISOString(), tenant]);
  return row;
}

const FIRED = statement(
  "schedule_fired",
  `SELECT tick FROM {schema}.schedule_firings
    WHERE tenant = $3 AND name = $1 AND kind = 'tick' AND tick = ANY($2::timestamptz[])`,
);

/** Those of the ticks that fired before: somebody set the clock or next_at back. */
export async function readFiredTicks(
  tx: Queryable,
  { tenant, name }: ScheduleKey,
  ticks: readonly Date[],
): Promise<Date[]> {
  const texts = ticks.map((tick) => tick.toISOString());
  const rows = await tx.query<{ tick: Date }>(FIRED, [name, texts, tenant]);
  return rows.map((row) => row.tick);
}

// Compare and set: whoever finds another next_at records nothing, and must roll back.
const ADVANCE = statement(
  "schedule_advance",
  `WITH advanced AS (
     UPDATE {schema}.schedules
        SET next_at = $3::timestamptz,
            last_at = COALESCE(($5::timestamptz[])[cardinality($5::timestamptz[])], last_at),
            last_task_id = COALESCE(($6::bigint[])[cardinality($6::bigint[])], last_task_id),
            missed = missed + $4::bigint, failures = 0, retry_at = NULL, last_error = NULL
      WHERE tenant = $8
        AND name = $1
        AND next_at = $2::timestamptz
     RETURNING tenant, name
   ), recorded AS (
     INSERT INTO {schema}.schedule_firings (tenant, name, kind, tick, task_id)
     SELECT advanced.tenant, advanced.name, 'tick', given.tick, given.task_id
       FROM advanced, unnest($5::timestamptz[], $6::bigint[]) AS given(tick, task_id)
      ORDER BY given.tick
   ), trimmed AS (
     DELETE FROM {schema}.schedule_firings
      WHERE tenant = $8
        AND name = $1
        AND id <= (SELECT id FROM {schema}.schedule_firings
                    WHERE tenant = $8 AND name = $1 ORDER BY id DESC OFFSET $7 LIMIT 1)
   )
   SELECT name FROM advanced`,
);

export interface Advance {
  readonly ticks: readonly Date[];
  /** One per tick. */
  readonly taskIds: readonly string[];
  readonly missed: number;
  readonly nextAt: Date | undefined;
  /** Firings that stay, beside these. */
  readonly kept: number;
}

/** False when the schedule no longer waits for this tick. */
export async function advanceSchedule(
  tx: Queryable,
  due: DueSchedule,
  advance: Advance,
): Promise<boolean> {
  const rows = await tx.query(ADVANCE, [
    due.name,
    due.nextAt.toISOString(),
    advance.nextAt?.toISOString() ?? null,
    advance.missed,
    advance.ticks.map((tick) => tick.toISOString()),
    [...advance.taskIds],
    advance.kept,
    due.tenant,
  ]);
  return rows.length === 1;
}

const SET_BACK = statement(
  "schedule_set_back",
  `UPDATE {schema}.schedules
      SET failures = failures + 1, last_error = $3,
          retry_at = NOW() + make_interval(secs => LEAST($4::float8, 2 ^ LEAST(failures, 30)))
    WHERE tenant = $5
      AND name = $1
      AND next_at = $2::timestamptz`,
);

/** Lets a schedule that could not fire wait: a second, then twice as long each time. */
export async function setBackSchedule(
  db: Queryable,
  due: DueSchedule,
  error: string,
  secondsMax: number,
): Promise<void> {
  const { tenant, name, nextAt } = due;
  await db.query(SET_BACK, [name, nextAt.toISOString(), error, secondsMax, tenant]);
}

const RECORD_RUN = statement(
  "schedule_record_run",
  `WITH trimmed AS (
     DELETE FROM {schema}.schedule_firings
      WHERE tenant = $4
        AND name = $1
        AND id <= (SELECT id FROM {schema}.schedule_firings
                    WHERE tenant = $4 AND name = $1 ORDER BY id DESC OFFSET $3 LIMIT 1)
   )
   INSERT INTO {schema}.schedule_firings (tenant, name, kind, tick, task_id)
   VALUES ($4, $1, 'run-now', NOW(), $2::bigint)`,
);

export async function recordRun(
  tx: Queryable,
  { tenant, name }: ScheduleKey,
  taskId: string,
  kept: number,
): Promise<void> {
  await tx.query(RECORD_RUN, [name, taskId, kept, tenant]);
}

export interface FiringRow extends ScheduleKey {
  readonly kind: "tick" | "run-now";
  readonly tick: Date;
  readonly task_id: string;
  readonly fired_at: Date;
}

const READ = statement(
  "schedule_firings_read",
  `SELECT tenant, name, kind, tick, task_id, fired_at
     FROM {schema}.schedule_firings
    WHERE tenant = $3 AND name = $1
    ORDER BY id DESC
    LIMIT $2`,
);

/** Latest first. */
export async function readFirings(
  db: Queryable,
  { tenant, name }: ScheduleKey,
  max: number,
): Promise<FiringRow[]> {
  return await db.query<FiringRow>(READ, [name, max, tenant]);
}

const OF_TASK = statement(
  "schedule_firing_of_task",
  `SELECT tenant, name, kind, tick, task_id, fired_at
     FROM {schema}.schedule_firings
    WHERE task_id = $1::text::bigint
      AND ($2::text IS NULL OR tenant = $2)`,
);

export async function readFiringOf(
  db: Queryable,
  taskId: string,
  tenant?: string,
): Promise<FiringRow | undefined> {
  const [row] = await db.query<FiringRow>(OF_TASK, [taskId, tenant ?? null]);
  return row;
}
