import { ConflictError } from "../../base/errors.ts";
import type { TableName } from "../../base/identifier.ts";
import type { Connection, Database } from "../../db/database.ts";
import { setLockTimeout } from "../../db/sql/session.ts";
import { deleteConsumer, forgetParkedAbove, recordAction } from "../sql/admin.ts";
import { saveCheckpoint } from "../sql/batch.ts";
import { readParkedStreams } from "../sql/parked.ts";
import { liftQuarantine } from "../sql/states.ts";
import { furthestOf, lockPositions, type Sides } from "./align.ts";
import { beforeName, beforeSchema, rebuildName, shadowSchema } from "./names.ts";
import { renameParked } from "./sql/holds.ts";
import { readDifferences, readObstacles } from "./sql/obstacles.ts";
import { moveRebuild, type Rebuild } from "./sql/rebuilds.ts";
import {
  copyGrants,
  createShadowSchema,
  dropSchema,
  hasRows,
  lockTables,
  moveTable,
} from "./sql/shadow.ts";

/** Readers that hold a table keep all that come after us waiting, so we do not wait for long. */
const TABLE_LOCK_MS = 1_000;

export interface SwapOptions {
  /** Also if every rebuilt table is empty and a live one is not. Defaults to false. */
  readonly force?: boolean;
}

const inSchema = ({ tables }: Rebuild, schema: string): TableName[] =>
  tables.map(({ table }) => ({ schema, table }));

/** Refuses tables that cannot change places, with everything that is in the way. */
export async function refuseObstacles(tx: Connection, tables: readonly TableName[]): Promise<void> {
  const obstacles = await readObstacles(tx, tables);
  if (obstacles.length === 0) return;
  throw new ConflictError(
    `these tables cannot be swapped: ${obstacles.join("; ")}. ` +
      "Remove what is in the way and create it again after the swap",
  );
}

async function refuseAltered(tx: Connection, rebuild: Rebuild, schema: string): Promise<void> {
  await refuseObstacles(tx, rebuild.tables);
  const differences = await readDifferences(tx, rebuild.tables, schema);
  if (differences.length === 0) return;
  throw new ConflictError(
    `tables of ${rebuild.consumer} were altered since: ${differences.join("; ")}. ` +
      "Alter both alike, or cancel and start the rebuild again",
  );
}

async function refuseEmpty(tx: Connection, rebuild: Rebuild, copies: TableName[]): Promise<void> {
  for (const copy of copies) if (await hasRows(tx, copy)) return;
  for (const table of rebuild.tables) {
    if (!(await hasRows(tx, table))) continue;
    throw new ConflictError(
      `every rebuilt table of ${rebuild.consumer} is empty, and ${table.schema}.${table.table} ` +
        "is not: does its handler write through tx? Force the swap if that is right",
    );
  }
}

/**
 * The copies take the place of the live tables, and the checkpoint of the rebuild that of the
 * projection: all of it in the given transaction. Under the locks of every partition no batch runs,
 * so what the checkpoints say is what is in the tables.
 */
export async function swapTables(
  db: Database,
  tx: Connection,
  { rebuild, sides, options }: { rebuild: Rebuild; sides: Sides; options: SwapOptions },
): Promise<bigint> {
  const { id, consumer, tables } = rebuild;
  const [shadow, before] = [shadowSchema(db.names, id), beforeSchema(db.names, id)];
  const { live, rebuilt } = sides;
  const positions = await lockPositions(tx, [...live, ...rebuilt]);
  const position = furthestOf(sides, positions);
  const at = (name: string): bigint => positions.get(name)?.position ?? 0n;
  if (rebuilt.some((name) => at(name) !== position)) {
    throw new ConflictError(`${consumer} moved on before it could be swapped; try again`);
  }
  for (const name of rebuilt) await refuseParked(tx, name);
  const kept = new Map(live.map((name) => [name, at(name)] as const));
  if (!(await moveRebuild(tx, rebuild, "swapped", kept))) {
    throw new ConflictError(`the rebuild of ${consumer} was changed by somebody else`);
  }
  await setLockTimeout(tx, TABLE_LOCK_MS);
  const copies = inSchema(rebuild, shadow);
  await lockTables(tx, [...tables, ...copies]);
  await refuseAltered(tx, rebuild, shadow);
  if (options.force !== true) await refuseEmpty(tx, rebuild, copies);
  for (const table of tables) await copyGrants(tx, table, shadow);
  await createShadowSchema(tx, before);
  for (const table of tables) await moveTable(tx, table, before);
  for (const { schema, table } of tables) await moveTable(tx, { schema: shadow, table }, schema);
  await dropSchema(tx, shadow);
  await renameParked(
    tx,
    live.map((name) => [name, beforeName(consumer, name)] as const),
  );
  for (const name of live) {
    await saveCheckpoint(tx, name, at(name), position);
    await liftQuarantine(tx, name); // It belongs to the old tables.
  }
  await deleteConsumer(tx, rebuildName(consumer), rebuilt);
  await recordAction(tx, consumer, "rebuild swap", { id, position: String(position) });
  return position;
}

async function refuseParked(tx: Connection, name: string): Promise<void> {
  if ((await readParkedStreams(tx, name)).length === 0) return;
  throw new ConflictError(`${name} has parked streams; resume it first`);
}

/** The old tables come back with their own checkpoints; the rebuilt ones are kept for a look. */
export async function swapBack(
  db: Database,
  tx: Connection,
  { rebuild, live }: { rebuild: Rebuild; live: readonly string[] },
): Promise<void> {
  const { id, consumer, tables, before: positions } = rebuild;
  const [shadow, before] = [shadowSchema(db.names, id), beforeSchema(db.names, id)];
  const now = await lockPositions(tx, live);
  if (live.length !== positions.size || !live.every((name) => positions.has(name))) {
    throw new ConflictError(`consumer ${consumer} is split otherwise than before the swap`);
  }
  if (!(await moveRebuild(tx, rebuild, "rolled_back"))) {
    throw new ConflictError(`the rebuild of ${consumer} was changed by somebody else`);
  }
  await setLockTimeout(tx, TABLE_LOCK_MS);
  await lockTables(tx, [...tables, ...inSchema(rebuild, before)]);
  await refuseAltered(tx, rebuild, before);
  for (const table of tables) await copyGrants(tx, table, before);
  await createShadowSchema(tx, shadow);
  for (const table of tables) await moveTable(tx, table, shadow);
  for (const { schema, table } of tables) await moveTable(tx, { schema: before, table }, schema);
  await dropSchema(tx, before);
  for (const name of live) {
    await forgetParkedAbove(tx, name, -1n); // What was parked for the rebuilt tables.
    const from = now.get(name)?.position ?? 0n;
    await saveCheckpoint(tx, name, from, positions.get(name) ?? 0n);
    await liftQuarantine(tx, name);
  }
  await renameParked(
    tx,
    live.map((name) => [beforeName(consumer, name), name] as const),
  );
  await recordAction(tx, consumer, "rebuild roll back", { id });
}
