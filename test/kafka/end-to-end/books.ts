import { readFileSync } from "node:fs";
import type { TestDatabase } from "../../support/database.ts";
import type { AnswerRecord, CallRecord } from "../../support/job-target.ts";
import type { Change } from "./watcher.ts";

/** How an attempt went that did not complete its task. */
export interface Failure {
  readonly outcome: string;
  readonly reason: string;
}

/** A call by its target's record. */
export interface Call extends CallRecord {
  /** Undefined: it was not answered. */
  status: number | undefined;
}

/** One job: what the database says of its task, and what its target says. */
export interface Entry {
  readonly id: string;
  readonly n: number;
  readonly state: string;
  readonly attempt: number;
  readonly failures: Map<number, Failure[]>;
  readonly calls: Map<number, Call[]>;
}

/** Everything that the database has, and everything that the target wrote. */
export async function readBooks(
  { pool }: TestDatabase,
  record: string,
): Promise<{ readonly entries: Map<string, Entry>; readonly strays: number }> {
  const { rows: tasks } = await pool.query<Pick<Entry, "id" | "n" | "state" | "attempt">>(
    `SELECT id::text, state, attempt, (payload::jsonb->>'n')::int AS n
       FROM (SELECT id, state, attempt, payload FROM tidemill.live_tasks
              UNION ALL
             SELECT id, state, attempt, payload FROM tidemill.task_history
              UNION ALL
             SELECT id, 'dead', attempt, payload FROM tidemill.dead_letters) AS task`,
  );
  const entries = new Map<string, Entry>();
  for (const task of tasks) {
    entries.set(task.id, { ...task, failures: new Map(), calls: new Map() });
  }
  const { rows: failures } = await pool.query<Failure & { task_id: string; attempt: number }>(
    "SELECT task_id::text, attempt, outcome, reason FROM tidemill.task_failures",
  );
  for (const { task_id: id, attempt, ...failure } of failures) {
    push(entries.get(id)?.failures, attempt, failure);
  }
  return { entries, strays: readRecord(record, entries) };
}

/** Calls of what is no task of ours are strays. */
function readRecord(record: string, entries: ReadonlyMap<string, Entry>): number {
  let strays = 0;
  const lines = readFileSync(record, "utf8").split("\n");
  for (const line of lines) {
    if (line === "") continue;
    const said = JSON.parse(line) as CallRecord | AnswerRecord;
    const calls = entries.get(said.task)?.calls;
    if ("key" in said) {
      if (calls === undefined) strays += 1;
      push(calls, said.attempt, { ...said, status: undefined });
    } else {
      const call = calls?.get(said.attempt)?.findLast(({ status }) => status === undefined);
      if (call === undefined) strays += 1;
      else call.status = said.status;
    }
  }
  return strays;
}

function push<T>(to: Map<number, T[]> | undefined, at: number, item: T): void {
  const known = to?.get(at);
  if (known === undefined) to?.set(at, [item]);
  else known.push(item);
}

/** The feed as it is stored: what every client must have been told, of each task in this order. */
export async function readFeed({ pool }: TestDatabase): Promise<Map<string, Change[]>> {
  const { rows } = await pool.query<Change & { id: string }>(
    `SELECT task.id::text, change.state, change.attempt
       FROM tidemill.feed_changes AS change
      CROSS JOIN LATERAL unnest(COALESCE(change.ids, ARRAY(
              SELECT generate_series(change.first_id, change.last_id)))) WITH ORDINALITY
              AS task(id, place)
      WHERE change.kind = 'task'
      ORDER BY change.position, task.place`,
  );
  const told = new Map<string, Change[]>();
  for (const { id, state, attempt } of rows) {
    const known = told.get(id);
    if (known === undefined) told.set(id, [{ state, attempt }]);
    else known.push({ state, attempt });
  }
  return told;
}
