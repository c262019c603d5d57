import type { Queryable } from "../../db/database.ts";
import { statement } from "../../db/statement.ts";
import type { CatchUpPolicy } from "../cron.ts";

const COLUMNS = `name, cron, time_zone, queue, payload, options, catch_up, catch_up_max, next_at,
       last_at, last_task_id, missed::float8 AS missed, retry_at, last_error, paused_at,
       created_at, updated_at`;

export interface ScheduleRow {
  readonly name: string;
  readonly cron: string;
  readonly time_zone: string;
  readonly queue: string;
  readonly payload: string;
  readonly options: object;
  readonly catch_up: CatchUpPolicy["catchUp"];
  readonly catch_up_max: number;
  readonly next_at: Date | null;
  readonly last_at: Date | null;
  readonly last_task_id: string | null;
  readonly missed: number;
  readonly retry_at: Date | null;
  readonly last_error: string | null;
  readonly paused_at: Date | null;
  readonly created_at: Date;
  readonly updated_at: Date;
}

/** What a definition says, written down. */
export type ScheduleDefinitionRow = Pick<
  ScheduleRow,
  "name" | "cron" | "time_zone" | "queue" | "payload" | "options" | "catch_up" | "catch_up_max"
>;

const READ = statement(
  "schedules_read",
  `SELECT ${COLUMNS}
     FROM {schema}.schedules
    WHERE $1::text IS NULL OR name = $1
    ORDER BY name`,
);

/** All of them, or the one of this name. */
export async function readSchedules(db: Queryable, name?: string): Promise<ScheduleRow[]> {
  return await db.query<ScheduleRow>(READ, [name ?? null]);
}

const NOW = statement("schedules_now", "SELECT NOW() AS now");

/** The database's clock, which alone decides what is due. */
export async function readNow(tx: Queryable): Promise<Date> {
  const [row] = await tx.query<{ now: Date }>(NOW);
  if (row === undefined) throw new Error("the database did not tell the time");
  return row.now;
}

const LOCK = statement(
  "schedule_lock",
  `SELECT ${COLUMNS} FROM {schema}.schedules WHERE name = $1 FOR UPDATE`,
);

/** Waits for a firing in flight; none begins before the transaction has ended. */
export async function lockSchedule(tx: Queryable, name: string): Promise<ScheduleRow | undefined> {
  const [row] = await tx.query<ScheduleRow>(LOCK, [name]);
  return row;
}

const INSERT = statement(
  "schedule_insert",
  `INSERT INTO {schema}.schedules
          (name, cron, time_zone, queue, payload, options, catch_up, catch_up_max, next_at)
   VALUES ($1, $2, $3, $4, $5, $6::text::jsonb, $7, $8, $9::timestamptz)
       ON CONFLICT (name) DO NOTHING
   RETURNING ${COLUMNS}`,
);
// Whatever kept the old definition from firing need not concern the new one.
const UPDATE = statement(
  "schedule_update",
  `UPDATE {schema}.schedules
      SET cron = $2, time_zone = $3, queue = $4, payload = $5, options = $6::text::jsonb,
          catch_up = $7, catch_up_max = $8, next_at = $9::timestamptz, updated_at = NOW(),
          failures = 0, retry_at = NULL, last_error = NULL
    WHERE name = $1
   RETURNING ${COLUMNS}`,
);

const toValues = (schedule: ScheduleDefinitionRow, nextAt: Date | undefined): unknown[] => [
  schedule.name,
  schedule.cron,
  schedule.time_zone,
  schedule.queue,
  schedule.payload,
  JSON.stringify(schedule.options),
  schedule.catch_up,
  schedule.catch_up_max,
  nextAt?.toISOString() ?? null,
];

/** Undefined when the name is taken. */
export async function insertSchedule(
  tx: Queryable,
  schedule: ScheduleDefinitionRow,
  nextAt: Date | undefined,
): Promise<ScheduleRow | undefined> {
  const [row] = await tx.query<ScheduleRow>(INSERT, toValues(schedule, nextAt));
  return row;
}

/** Of a row that is locked. */
export async function updateSchedule(
  tx: Queryable,
  schedule: ScheduleDefinitionRow,
  nextAt: Date | undefined,
): Promise<ScheduleRow | undefined> {
  const [row] = await tx.query<ScheduleRow>(UPDATE, toValues(schedule, nextAt));
  return row;
}

const DELETE = statement(
  "schedule_delete",
  "DELETE FROM {schema}.schedules WHERE name = $1 RETURNING name",
);

export async function deleteSchedule(tx: Queryable, name: string): Promise<boolean> {
  const rows = await tx.query(DELETE, [name]);
  return rows.length === 1;
}

const PAUSE = statement(
  "schedule_pause",
  `UPDATE {schema}.schedules SET paused_at = NOW() WHERE name = $1 AND paused_at IS NULL`,
);

export async function pauseSchedule(tx: Queryable, name: string): Promise<void> {
  await tx.query(PAUSE, [name]);
}

const RESUME = statement(
  "schedule_resume",
  `UPDATE {schema}.schedules
      SET paused_at = NULL, next_at = $2::timestamptz, failures = 0, retry_at = NULL,
          last_error = NULL
    WHERE name = $1 AND paused_at IS NOT NULL`,
);

/** Of a row that is locked. */
export async function resumeSchedule(
  tx: Queryable,
  name: string,
  nextAt: Date | undefined,
): Promise<void> {
  await tx.query(RESUME, [name, nextAt?.toISOString() ?? null]);
}
