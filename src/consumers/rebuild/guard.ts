import { TidemillError } from "../../base/errors.ts";
import type { Connection } from "../../db/database.ts";
import type { HandlerContext, Partition } from "../consumer.ts";
import { enterShadow, readStrayTables, type StrayTable } from "./sql/guard.ts";
import { isSameDeclaration, spellTable } from "./target.ts";

/**
 * The handler of a rebuild went beyond the copies of its consumer's tables. Nothing of its batch
 * was committed. Mend the handler, then resume the rebuild.
 */
export class RebuildStrayError extends TidemillError {
  readonly code = "TM_REBUILD_STRAY";
  readonly retryable = false;
}

/** What a handler is told of its tables. */
export function tablesFor({
  consumer,
  rebuild,
}: Partition): Pick<HandlerContext, "isRebuild" | "table"> {
  return {
    isRebuild: rebuild !== undefined,
    table: (name) => spellTable(consumer, name, rebuild?.schema),
  };
}

/** Lets the transaction find the copies first. False when the rebuild is not there any more. */
export async function enterRebuild(tx: Connection, { rebuild }: Partition): Promise<boolean> {
  return rebuild === undefined || (await enterShadow(tx, rebuild));
}

/**
 * Refuses the batch of a rebuild that wrote anything but the copies, or looked at a live table. The
 * locks of the transaction tell, however the handler got there.
 */
export async function refuseStray(tx: Connection, { consumer, rebuild }: Partition): Promise<void> {
  if (rebuild === undefined) return;
  if (!isSameDeclaration(consumer.tables ?? [], rebuild)) {
    throw new RebuildStrayError(
      `consumer ${consumer.name} declares other tables than when its rebuild started; ` +
        "cancel the rebuild and start it again",
    );
  }
  const [stray] = await readStrayTables(tx, rebuild);
  if (stray === undefined) return;
  throw new RebuildStrayError(wordsFor(stray, consumer.name));
}

function wordsFor({ table, isLive, isOurs }: StrayTable, consumer: string): string {
  if (isLive) {
    return (
      `the handler used ${table} itself, not its copy; spell it without a schema, or as ` +
      'context.table("…")'
    );
  }
  if (isOurs) {
    return (
      `the handler wrote to ${table}: a rebuild causes nothing again; append and enqueue only ` +
      "if not context.isRebuild"
    );
  }
  return (
    `the handler wrote to ${table}, which is not a table of consumer ${consumer}; declare it in ` +
    "tables, or leave it alone if context.isRebuild"
  );
}
