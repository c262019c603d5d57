import type { Queryable } from "../../db/database.ts";
import { statement } from "../../db/statement.ts";

const FIND = statement(
  "http_queues_find",
  `SELECT queue.name, space.name AS key_space, queue.settings
     FROM {schema}.queues AS queue
     JOIN {schema}.key_spaces AS space ON space.id = queue.key_space_id
    WHERE queue.settings ? 'http'
      AND queue.name <> ALL ($1::text[])
      AND ($2::text[] IS NULL OR queue.name = ANY ($2::text[]))
    ORDER BY queue.name`,
);

export interface HttpQueueRow {
  readonly name: string;
  readonly key_space: string;
  readonly settings: unknown;
}

/** Queues whose tasks are HTTP calls: of all or of `only` these, but for those that are known. */
export async function findHttpQueues(
  db: Queryable,
  known: readonly string[],
  only: readonly string[] | undefined,
): Promise<HttpQueueRow[]> {
  return await db.query<HttpQueueRow>(FIND, [[...known], only === undefined ? null : [...only]]);
}

const GONE = statement(
  "http_queues_gone",
  `SELECT known.name
     FROM unnest($1::text[]) AS known(name)
    WHERE NOT EXISTS (SELECT
                        FROM {schema}.queues AS queue
                       WHERE queue.name = known.name
                         AND queue.settings ? 'http')`,
);

/** Of these queues, those whose tasks are no calls any more. */
export async function findGoneQueues(db: Queryable, known: readonly string[]): Promise<string[]> {
  const rows = await db.query<{ name: string }>(GONE, [[...known]]);
  return rows.map(({ name }) => name);
}
