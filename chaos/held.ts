import { setTimeout as delay } from "node:timers/promises";
import type pg from "pg";
import type { Entry, Token } from "../src/checker/history.ts";

const HELD = `
  SELECT id::text, lease_generation AS generation, claim_id AS "claimId"
    FROM tidemill.live_tasks
   WHERE leased_by = $1 AND state = 'running'`;

/** What a worker holds, by the tables. */
export async function heldBy(client: pg.ClientBase, workerId: string): Promise<Token[]> {
  return (await client.query<Token>(HELD, [workerId])).rows;
}

/** What a worker without a database began and was not told the end of, by its history. */
export function begunIn(entries: readonly Entry[]): Token[] {
  const begun = new Map<string, Token>();
  for (const { what } of entries) {
    if (what.op === "start") begun.set(`${what.task.id} ${what.task.claimId}`, what.task);
    else if (what.op === "end") begun.delete(`${what.task.id} ${what.task.claimId}`);
  }
  return [...begun.values()];
}

const STANDING = `
  SELECT task.id::text
    FROM unnest($1::bigint[], $2::int[], $3::uuid[]) AS held(id, generation, claim_id)
    JOIN tidemill.live_tasks AS task ON task.id = held.id
   WHERE task.lease_generation = held.generation
     AND task.claim_id = held.claim_id`;

/** Of what somebody began, what was not taken from it before. */
export async function stillHeld(client: pg.ClientBase, begun: readonly Token[]): Promise<Token[]> {
  const { rows } = await client.query<{ id: string }>(STANDING, tokenValues(begun));
  const standing = new Set(rows.map(({ id }) => id));
  return begun.filter(({ id }) => standing.has(id));
}

const FREE = "SELECT id::text FROM tidemill.tasks WHERE id = ANY ($1) FOR UPDATE SKIP LOCKED";
const ROWS = "SELECT id::text FROM tidemill.tasks WHERE id = ANY ($1)";

/** Of these, the ids of those whose rows somebody has locked. */
export async function lockedOf(client: pg.ClientBase, held: readonly Token[]): Promise<string[]> {
  const ids = held.map(({ id }) => id);
  const free = new Set((await client.query<{ id: string }>(FREE, [ids])).rows.map(({ id }) => id));
  const { rows } = await client.query<{ id: string }>(ROWS, [ids]);
  return rows.map(({ id }) => id).filter((id) => !free.has(id));
}

const tokenValues = (tokens: readonly Token[]): unknown[] => [
  tokens.map(({ id }) => id),
  tokens.map(({ generation }) => generation),
  tokens.map(({ claimId }) => claimId),
];

const LEFT = `
  SELECT count(*)::int AS count
    FROM unnest($1::bigint[], $2::int[], $3::uuid[]) AS held(id, generation, claim_id)
    JOIN tidemill.live_tasks AS task ON task.id = held.id
   WHERE task.lease_generation <= held.generation
     AND (task.state <> 'running' OR task.claim_id = held.claim_id)`;
const LOOK_MS = 100;

/** Until all of them have ended or been claimed anew, or so long. What is late a rule tells. */
export async function untilMoved(
  client: pg.ClientBase,
  held: readonly Token[],
  timeoutMs: number,
): Promise<void> {
  const values = tokenValues(held);
  const deadlineMs = performance.now() + timeoutMs;
  while (performance.now() < deadlineMs) {
    const { rows } = await client.query<{ count: number }>(LEFT, values);
    if (rows[0]?.count === 0) return;
    await delay(LOOK_MS);
  }
}
