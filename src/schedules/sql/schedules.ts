import type { Queryable } from "../../db/database.ts";
import { statement } from "../../db/statement.ts";
import type { CatchUpPolicy } from "../cron.ts";

const COLUMNS = `tenant, name, cron, time_zone, queue, payload, options, catch_up, catch_up_max,
       next_at, last_at, last_task_id, missed::float8 AS missed, retry_at, last_error, paused_at,
       created_at, updated_at`;

export interface ScheduleRow {
  readonly tenant: string;
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
  | "tenant"
  | "name"
  | "cron"
  | "time_zone"
  | "queue"
  | "payload"
  | "options"
  | "catch_up"
  | "catch_up_max"
>;

/** Two tenants may have schedules of one name. */
export interface ScheduleKey {
  readonly tenant: string;
  readonly name: string;
}

const READ = statement(
  "schedules_read",
  `SELECT ${COLUMNS}
     FROM {schema}.schedules
    WHERE ($1::text IS NULL OR tenant = $1)
      AND ($2::text IS NULL OR name = $2)
      AND ($3::text[] IS NULL OR queue = ANY ($3::text[]))
      AND ($4::text IS NULL OR name > $4)
    ORDER BY name, tenant
    LIMIT $5::int`,
);

export interface ScheduleFilter {
  /** Defaults to any. */
  readonly tenant?: string | undefined;
  readonly name?: string | undefined;
  /** Only those that enqueue to one of these. */
  readonly queues?: readonly string[] | undefined;
  /** Only names above this one. */
  readonly after?: string | undefined;
  /** Defaults to all. */
  readonly limit?: number | undefined;
}

/** By name. */
export async function readSchedules(db: Queryable, filter: ScheduleFilter): Promise<ScheduleRow[]> {
  const { tenant = null, name = null, queues = null, after = null, limit = null } = filter;
  return await db.query<ScheduleRow>(READ, [tenant, name, queues, after, limit]);
}

const FAILING = statement(
  "schedules_failing",
  `SELECT tenant, name, last_error AS error
     FROM {schema}.schedules
    WHERE last_error IS NOT NULL AND paused_at IS NULL
    ORDER BY name, tenant
    LIMIT $1`,
);

export interface FailingSchedule extends ScheduleKey {
  readonly error: string;
}

/** Those that could not fire when they last tried. */
export async function readFailingSchedules(
  db: Queryable,
  limit: number,
): Promise<FailingSchedule[]> {
  return await db.query<FailingSchedule>(FAILING, [limit]);
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
  `SELECT ${COLUMNS} FROM {schema}.schedules WHERE tenant = $1 AND name = $2 FOR UPDATE`,
);

/** Waits for a firing in flight; none begins before the transaction has ended. */
export async function lockSchedule(
  tx: Queryable,
  { tenant, name }: ScheduleKey,
): Promise<ScheduleRow | undefined> {
  const [row] = await tx.query<ScheduleRow>(LOCK, [tenant, name]);
  return row;
}

const INSERT = statement(
  "schedule_insert",
  `INSERT INTO {schema}.schedules
          (name, cron, time_zone, queue, payload, options, catch_up, catch_up_max, next_at, tenant)
   VALUES ($1, $2, $3, $4, $5, $6::text::jsonb, $7, $8, $9::timestamptz, $10)
       ON CONFLICT (tenant, name) DO NOTHING
   RETURNING ${COLUMNS}`,
);
// Whatever kept the old definition from firing need not concern the new one.
const UPDATE = statement(
  "schedule_update",
  `UPDATE {schema}.schedules
      SET cron = $2, time_zone = $3, queue = $4, payload = $5, options = $6::text::jsonb,
          catch_up = $7, catch_up_max = $8, next_at = $9::timestamptz, updated_at = NOW(),
          failures = 0, retry_at = NULL, last_error = NULL
    WHERE name = $1 AND tenant = $10
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
  schedule.tenant,
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
  "DELETE FROM {schema}.schedules WHERE tenant = $1 AND name = $2 RETURNING name",
);

export async function deleteSchedule(
  tx: Queryable,
  { tenant, name }: ScheduleKey,
): Promise<boolean> {
  const rows = await tx.query(DELETE, [tenant, name]);
  return rows.length === 1;
}

const PAUSE = statement(
  "schedule_pause",
  `UPDATE {schema}.schedules
      SET paused_at = NOW()
    WHERE tenant = $1 AND name = $2 AND paused_at IS NULL`,
);

export async function pauseSchedule(tx: Queryable, { tenant, name }: ScheduleKey): Promise<void> {
  await tx.query(PAUSE, [tenant, name]);
}

const RESUME = statement(
  "schedule_resume",
  `UPDATE {schema}.schedules
      SET paused_at = NULL, next_at = $3::timestamptz, failures = 0, retry_at = NULL,
          last_error = NULL
    WHERE tenant = $1 AND name = $2 AND paused_at IS NOT NULL`,
);

/** Of a row that is locked. */
export async function resumeSchedule(
  tx: Queryable,
  { tenant, name }: ScheduleKey,
  nextAt: Date | undefined,
): Promise<void> {
  await tx.query(RESUME, [tenant, name, nextAt?.toISOString() ?? null]);
}
