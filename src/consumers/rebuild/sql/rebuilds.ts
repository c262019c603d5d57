import type { TableName } from "../../../base/identifier.ts";
import type { Queryable } from "../../../db/database.ts";
import { statement } from "../../../db/statement.ts";

export type RebuildState = "building" | "swapped" | "rolled_back";

/** A row of consumer_rebuilds. */
export interface Rebuild {
  readonly id: string;
  readonly consumer: string;
  readonly state: RebuildState;
  readonly partitions: number;
  readonly declared: readonly string[];
  readonly tables: readonly TableName[];
  readonly reason: string | undefined;
  /** Checkpoints of the old tables by partition, once they were swapped out. */
  readonly before: ReadonlyMap<string, bigint>;
  readonly startedAt: Date;
  readonly changedAt: Date;
  /** The clock of the database. */
  readonly now: Date;
}

interface Row {
  readonly id: string;
  readonly consumer_name: string;
  readonly state: RebuildState;
  readonly partitions: number;
  readonly declared: string[];
  readonly table_schemas: string[];
  readonly table_names: string[];
  readonly reason: string | null;
  readonly before: Readonly<Record<string, string>> | null;
  readonly started_at: Date;
  readonly changed_at: Date;
  readonly now: Date;
}

const COLUMNS = `id, consumer_name, state, partitions, declared, table_schemas, table_names, reason,
          before, started_at, changed_at, clock_timestamp() AS now`;

const READ = statement(
  "rebuild_read",
  `SELECT ${COLUMNS} FROM {schema}.consumer_rebuilds WHERE consumer_name = $1`,
);

export async function readRebuild(db: Queryable, consumer: string): Promise<Rebuild | undefined> {
  const [row] = await db.query<Row>(READ, [consumer]);
  return row === undefined ? undefined : toRebuild(row);
}

const ALL = statement(
  "rebuilds_read",
  `SELECT ${COLUMNS} FROM {schema}.consumer_rebuilds ORDER BY consumer_name COLLATE "C"`,
);

export async function readRebuilds(db: Queryable): Promise<Rebuild[]> {
  return (await db.query<Row>(ALL)).map(toRebuild);
}

const BUILDING = statement(
  "rebuilds_building",
  `SELECT ${COLUMNS}
     FROM {schema}.consumer_rebuilds
    WHERE consumer_name = ANY($1::text[]) AND state = 'building'`,
);

export async function readBuilding(
  db: Queryable,
  consumers: readonly string[],
): Promise<Rebuild[]> {
  return (await db.query<Row>(BUILDING, [[...consumers]])).map(toRebuild);
}

const INSERT = statement(
  "rebuild_insert",
  `INSERT INTO {schema}.consumer_rebuilds
          (consumer_name, state, partitions, declared, table_schemas, table_names, reason)
   VALUES ($1, 'building', $2, $3::text[], $4::text[], $5::text[], $6)
       ON CONFLICT DO NOTHING
   RETURNING ${COLUMNS}`,
);

export interface NewRebuild {
  readonly consumer: string;
  readonly partitions: number;
  readonly declared: readonly string[];
  readonly tables: readonly TableName[];
  readonly reason: string | undefined;
}

/** Undefined when the consumer has a rebuild already. */
export async function insertRebuild(
  tx: Queryable,
  { consumer, partitions, declared, tables, reason }: NewRebuild,
): Promise<Rebuild | undefined> {
  const [row] = await tx.query<Row>(INSERT, [
    consumer,
    partitions,
    [...declared],
    tables.map(({ schema }) => schema),
    tables.map(({ table }) => table),
    reason ?? null,
  ]);
  return row === undefined ? undefined : toRebuild(row);
}

const MOVE = statement(
  "rebuild_move",
  `UPDATE {schema}.consumer_rebuilds
      SET state = $3,
          before = COALESCE($4::text::jsonb, before),
          changed_at = clock_timestamp()
    WHERE id = $1 AND state = $2
   RETURNING id`,
);

/** False when it is not in the state that the move begins at. */
export async function moveRebuild(
  tx: Queryable,
  { id, state }: Pick<Rebuild, "id" | "state">,
  to: RebuildState,
  before?: ReadonlyMap<string, bigint>,
): Promise<boolean> {
  const positions = before && [...before].map(([name, at]) => [name, String(at)] as const);
  const kept = positions === undefined ? null : JSON.stringify(Object.fromEntries(positions));
  const rows = await tx.query(MOVE, [id, state, to, kept]);
  return rows.length === 1;
}

const DELETE = statement(
  "rebuild_delete",
  "DELETE FROM {schema}.consumer_rebuilds WHERE id = $1 AND state = $2 RETURNING id",
);

/** False when it is not in that state any more. */
export async function deleteRebuild(
  tx: Queryable,
  { id, state }: Pick<Rebuild, "id" | "state">,
): Promise<boolean> {
  const rows = await tx.query(DELETE, [id, state]);
  return rows.length === 1;
}

function toRebuild(row: Row): Rebuild {
  const before = Object.entries(row.before ?? {});
  return {
    id: row.id,
    consumer: row.consumer_name,
    state: row.state,
    partitions: row.partitions,
    declared: row.declared,
    tables: row.table_names.map((table, at) => ({ schema: row.table_schemas[at] ?? "", table })),
    reason: row.reason ?? undefined,
    before: new Map(before.map(([name, position]) => [name, BigInt(position)] as const)),
    startedAt: row.started_at,
    changedAt: row.changed_at,
    now: row.now,
  };
}
