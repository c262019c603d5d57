import { ConfigError, ConflictError, NotFoundError } from "../../base/errors.ts";
import type { TableName } from "../../base/identifier.ts";
import { requireNumber } from "../../base/options.ts";
import { registerAssignments } from "../../cluster/sql/assignments.ts";
import type { Connection, Database } from "../../db/database.ts";
import { sqlState } from "../../db/sqlstate.ts";
import { PARTITIONS_MAX, partitionNames } from "../consumer.ts";
import {
  insertConsumer,
  readCapableWorkers,
  readPartitionCount,
  recordAction,
} from "../sql/admin.ts";
import { rebuildCapability, rebuildName, shadowSchema } from "./names.ts";
import { insertRebuild } from "./sql/rebuilds.ts";
import {
  copyGrants,
  createShadowKeys,
  createShadowSchema,
  createShadowTable,
  readCrossedKeys,
} from "./sql/shadow.ts";
import { lockConsumerTables, resolveTables, type StoredTables } from "./sql/tables.ts";
import { refuseObstacles } from "./swap.ts";
import { parseDeclared } from "./target.ts";

export interface StartOptions {
  /**
   * How many workers can take part. More than the consumer itself has give up order between
   * streams. Defaults to the consumer's own number.
   */
  readonly partitions?: number;
  /** Kept and shown. */
  readonly reason?: string;
}

/** Everything that a rebuild needs before workers can take part, or nothing of it. */
export async function startRebuild(
  db: Database,
  tx: Connection,
  consumer: string,
  options: StartOptions,
): Promise<void> {
  const count = await readPartitionCount(tx, consumer);
  if (count === undefined) {
    throw new NotFoundError(
      `there is no consumer ${JSON.stringify(consumer)}; "tidemill consumer list" names them`,
    );
  }
  const rule = { min: 1, max: PARTITIONS_MAX, integer: true };
  const partitions = requireNumber("partitions", options.partitions ?? count, rule);
  const all = await lockConsumerTables(tx);
  const stored = all.find((one) => one.consumer === consumer);
  if (stored === undefined) {
    throw new ConflictError(
      `consumer ${consumer} declares no tables; say which it writes, ` +
        `consumer("${consumer}", { tables: […] }), and start a worker with that`,
    );
  }
  const workers = await readCapableWorkers(tx, [rebuildCapability(consumer)]);
  if (workers.length === 0) {
    throw new ConflictError(
      `no running worker can rebuild consumer ${consumer}; start one that declares its tables`,
    );
  }
  const tables = await findTables(tx, stored);
  await refuseShared(
    tx,
    tables,
    all.filter((one) => one !== stored),
  );
  await refuseObstacles(tx, tables);
  const { reason } = options;
  const declared = stored.tables;
  const rebuild = await insertRebuild(tx, { consumer, partitions, declared, tables, reason });
  if (rebuild === undefined) {
    throw new ConflictError(
      `consumer ${consumer} has a rebuild already; cancel it, or forget what it keeps`,
    );
  }
  await createCopies(tx, tables, shadowSchema(db.names, rebuild.id));
  const names = partitionNames(rebuildName(consumer), partitions);
  await insertConsumer(tx, rebuildName(consumer), names, 0n);
  await registerAssignments(tx, names);
  await recordAction(tx, consumer, "rebuild start", { id: rebuild.id, partitions, reason });
}

async function findTables(tx: Connection, stored: StoredTables): Promise<TableName[]> {
  const found = await resolveTables(tx, stored.tables.map(parseDeclared), stored.searchPath);
  return found.map(({ schema, table }) => {
    if (schema !== undefined) return { schema, table };
    throw new ConflictError(
      `consumer ${stored.consumer} declares table ${table}, which does not exist`,
    );
  });
}

/** What another consumer wrote to the table would be gone after the swap. */
async function refuseShared(
  tx: Connection,
  tables: readonly TableName[],
  others: readonly StoredTables[],
): Promise<void> {
  const names = new Set(tables.map(({ table }) => table));
  for (const { consumer, tables: theirs, searchPath } of others) {
    const alike = theirs.map(parseDeclared).filter(({ table }) => names.has(table));
    if (alike.length === 0) continue;
    for (const { schema, table } of await resolveTables(tx, alike, searchPath)) {
      if (!tables.some((one) => one.schema === schema && one.table === table)) continue;
      throw new ConflictError(
        `${schema}.${table} is also a table of consumer ${consumer}; a table can be rebuilt ` +
          "only if one consumer alone writes it",
      );
    }
  }
}

async function createCopies(
  tx: Connection,
  tables: readonly TableName[],
  schema: string,
): Promise<void> {
  try {
    await createShadowSchema(tx, schema);
    for (const table of tables) await createShadowTable(tx, table, schema);
    for (const table of tables) await createShadowKeys(tx, table, schema);
    const crossed = await readCrossedKeys(tx, tables, schema);
    if (crossed.length > 0) {
      throw new ConflictError(
        `foreign keys between tables of two schemas cannot be rebuilt: ${crossed.join(", ")}`,
      );
    }
    for (const table of tables) await copyGrants(tx, table, schema);
  } catch (error) {
    if (sqlState(error) !== "42501") throw error;
    const why = error instanceof Error ? error.message : "";
    throw new ConfigError(
      `this role may not make the copies (${why}); it needs CREATE on the database and must own ` +
        "the tables",
      { cause: error },
    );
  }
}
