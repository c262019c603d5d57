import { announceChange } from "../cluster/sql/changes.ts";
import type { Queryable, Store } from "../db/database.ts";

/**
 * Acts and, when that changed something, tells every worker, in one transaction. What comes back
 * below the floor of its lane is found only by those who are told. An announcement in a transaction
 * of its own would be lost with a process that dies in between, and to act again changes nothing.
 */
export async function announced<Done extends boolean | readonly string[]>(
  db: Store,
  channel: string,
  act: (tx: Queryable) => Promise<Done>,
): Promise<Done> {
  return await db.transaction(async (tx) => {
    const done = await act(tx);
    const hasChanged = typeof done === "boolean" ? done : done.length > 0;
    if (hasChanged) await announceChange(tx, channel);
    return done;
  });
}
