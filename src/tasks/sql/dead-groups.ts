import type { Queryable } from "../../db/database.ts";
import { statement } from "../../db/statement.ts";
import type { DeadFilter } from "./act.ts";

// Numbers in a message are mostly ids: without them, what died of one fault is one group.
// Of the newest so many, read along the primary key: a desk of a million letters costs no more.
const GROUPS = statement(
  "dead_letter_groups",
  `WITH newest AS MATERIALIZED (
     SELECT id, queue, cause, dead_at,
            regexp_replace(left(reason, 400), '[0-9]+', '#', 'g') AS reason
       FROM {schema}.dead_letters
      WHERE ($1::text IS NULL OR tenant = $1)
        AND ($2::text[] IS NULL OR queue = ANY ($2::text[]))
        AND ($5::text IS NULL OR cause = $5)
        AND ($6::text IS NULL OR kind = $6)
        AND ($7::text IS NULL OR partition_key = $7)
      ORDER BY id DESC
      LIMIT $3
   )
   SELECT queue, cause, reason, count(*)::int AS count,
          min(dead_at) AS first_at, max(dead_at) AS last_at,
          array_agg(id::text ORDER BY id) AS ids
     FROM newest
    GROUP BY queue, cause, reason
    ORDER BY count DESC, last_at DESC, queue, reason
    LIMIT $4`,
);

export interface DeadGroupRow {
  readonly queue: string;
  readonly cause: string;
  readonly reason: string;
  readonly count: number;
  readonly first_at: Date;
  readonly last_at: Date;
  /** In the order in which they were enqueued. */
  readonly ids: readonly string[];
}

export async function readDeadGroups(
  db: Queryable,
  { tenant, queues, cause, kind, partitionKey }: Omit<DeadFilter, "ids" | "diedBefore">,
  most: { readonly letters: number; readonly groups: number },
): Promise<DeadGroupRow[]> {
  const scope = [tenant ?? null, queues ?? null, most.letters, most.groups];
  const values = [...scope, cause ?? null, kind ?? null, partitionKey ?? null];
  return await db.query<DeadGroupRow>(GROUPS, values);
}
