import type { Queryable } from "../../db/database.ts";
import { statement } from "../../db/statement.ts";

const KEY_SPACE = statement(
  "key_space_ensure",
  `INSERT INTO {schema}.key_spaces (name)
   SELECT $1
    WHERE NOT EXISTS (SELECT FROM {schema}.key_spaces WHERE name = $1)
       ON CONFLICT DO NOTHING`,
);

const KEY_SPACE_OF = statement(
  "key_space_of_tenant",
  `SELECT {schema}.key_space_of($1::int, $2) AS id`,
);

/** Where keys of the tenant are in order, by the space that its queues name; made if need be. */
export async function ensureKeySpace(
  db: Queryable,
  baseId: number,
  tenant: string,
): Promise<number> {
  const [row] = await db.query<{ id: number | null }>(KEY_SPACE_OF, [baseId, tenant]);
  if (typeof row?.id !== "number") throw new Error(`no key space ${baseId} for ${tenant}`);
  return row.id;
}

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

// Whatever its definition says, if it has one. No more than so many: names come from callers, and
// one that is refused draws no number of a key space, of which there are only so many.
const ENSURE = statement(
  "queue_ensure",
  `WITH room AS (
     SELECT WHERE NOT EXISTS (SELECT FROM {schema}.queues WHERE name = $1)
              AND (SELECT count(*) FROM {schema}.queues) < $5
   ), known AS (
     SELECT id FROM {schema}.key_spaces WHERE name = $2
   ), made AS (
     INSERT INTO {schema}.key_spaces (name)
     SELECT $2 FROM room WHERE NOT EXISTS (SELECT FROM known)
         ON CONFLICT DO NOTHING
     RETURNING id
   )
   INSERT INTO {schema}.queues (name, key_space_id, settings, limits_defined)
   SELECT $1, space.id, $3::text::jsonb, $4::text::jsonb
     FROM room, (SELECT id FROM known UNION ALL SELECT id FROM made) AS space
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
  const values = [name, keySpace, JSON.stringify(settings), JSON.stringify(limits), max];
  // A key space that somebody else made meanwhile is visible to the second only.
  const isMade = async (): Promise<boolean> => (await db.query(ENSURE, values)).length === 1;
  return (await isMade()) || (await isMade());
}

const READ = statement(
  "queues_read",
  `SELECT queue.name, queue.key_space_id, space.name AS key_space, queue.settings, queue.limits,
          queue.paused_at, queue.pause_reason,
          queue.is_provisional AND NOT queue.is_keyed AS is_open, queue.is_provisional,
          queue.introduced_by
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
  /** Nobody defined it yet. */
  readonly is_provisional: boolean;
  /** The tenant that named it first, if one did. */
  readonly introduced_by: string | null;
  /** A definition may still give it another key space. */
  readonly is_open: boolean;
}

export async function readQueues(db: Queryable, names?: readonly string[]): Promise<QueueRow[]> {
  return await db.query<QueueRow>(READ, [names === undefined ? null : [...names]]);
}

/** Definitions cannot have it in a name, so nobody shares the key space of a provisional queue. */
const provisionalSpace = (queue: string): string => `provisional\u001f${queue}`;

// The limit is looked at in the same statement, and is exact for those who introduce one by one.
// Whoever is over it must not draw a number of a key space, of which there are only so many.
const INTRODUCE = statement(
  "queue_introduce",
  `WITH room AS (
     SELECT WHERE NOT EXISTS (SELECT FROM {schema}.queues WHERE name = $1)
              AND (SELECT count(*) FROM {schema}.queues AS other
                    WHERE other.introduced_by = $4::text AND other.is_provisional) < $5::int
   ), known AS (
     SELECT id FROM {schema}.key_spaces WHERE name = $2
   ), made AS (
     INSERT INTO {schema}.key_spaces (name)
     SELECT $2 FROM room WHERE NOT EXISTS (SELECT FROM known)
         ON CONFLICT DO NOTHING
     RETURNING id
   )
   INSERT INTO {schema}.queues (name, key_space_id, settings, is_provisional, introduced_by)
   SELECT $1, space.id, $3::text::jsonb, TRUE, $4::text
     FROM room, (SELECT id FROM known UNION ALL SELECT id FROM made) AS space
       ON CONFLICT (name) DO NOTHING
   RETURNING name`,
);

export interface Introduction {
  readonly name: string;
  readonly settings: object;
  readonly tenant: string;
  /** As many provisional queues one tenant may have introduced. */
  readonly queuesMax: number;
}

/** False when there is one already, or when the tenant has introduced too many. */
export async function introduceQueue(db: Queryable, queue: Introduction): Promise<boolean> {
  const { name, settings, tenant, queuesMax } = queue;
  const values = [name, provisionalSpace(name), JSON.stringify(settings), tenant, queuesMax];
  return (await db.query(INTRODUCE, values)).length === 1;
}

// A definition that changes the key space at the same time waits for this row, or this for it.
const SETTLE_SPACE = statement(
  "queue_settle_key_space",
  `UPDATE {schema}.queues
      SET is_keyed = TRUE
    WHERE name = $1 AND is_provisional AND NOT is_keyed`,
);

/** From now on tasks with keys may wait in the queue's key space, whichever it is. */
export async function settleKeySpace(db: Queryable, name: string): Promise<void> {
  await db.query(SETTLE_SPACE, [name]);
}

const ADOPT_OPEN = statement(
  "queue_adopt_open",
  `UPDATE {schema}.queues AS queue
      SET is_provisional = FALSE, key_space_id = space.id, updated_at = NOW()
     FROM {schema}.key_spaces AS space
    WHERE queue.name = $1
      AND queue.is_provisional
      AND NOT queue.is_keyed
      AND space.name = $2`,
);
// Keys wait by the id of the space, so that it may change its name, but not the queue its space.
const ADOPT_KEYED = statement(
  "queue_adopt_keyed",
  `WITH adopted AS (
     UPDATE {schema}.queues AS queue
        SET is_provisional = FALSE, updated_at = NOW()
      WHERE queue.name = $1
        AND queue.is_provisional
        AND queue.is_keyed
        AND NOT EXISTS (SELECT FROM {schema}.key_spaces AS space WHERE space.name = $2)
     RETURNING queue.key_space_id
   )
   UPDATE {schema}.key_spaces AS space
      SET name = $2
     FROM adopted
    WHERE space.id = adopted.key_space_id`,
);

/** Makes a provisional queue that of a definition, if its key space allows it. */
export async function adoptQueue(
  db: Queryable,
  { name, keySpace }: Pick<QueueRegistration, "name" | "keySpace">,
): Promise<void> {
  await db.query(ADOPT_KEYED, [name, keySpace]);
  await db.query(KEY_SPACE, [keySpace]);
  await db.query(ADOPT_OPEN, [name, keySpace]);
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
