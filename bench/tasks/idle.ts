import { setTimeout as pause } from "node:timers/promises";
import type pg from "pg";
import type { Figure } from "../support/figure.ts";
import { withClient } from "../support/server.ts";
import { type Contest, settingsOf } from "./comparison.ts";
import { Session } from "./session.ts";

/** Servers tell of transactions up to ten seconds late: those of the start must not count. */
const SETTLE_MS = 15_000;
/** Twice the longest rest of a loop, so that chance does not decide how many turns count. */
const COUNTED_MS = 60_000;
const LOOK_MS = 50;

/** Transactions that workers with nothing to do cause: of the leader, and of another one. */
export async function idleFigure(contest: Contest): Promise<Figure> {
  await using session = await Session.open(contest.stage, contest.ours, { purpose: "throughput" });
  // Watched from another database, so that our own statements are not counted.
  const elsewhere = new URL(session.url);
  elsewhere.pathname = "/postgres";
  const [leading, both] = await withClient(elsewhere.href, async (watch) => {
    await session.startWorker();
    await until(session.url, "SELECT leader_id IS NOT NULL AS done FROM tidemill.leader_term");
    const alone = await transactionsPerSecond(watch, session.url);
    await session.startWorker();
    await until(session.url, "SELECT count(*) = 2 AS done FROM tidemill.worker_nodes");
    return [alone, await transactionsPerSecond(watch, session.url)];
  });
  return {
    figure: "tasks.idle_statements_per_s",
    value: leading,
    unit: "transactions/s of the worker that leads",
    settings: {
      ...settingsOf(contest),
      processes: "one worker, then two",
      countedMs: COUNTED_MS,
      leading,
      notLeading: both - leading,
      both,
    },
  };
}

async function transactionsPerSecond(watch: pg.Client, url: string): Promise<number> {
  await pause(SETTLE_MS);
  const before = await transactions(watch, url);
  await pause(COUNTED_MS);
  const after = await transactions(watch, url);
  return ((after.count - before.count) / (after.atMs - before.atMs)) * 1000;
}

async function transactions(
  watch: pg.Client,
  url: string,
): Promise<{ count: number; atMs: number }> {
  const { rows } = await watch.query<{ count: string; at_ms: number }>(
    `SELECT xact_commit + xact_rollback AS count,
            extract(epoch FROM now())::float8 * 1000 AS at_ms
       FROM pg_stat_database
      WHERE datname = $1`,
    [new URL(url).pathname.slice(1)],
  );
  return { count: Number(rows[0]?.count), atMs: rows[0]?.at_ms ?? Number.NaN };
}

async function until(url: string, question: string): Promise<void> {
  await withClient(url, async (client) => {
    const deadline = performance.now() + 60_000;
    while (performance.now() < deadline) {
      const { rows } = await client.query<{ done: boolean }>(question);
      if (rows[0]?.done === true) return;
      await pause(LOOK_MS);
    }
    throw new Error(`never came true: ${question}`);
  });
}
