import type { Queryable } from "../../db/database.ts";
import { statement } from "../../db/statement.ts";

/** Read in the snapshot of a look: what the look shows and the marker belong together. */
export const MARKER = "(SELECT id::text FROM {schema}.crash_marker)";

/** Floors that were learnt before a crash may be above a task whose claim it took back. */
export const isSameServer = (marker: string): string =>
  `(${marker}::text IS NULL OR ${marker}::text = ${MARKER})`;

const PLACE = statement(
  "crash_marker_place",
  "INSERT INTO {schema}.crash_marker DEFAULT VALUES ON CONFLICT DO NOTHING",
);

/** The first worker that finds none after a crash places one for all. */
export async function placeMarker(db: Queryable): Promise<void> {
  await db.query(PLACE);
}
