import { setTimeout as delay } from "node:timers/promises";
import type pg from "pg";
import type { LeftoverFact } from "../src/checker/truth.ts";
import { BUCKETS } from "../src/cluster/ring.ts";
import { LEASE_SECONDS, WORKER } from "./scene.ts";

/** Sessions of the harness say so. All others are of processes that it started. */
const HARNESS = "chaos";

/** The address under which the harness itself knows the database. */
export function asHarness(url: string): string {
  const named = new URL(url);
  named.searchParams.set("application_name", HARNESS);
  return named.href;
}

const LIVE = `
  SELECT worker_id FROM tidemill.worker_nodes
   WHERE heartbeat_at >= NOW() - make_interval(secs => ${(WORKER.heartbeatTimeout ?? 0) / 1_000})`;

// Of claims that have ended, the ledger is cleaned when their first lease would have ended. Without
// a task it is no claim: it keeps one, whose answer never came, from being made, for a day.
const LEFTOVERS = `
  WITH live AS MATERIALIZED (${LIVE}),
       owned AS (
         SELECT owner.key_space_id, bucket
           FROM tidemill.bucket_owners AS owner CROSS JOIN unnest(owner.buckets) AS bucket)
  SELECT 'bucket' AS kind,
         format('%s buckets of key space %s belong to %s, who does not live',
                cardinality(buckets), key_space_id, worker_id) AS what
    FROM tidemill.bucket_owners WHERE worker_id NOT IN (SELECT worker_id FROM live)
   UNION ALL
  SELECT 'bucket', format('%s of ${BUCKETS} buckets of key space %s have owners, %s in all',
                          count(DISTINCT bucket), key_space_id, count(*))
    FROM owned GROUP BY key_space_id
  HAVING count(DISTINCT bucket) <> ${BUCKETS} OR count(*) <> ${BUCKETS}
   UNION ALL
  SELECT 'consumer', format('%s belongs to %s', consumer_name,
                            COALESCE(worker_id || ', who does not live', 'nobody'))
    FROM tidemill.consumer_assignments
   WHERE worker_id IS NULL OR worker_id NOT IN (SELECT worker_id FROM live)
   UNION ALL
  SELECT 'hold', format('a hold (%s) of key %s', why, partition_key) FROM tidemill.key_holds
   UNION ALL
  SELECT 'grant', format('a grant of %s slots of %s to %s, who does not live',
                         slots, queue, worker_id)
    FROM tidemill.limit_grants WHERE worker_id NOT IN (SELECT worker_id FROM live)
   UNION ALL
  SELECT 'claim', format('claim %s of %s, of %s tasks and the packs %s, that is looked at %s',
                         claim_id, worker_id, cardinality(task_ids), pack_ids,
                         check_at - clock_timestamp())
    FROM tidemill.task_claims WHERE task_ids <> '{}'
   UNION ALL
  SELECT 'prepared transaction', format('the prepared transaction %s', gid)
    FROM pg_prepared_xacts`;

const SESSIONS = `
  SELECT 'session' AS kind,
         format('a session of %s (%s) in %s', COALESCE(NULLIF(application_name, ''), 'somebody'),
                state, datname) AS what
    FROM pg_stat_activity
   WHERE backend_type = 'client backend'
     AND pid <> pg_backend_pid()
     AND application_name <> '${HARNESS}'`;

/** What a lease ends is promised within two seconds of it; what follows, within as long again. */
const SETTLE_MS = 2 * (LEASE_SECONDS + 2) * 1_000;
const LOOK_MS = 200;

/** Looks until nothing is left, or so long. */
async function settle(client: pg.ClientBase, text: string): Promise<LeftoverFact[]> {
  const deadlineMs = performance.now() + SETTLE_MS;
  for (;;) {
    const { rows } = await client.query<LeftoverFact>(text);
    if (rows.length === 0 || performance.now() >= deadlineMs) return rows;
    await delay(LOOK_MS);
  }
}

/** While all workers are there, and nothing is left to do. */
export async function leftoversOf(client: pg.ClientBase): Promise<LeftoverFact[]> {
  return await settle(client, LEFTOVERS);
}

/** Of processes, all of which have ended. */
export async function sessionsLeft(client: pg.ClientBase): Promise<LeftoverFact[]> {
  return await settle(client, SESSIONS);
}
