import { expect } from "vitest";
import type { Tidemill } from "../../../src/index.ts";
import type { TestDatabase } from "../../support/database.ts";

/** What a tenant has, of every kind: its tasks by where they are in their life, and the rest. */
export interface Belongings {
  readonly tasks: {
    readonly pending: string;
    readonly packed: string;
    readonly ended: string;
    readonly dead: string;
  };
  /** A message to its webhook, which was tried once and is dead. */
  readonly delivery: string;
  /** Who is told that its work waits, of a queue that has none. */
  readonly subscription: string;
}

interface Owner {
  readonly mill: Tidemill;
  readonly database: TestDatabase;
  readonly tenant: string;
}

/**
 * Gives a tenant something of everything in queue mails, with a word in it that nobody else may
 * read. Nothing of it moves by itself, whoever works beside it.
 */
export async function furnish(
  { mill, database, tenant }: Owner,
  word: string,
): Promise<Belongings> {
  const { pool } = database;
  const make = async (more = {}): Promise<string> =>
    (await mill.enqueue("mails", { word }, { tenant, kind: word, ...more })).id;
  for (const id of ["hook", "common"]) {
    await mill.webhooks.put(tenant, id, { url: "https://example.com/", description: word });
  }
  const [pending, ended, dead] = [await make(), await make({ webhook: "hook" }), await make()];
  const pack = await mill.enqueueMany(
    "mails",
    Array.from({ length: 20 }, () => ({ payload: { word }, tenant })),
  );
  const { rows } = await pool.query("SELECT FROM tidemill.task_packs WHERE tenant = $1", [tenant]);
  expect(rows.length).toBeGreaterThan(0);
  await mill.tasks.cancel(ended, { reason: word });
  await pool.query(
    `WITH gone AS (DELETE FROM tidemill.tasks WHERE id = $1 RETURNING *)
     INSERT INTO tidemill.dead_letters
            (id, created_at, run_at, claim_order, lease_generation, lane, attempt, max_attempts,
             losses, priority, tenant, queue, kind, payload, cause, reason)
     SELECT id, created_at, run_at, claim_order, lease_generation, lane, 1, max_attempts, losses,
            priority, tenant, queue, kind, payload, 'attempts_exhausted', $2 FROM gone`,
    [dead, word],
  );
  await pool.query(
    `INSERT INTO tidemill.task_failures (task_id, attempt, outcome, reason)
     SELECT id, 1, 'failed', $2 FROM unnest($1::bigint[]) AS id`,
    [[pending, ended, dead], word],
  );
  const sent = await pool.query<{ id: string }>(
    `WITH tried AS (
       UPDATE tidemill.webhook_deliveries
          SET state = 'dead', cause = 'refused', attempt = 1, generation = 1, ended_at = NOW()
        WHERE tenant = $1
       RETURNING number, id
     ), logged AS (
       INSERT INTO tidemill.webhook_attempts (delivery, generation, attempt, status, answer)
       SELECT number, 1, 1, 400, $2 FROM tried
     )
     SELECT id FROM tried`,
    [tenant, word],
  );
  expect(sent.rows).toHaveLength(1);
  const url = `https://example.com/${word}`;
  const { subscription } = await mill.subscriptions.add(tenant, { url, queues: ["no-such-queue"] });
  await mill.schedules.put("nightly", { cron: "@yearly", queue: "mails", payload: word, tenant });
  return {
    tasks: { pending, packed: pack[3]?.id ?? "", ended, dead },
    delivery: sent.rows[0]?.id ?? "",
    subscription: subscription.id,
  };
}

/** Everything of a tenant, to see that nothing of it changed. */
export async function rowsOf({ pool }: TestDatabase, tenant: string): Promise<unknown> {
  const { rows } = await pool.query<{ all: unknown }>(
    `SELECT json_build_array(
       (SELECT json_agg(t ORDER BY id) FROM tidemill.tasks t WHERE tenant = $1),
       (SELECT json_agg(t ORDER BY id) FROM tidemill.task_packs t WHERE tenant = $1),
       (SELECT json_agg(t ORDER BY id) FROM tidemill.task_history t WHERE tenant = $1),
       (SELECT json_agg(t ORDER BY id) FROM tidemill.dead_letters t WHERE tenant = $1),
       (SELECT json_agg(t) FROM tidemill.schedules t WHERE tenant = $1),
       (SELECT json_agg(t) FROM tidemill.schedule_firings t WHERE tenant = $1),
       (SELECT json_agg(t ORDER BY id) FROM tidemill.webhook_endpoints t WHERE tenant = $1),
       (SELECT json_agg(t) FROM tidemill.webhook_deliveries t WHERE tenant = $1),
       (SELECT json_agg(log) FROM tidemill.webhook_attempts log
          JOIN tidemill.webhook_deliveries t ON t.number = log.delivery WHERE tenant = $1),
       (SELECT json_agg(t) FROM tidemill.subscriptions t WHERE tenant = $1),
       (SELECT json_agg(t) FROM tidemill.task_idempotency t WHERE tenant = $1),
       (SELECT count(*) FROM tidemill.topic_policies t WHERE tenant = $1)) AS all`,
    [tenant],
  );
  return rows[0]?.all;
}
