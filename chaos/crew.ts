import { setTimeout as delay } from "node:timers/promises";
import type pg from "pg";
import { LEASE_SECONDS } from "./scene.ts";

/* What the tables say of workers, for faults that wait for it. */

const LOOK_MS = 50;

/** Asks again and again until it is so, or so long. */
async function until(isSo: () => Promise<boolean>, timeoutMs: number): Promise<boolean> {
  const deadlineMs = performance.now() + timeoutMs;
  while (performance.now() < deadlineMs) {
    if (await isSo()) return true;
    await delay(LOOK_MS);
  }
  return false;
}

const AT_WORK = `
  SELECT count(*)::int AS count
    FROM tidemill.worker_info AS info
   WHERE info.worker_id = ANY ($1) AND info.status = 'active'
     AND (EXISTS (SELECT FROM tidemill.consumer_assignments AS one
                   WHERE one.worker_id = info.worker_id)
       OR EXISTS (SELECT FROM tidemill.bucket_owners AS one
                   WHERE one.worker_id = info.worker_id)
       OR EXISTS (SELECT FROM tidemill.live_tasks AS one
                   WHERE one.leased_by = info.worker_id AND one.state = 'running'))`;

/** Until all of them have registered and been given something, or so long: how many had been. */
export async function untilAtWork(
  client: pg.ClientBase,
  workers: () => readonly (string | null)[],
  timeoutMs: number,
): Promise<number> {
  let most = 0;
  await until(async () => {
    const ids = workers();
    const { rows } = await client.query<{ count: number }>(AT_WORK, [ids]);
    most = Math.max(most, rows[0]?.count ?? 0);
    return most >= ids.length;
  }, timeoutMs);
  return most;
}

const STALE = `
  SELECT count(*)::int AS count FROM tidemill.live_tasks
   WHERE leased_by = $1 AND state = 'running'
     AND lease_until < NOW() + make_interval(secs => $2)`;

/**
 * Until it renews all that it holds, or so long. What it was never told of, because an answer was
 * lost, is taken from it, and not by what happens next.
 */
export async function untilRenewed(
  client: pg.ClientBase,
  worker: string,
  timeoutMs: number,
): Promise<void> {
  await until(async () => {
    const { rows } = await client.query<{ count: number }>(STALE, [worker, LEASE_SECONDS / 2]);
    return rows[0]?.count === 0;
  }, timeoutMs);
}

const LEADS = `
  SELECT FROM tidemill.leader_term AS term
    JOIN tidemill.worker_info AS info ON info.worker_id = term.leader_id
   WHERE info.worker_id = $1 AND info.status = 'active'`;
const IS_THERE = "SELECT FROM tidemill.worker_info WHERE worker_id = $1 AND status = 'active'";
// The lead is a lock of a session.
const END_LEAD = `
  SELECT pg_terminate_backend(activity.pid)
    FROM pg_stat_activity AS activity JOIN pg_locks AS lock USING (pid)
   WHERE activity.application_name LIKE '% leader'
     AND lock.locktype = 'advisory' AND lock.granted`;
/** Somebody leads again by then. */
const TERM_MS = 500;

/** Ends the lead of others until it leads, or so long. */
export async function untilLeads(
  client: pg.ClientBase,
  worker: string,
  timeoutMs: number,
): Promise<boolean> {
  const holds = async (text: string): Promise<boolean> =>
    (await client.query(text, [worker])).rowCount !== 0;
  let triedAtMs = -Infinity;
  return await until(async () => {
    if (await holds(LEADS)) return true;
    if (performance.now() - triedAtMs < TERM_MS || !(await holds(IS_THERE))) return false;
    await client.query(END_LEAD);
    triedAtMs = performance.now();
    return false;
  }, timeoutMs);
}

/** Until a schedule has fired so often, or so long. */
export async function untilFired(
  client: pg.ClientBase,
  times: number,
  timeoutMs: number,
): Promise<void> {
  const count = async (): Promise<number> => {
    const text = "SELECT count(*)::int AS count FROM chaos.firings";
    return (await client.query<{ count: number }>(text)).rows[0]?.count ?? 0;
  };
  const before = await count();
  await until(async () => (await count()) >= before + times, timeoutMs);
}
