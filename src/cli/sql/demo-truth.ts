import type {
  CheckpointFact,
  EffectFact,
  FiringFact,
  HandledFact,
  TaskFact,
} from "../../checker/truth.ts";
import type { SqlExecutor } from "../../db/executor.ts";
import type { DemoNames } from "./demo.ts";

/*
 * What the tables say of the shop, for the rules of the checker: never all of it, because it grows
 * for as long as the demo runs.
 */

const ms = (column: string): string => `(extract(epoch FROM ${column}) * 1000)::float8`;

async function read<Row>(tx: SqlExecutor, text: string, values: unknown[] = []): Promise<Row[]> {
  return (await tx.query(text, values)).rows as Row[];
}

/** From here on all tables are read as they are at one instant. First in its transaction. */
export async function beginLook(tx: SqlExecutor): Promise<void> {
  await tx.query("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY");
}

/** Rows that are younger, or that are asked for by their numbers. */
export interface Which {
  readonly after: bigint;
  readonly ids: readonly string[];
}

/** Of a task, as it is stored: who reads the payload must expect anything in it. */
export type TaskRow = Omit<TaskFact, "name"> & { readonly payload: string | null };

/** Of these queues. */
export async function readTasks(
  tx: SqlExecutor,
  { mill }: DemoNames,
  { queues, after, ids }: Which & { readonly queues: readonly string[] },
): Promise<TaskRow[]> {
  const from = (table: string, state: string, finished: string, lease: string): string => `
    SELECT id::text, queue, partition_key AS key, ${state} AS state, payload,
           lease_generation AS generation, claim_id AS "claimId",
           ${finished} AS "finishedAtMs", ${lease} AS "leaseUntilMs"
      FROM ${mill}.${table}
     WHERE (id > $2 OR id = ANY($3::bigint[])) AND queue = ANY($1::text[])`;
  const none = "NULL::float8";
  return await read<TaskRow>(
    tx,
    [
      from("live_tasks", "state", none, ms("lease_until")),
      from("task_history", "state", ms("finished_at"), none),
      from("dead_letters", "'dead'", ms("dead_at"), none),
    ].join(" UNION ALL "),
    [[...queues], String(after), [...ids]],
  );
}

export interface EventRow {
  readonly position: string;
  readonly type: string;
  readonly stream: string;
  readonly payload: Buffer;
}

/** Of streams of one type: in a range of positions, younger, or asked for by their positions. */
export async function readEvents(
  tx: SqlExecutor,
  names: DemoNames,
  { streamType, after, upTo, ids }: Which & { readonly streamType: string; readonly upTo: bigint },
): Promise<EventRow[]> {
  return await read<EventRow>(
    tx,
    `SELECT global_position::text AS position, event_type AS type, ${names.streamId} AS stream,
            payload
       FROM ${names.events}
      WHERE ((global_position > $2 AND global_position <= $3)
             OR global_position = ANY($4::bigint[]))
        AND ${names.streamType} = $1
      ORDER BY global_position`,
    [streamType, String(after), String(upTo), [...ids]],
  );
}

/** Orders of which something was done lately. */
export async function readTouched(
  tx: SqlExecutor,
  { schema }: DemoNames,
  after: bigint,
): Promise<{ readonly orders: string[]; readonly last: bigint }> {
  const rows = await read<{ seq: string; order_id: string | null }>(
    tx,
    `SELECT seq::text, order_id FROM ${schema}.effects WHERE seq > $1`,
    [String(after)],
  );
  const last = rows.reduce((most, { seq }) => (BigInt(seq) > most ? BigInt(seq) : most), after);
  return { orders: [...new Set(rows.flatMap(({ order_id }) => order_id ?? []))], last };
}

export async function readEffects(
  tx: SqlExecutor,
  { schema }: DemoNames,
  { orders, tasks }: { readonly orders: readonly string[]; readonly tasks: readonly string[] },
): Promise<EffectFact[]> {
  return await read<EffectFact>(
    tx,
    `SELECT task_id::text AS task, name, order_id AS key, generation, claim_id AS "claimId",
            ${ms("started_at")} AS "startedAtMs", ${ms("at")} AS "atMs"
       FROM ${schema}.effects AS effect
      WHERE order_id = ANY($1::text[]) OR task_id = ANY($2::bigint[])
      ORDER BY effect.seq`,
    [[...orders], [...tasks]],
  );
}

/** What consumers did in a range of positions, and at those that were handled lately. */
export async function readHandled(
  tx: SqlExecutor,
  { schema }: DemoNames,
  { from, upTo, since }: { readonly from: bigint; readonly upTo: bigint; readonly since: bigint },
): Promise<HandledFact[]> {
  return await read<HandledFact>(
    tx,
    `SELECT seq::text, consumer, 0 AS partition, '0' AS line, position::text, '' AS xid
       FROM ${schema}.handled AS one
      WHERE (position > $1 AND position <= $2)
         OR position IN (SELECT position FROM ${schema}.handled WHERE seq > $3 AND position <= $1)
      ORDER BY one.seq`,
    [String(from), String(upTo), String(since)],
  );
}

export async function readCheckpoints(
  tx: SqlExecutor,
  { checkpoints }: DemoNames,
  consumers: readonly string[],
): Promise<CheckpointFact[]> {
  return await read<CheckpointFact>(
    tx,
    `SELECT consumer_name AS consumer, 0 AS partition, last_position::text AS position
       FROM ${checkpoints} WHERE consumer_name = ANY($1::text[])`,
    [[...consumers]],
  );
}

/** Of whoever moved a consumer on purpose. */
export interface ActionRow {
  readonly id: string;
  readonly consumer: string;
  readonly action: string;
}

export async function readActions(
  tx: SqlExecutor,
  { mill }: DemoNames,
  after: bigint,
): Promise<ActionRow[]> {
  return await read<ActionRow>(
    tx,
    `SELECT id::text, consumer_name AS consumer, action
       FROM ${mill}.operator_actions WHERE id > $1 ORDER BY id`,
    [String(after)],
  );
}

export async function readFirings(
  tx: SqlExecutor,
  { mill }: DemoNames,
  { schedule, after }: { readonly schedule: string; readonly after: bigint },
): Promise<(FiringFact & { readonly id: string })[]> {
  return await read<FiringFact & { readonly id: string }>(
    tx,
    `SELECT id::text, name AS schedule, ${ms("tick")} AS "tickMs", task_id::text AS task,
            ${ms("fired_at")} AS "firedAtMs"
       FROM ${mill}.schedule_firings
      WHERE name = $1 AND kind = 'tick' AND id > $2`,
    [schedule, String(after)],
  );
}

/** Where everything stands: what is there when the demo begins is not judged. */
export interface Marks {
  readonly task: bigint;
  readonly position: bigint;
  readonly effect: bigint;
  readonly handled: bigint;
  readonly action: bigint;
  readonly firing: bigint;
}

export async function readMarks(tx: SqlExecutor, names: DemoNames): Promise<Marks> {
  const { schema, mill, events } = names;
  const [row] = await read<Record<keyof Marks, string>>(
    tx,
    `SELECT GREATEST((SELECT max(id) FROM ${mill}.tasks),
                     (SELECT max(id) FROM ${mill}.task_history),
                     (SELECT max(id) FROM ${mill}.dead_letters), 0)::text AS task,
            COALESCE((SELECT max(global_position) FROM ${events}), 0)::text AS position,
            COALESCE((SELECT max(seq) FROM ${schema}.effects), 0)::text AS effect,
            COALESCE((SELECT max(seq) FROM ${schema}.handled), 0)::text AS handled,
            COALESCE((SELECT max(id) FROM ${mill}.operator_actions), 0)::text AS action,
            COALESCE((SELECT max(id) FROM ${mill}.schedule_firings), 0)::text AS firing`,
  );
  const mark = (name: keyof Marks): bigint => BigInt(row?.[name] ?? 0);
  return {
    task: mark("task"),
    position: mark("position"),
    effect: mark("effect"),
    handled: mark("handled"),
    action: mark("action"),
    firing: mark("firing"),
  };
}

/** How many tasks were taken from workers that were silent, since an instant of the database. */
export async function readLosses(
  tx: SqlExecutor,
  { mill }: DemoNames,
  sinceMs: number,
): Promise<{ readonly worker: string; readonly tasks: number }[]> {
  return await read<{ worker: string; tasks: number }>(
    tx,
    `SELECT worker_id AS worker, count(*)::int AS tasks
       FROM ${mill}.task_failures
      WHERE outcome = 'lost' AND worker_id IS NOT NULL
        AND at > to_timestamp($1::float8 / 1000)
      GROUP BY worker_id`,
    [sinceMs],
  );
}

/** By the clock of the database. */
export async function readMs(tx: SqlExecutor): Promise<number> {
  const [row] = await read<{ atMs: number }>(tx, `SELECT ${ms("NOW()")} AS "atMs"`);
  return row?.atMs ?? 0;
}
