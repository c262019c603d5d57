import type pg from "pg";
import { consumer, queue, type Tidemill } from "../../src/index.ts";
import { withClient } from "../support/server.ts";
import type { Named } from "./pages.ts";

export interface Amounts {
  readonly history: number;
  readonly pending: number;
  readonly dead: number;
  readonly events: number;
}

const QUEUES = 20;
/** Waits with a key, in a key space of its own. */
const KEYED = "keyed";
const RARE = "rare";
const TENANT = "default";
const APPENDED = 1_000;

/**
 * Fills the tables as weeks of work would, by SQL: what a page shows must not depend on how it got
 * there. Queues are paused, so that the worker whose heartbeats and buckets are shown runs nothing.
 */
export async function fill(url: string, mill: Tidemill, amounts: Amounts): Promise<Named> {
  const names = Array.from({ length: QUEUES }, (_, at) => `queue_${at}`);
  for (const name of [...names, RARE]) await mill.queues.ensure(name);
  const keyed = queue(KEYED);
  await mill.queues.define(keyed);
  for (const name of [...names, RARE, KEYED]) await mill.queues.pause(name);
  await mill.enqueue(keyed, 0, { partitionKey: "first" });
  for (const name of [...names, RARE]) await mill.enqueue(name, 0);
  const { task, dead } = await withClient(url, (client) => fillTasks(client, amounts));
  await mill.startWorker({
    handlers: [keyed.handle(() => {})],
    consumers: [consumer("orders", { handle: () => {} }), consumer("mails", { handle: () => {} })],
    dispatcherStrategy: "notify",
  });
  for (let at = 0; at < amounts.events / APPENDED; at += 1) {
    await mill.append(
      { type: "order", id: String(at) },
      Array.from({ length: APPENDED }, (_, n) => ({ type: "OrderPlaced", data: { n } })),
    );
  }
  for (let at = 0; at < 100; at += 1) {
    await mill.schedules.put(`schedule ${at}`, { cron: "@daily", queue: "queue_0" });
  }
  await mill.quotas.put(TENANT, { pendingTasks: 10_000_000, pendingBytes: null, rate: null });
  await withClient(url, fillRest);
  return {
    task,
    dead,
    consumer: "orders",
    keySpace: KEYED,
    schedule: "schedule 7",
    tenant: TENANT,
    key: "key-7",
    queue: RARE,
  };
}

async function fillTasks(
  client: pg.Client,
  { history, pending, dead }: Amounts,
): Promise<{ readonly task: string; readonly dead: string }> {
  const base = "SELECT setval('tidemill.task_numbers', nextval('tidemill.task_numbers') + $1)";
  const next = async (count: number): Promise<number> => {
    const { rows } = await client.query<{ setval: string }>(base, [count]);
    return Number(rows[0]?.setval) - count;
  };
  await client.query("SET synchronous_commit = off");
  const ended = await next(history);
  // One in ten thousand was refused; every tenth has a key.
  await client.query(
    `INSERT INTO tidemill.task_history
            (id, finished_at, created_at, run_at, claimed_at, lease_generation, attempt,
             max_attempts, priority, state, tenant, queue, partition_key, payload, reason)
     SELECT $1 + n, NOW() - make_interval(secs => ($2 - n) * 0.01), NOW(), NOW(), NOW(), 1, 1, 5, 5,
            CASE WHEN n % 10000 = 0 THEN 'failed' ELSE 'completed' END, '${TENANT}',
            CASE WHEN n % 10 = 0 THEN '${KEYED}' ELSE 'queue_' || n % ${QUEUES} END,
            CASE WHEN n % 10 = 0 THEN 'key-' || n % 50000 END,
            '{"order": ' || n || ', "text": "some words to make it as long as others"}',
            CASE WHEN n % 10000 = 0 THEN 'refused' END
       FROM generate_series(1, $2::int) AS n`,
    [ended, history],
  );
  const live = await next(pending);
  await client.query(
    `INSERT INTO tidemill.tasks
            (id, claim_order, lane, max_attempts, priority, partition_key, partition_bucket, state,
             tenant, queue, payload)
     SELECT $1 + n, $1 + n,
            CASE WHEN n % 10 = 0
                 THEN -(space.id * 360 + n / 10 % 360 + 1)
                 ELSE (SELECT lane FROM tidemill.task_lanes
                        WHERE queue = 'queue_' || n % ${QUEUES} AND priority = 5
                          AND tenant = '${TENANT}') END,
            5, 5, CASE WHEN n % 10 = 0 THEN 'key-' || n % 50000 END,
            CASE WHEN n % 10 = 0 THEN n / 10 % 360 END, 'pending', '${TENANT}',
            CASE WHEN n % 10 = 0 THEN '${KEYED}' ELSE 'queue_' || n % ${QUEUES} END,
            '{"order": ' || n || ', "text": "some words to make it as long as others"}'
       FROM generate_series(1, $2::int) AS n,
            (SELECT key_space_id AS id FROM tidemill.queues WHERE name = '${KEYED}') AS space`,
    [live, pending],
  );
  await client.query(
    `INSERT INTO tidemill.task_tally (queue, priority, amount)
     SELECT queue, 5, count(*) FROM tidemill.tasks WHERE id > $1 GROUP BY queue`,
    [live],
  );
  const died = await next(dead);
  await client.query(
    `INSERT INTO tidemill.dead_letters
            (id, created_at, run_at, claim_order, lease_generation, lane, attempt, max_attempts,
             losses, priority, tenant, queue, payload, cause, reason)
     SELECT $1 + n, NOW(), NOW(), $1 + n, 5, 1, 5, 5, 0, 5, '${TENANT}',
            'queue_' || n % ${QUEUES}, '{"order": ' || n || '}', 'attempts_exhausted',
            'order ' || n || ' failed at step ' || chr(65 + n % 26)
       FROM generate_series(1, $2::int) AS n`,
    [died, dead],
  );
  return { task: String(ended + Math.floor(history / 2)), dead: String(died + 1) };
}

/** What grows slowly. */
async function fillRest(client: pg.Client): Promise<void> {
  await client.query(
    `INSERT INTO tidemill.audit_log
            (act, call, target, tenant, subject, token_id, request_id, status)
     SELECT 'queue.change', 'POST /v1/queues/:name/pause', '{"name": "mails"}', '${TENANT}', 'ada',
            'token', n::text, 200
       FROM generate_series(1, 100000) AS n`,
  );
  await client.query(
    `INSERT INTO tidemill.parked_streams (consumer_name, stream_type, stream_id, state, error)
     SELECT 'mails', 'order', n::text, 'parked', 'order ' || n || ' has no customer'
       FROM generate_series(1, 2000) AS n`,
  );
  await client.query(
    `INSERT INTO tidemill.parked_events (consumer_name, global_position, stream_type, stream_id)
     SELECT 'mails', n, 'order', (n % 2000 + 1)::text FROM generate_series(1, 20000) AS n`,
  );
  await client.query(
    `INSERT INTO tidemill.consumer_gap_skips
            (consumer_name, worker_id, gap_position, skip_to_position, highest_visible_position,
             first_seen_at, created_at)
     SELECT 'orders', gen_random_uuid(), n, n, n, NOW(), NOW() - make_interval(secs => n)
       FROM generate_series(1, 100000) AS n`,
  );
  await client.query("VACUUM ANALYZE");
}
