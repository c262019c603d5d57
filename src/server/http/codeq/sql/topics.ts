import type { Queryable } from "../../../../db/database.ts";
import { statement } from "../../../../db/statement.ts";

/** What CodeQ's clients say of a command. Of it `maxAttempts` is heeded, by creates without one. */
export interface TopicPolicy {
  readonly priorityTiers?: readonly number[] | undefined;
  readonly maxAttempts?: number | undefined;
  readonly deadLetterTopicRef?: string | undefined;
  readonly retentionSeconds?: number | undefined;
  readonly maxConsumers?: number | undefined;
}

export interface TopicRow {
  readonly name: string;
  readonly policy: TopicPolicy;
  readonly version: number;
}

const READ = statement(
  "topic_read",
  `SELECT name, policy, version
     FROM {schema}.topic_policies
    WHERE tenant = $1 AND name = $2`,
);

export async function readTopic(
  db: Queryable,
  tenant: string,
  name: string,
): Promise<TopicRow | undefined> {
  const [row] = await db.query<TopicRow>(READ, [tenant, name]);
  return row;
}

const READ_ATTEMPTS = statement(
  "topic_read_attempts",
  `SELECT name, (policy ->> 'maxAttempts')::int AS attempts
     FROM {schema}.topic_policies
    WHERE tenant = $1 AND policy ->> 'maxAttempts' IS NOT NULL`,
);

/** By name, of those whose policy says it. */
export async function readTopicAttempts(
  db: Queryable,
  tenant: string,
): Promise<ReadonlyMap<string, number>> {
  const rows = await db.query<{ name: string; attempts: number }>(READ_ATTEMPTS, [tenant]);
  return new Map(rows.map(({ name, attempts }) => [name, attempts]));
}

// The same again changes nothing, not even the version.
const PUT = statement(
  "topic_put",
  `INSERT INTO {schema}.topic_policies AS old (tenant, name, policy)
   SELECT $1, $2, $3::text::jsonb
    WHERE (SELECT count(*) FROM {schema}.topic_policies AS one WHERE one.tenant = $1) < $4
       OR EXISTS (SELECT FROM {schema}.topic_policies AS one
                   WHERE one.tenant = $1 AND one.name = $2)
       ON CONFLICT (tenant, name) DO UPDATE
      SET policy = excluded.policy,
          version = old.version + (old.policy <> excluded.policy)::int,
          updated_at = NOW()
   RETURNING name, policy, version, (xmax = 0) AS is_new`,
);

/** Undefined when the tenant has as many as it may. */
export async function putTopic(
  db: Queryable,
  tenant: string,
  { name, policy }: Pick<TopicRow, "name" | "policy">,
  max: number,
): Promise<(TopicRow & { readonly is_new: boolean }) | undefined> {
  const values = [tenant, name, JSON.stringify(policy), max];
  const [row] = await db.query<TopicRow & { readonly is_new: boolean }>(PUT, values);
  return row;
}

const DELETE = statement(
  "topic_delete",
  "DELETE FROM {schema}.topic_policies WHERE tenant = $1 AND name = $2 RETURNING name",
);

export async function deleteTopic(db: Queryable, tenant: string, name: string): Promise<boolean> {
  return (await db.query(DELETE, [tenant, name])).length === 1;
}
