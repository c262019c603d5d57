import type { Queryable } from "../../db/database.ts";
import { statement } from "../../db/statement.ts";

const KEY_SPACE = statement(
  "key_space_ensure",
  `INSERT INTO {schema}.key_spaces (name) VALUES ($1) ON CONFLICT DO NOTHING`,
);

// Code owns the settings; limits that a person set hold over its own until they are handed back.
const REGISTER = statement(
  "queue_register",
  `INSERT INTO {schema}.queues AS queue (name, key_space_id, settings, limits_defined)
   SELECT $1, space.id, $3::text::jsonb, $4::text::jsonb
     FROM {schema}.key_spaces AS space
    WHERE space.name = $2
       ON CONFLICT (name) DO UPDATE
      SET settings = excluded.settings,
          limits_defined = excluded.limits_defined,
          updated_at = NOW()
    WHERE queue.settings <> excluded.settings
       OR queue.limits_defined <> excluded.limits_defined
   RETURNING name`,
);

export interface QueueRegistration {
  readonly name: string;
  readonly keySpace: string;
  readonly settings: object;
  readonly limits: object;
}

/** True when something changed. */
export async function registerQueue(db: Queryable, queue: QueueRegistration): Promise<boolean> {
  await db.query(KEY_SPACE, [queue.keySpace]);
  const rows = await db.query(REGISTER, [
    queue.name,
    queue.keySpace,
    JSON.stringify(queue.settings),
    JSON.stringify(queue.limits),
  ]);
  return rows.length === 1;
}

// Whatever its definition says, if it has one. No more than so many: names come from callers.
const ENSURE = statement(
  "queue_ensure",
  `INSERT INTO {schema}.queues (name, key_space_id, settings, limits_defined)
   SELECT $1, space.id, $3::text::jsonb, $4::text::jsonb
     FROM {schema}.key_spaces AS space
    WHERE space.name = $2
      AND (SELECT count(*) FROM {schema}.queues) < $5
       ON CONFLICT (name) DO NOTHING
   RETURNING name`,
);

/** True when it was not there and is now. */
export async function ensureQueue(
  db: Queryable,
  queue: QueueRegistration,
  max: number,
): Promise<boolean> {
  const { name, keySpace, settings, limits } = queue;
  await db.query(KEY_SPACE, [keySpace]);
  const values = [name, keySpace, JSON.stringify(settings), JSON.stringify(limits), max];
  return (await db.query(ENSURE, values)).length === 1;
}

const READ = statement(
  "queues_read",
  `SELECT queue.name, queue.key_space_id, space.name AS key_space, queue.settings, queue.limits,
          queue.paused_at, queue.pause_reason
     FROM {schema}.queues AS queue
     JOIN {schema}.key_spaces AS space ON space.id = queue.key_space_id
    WHERE $1::text[] IS NULL OR queue.name = ANY($1::text[])
    ORDER BY queue.name`,
);

export interface QueueRow {
  readonly name: string;
  readonly key_space_id: number;
  readonly key_space: string;
  readonly settings: unknown;
  readonly limits: unknown;
  readonly paused_at: Date | null;
  readonly pause_reason: string | null;
}

export async function readQueues(db: Queryable, names?: readonly string[]): Promise<QueueRow[]> {
  return await db.query<QueueRow>(READ, [names === undefined ? null : [...names]]);
}

const LANE_INSERT = statement(
  "lane_insert",
  `INSERT INTO {schema}.task_lanes (queue, tenant, priority)
   VALUES ($1, $2, $3::smallint)
       ON CONFLICT DO NOTHING`,
);
const LANE_FIND = statement(
  "lane_find",
  `SELECT lane FROM {schema}.task_lanes
    WHERE queue = $1 AND tenant = $2 AND priority = $3::smallint`,
);

/** Two statements: a lane that a concurrent transaction made is visible to the second only. */
export async function ensureLane(
  db: Queryable,
  queue: string,
  tenant: string,
  priority: number,
): Promise<number> {
  for (let insert = 0; insert < 2; insert += 1) {
    const [row] = await db.query<{ lane: number }>(LANE_FIND, [queue, tenant, priority]);
    if (row !== undefined) return row.lane;
    await db.query(LANE_INSERT, [queue, tenant, priority]);
  }
  const [row] = await db.query<{ lane: number }>(LANE_FIND, [queue, tenant, priority]);
  if (row === undefined) throw new Error(`no lane for ${queue}, ${tenant}, ${priority}`);
  return row.lane;
}
