import { setTimeout as delay } from "node:timers/promises";
import type pg from "pg";
import { PARKING, PARTITION_NAME } from "./scene.ts";

const PLACES = `
  SELECT consumer_name AS name, last_position::int AS position
    FROM tidemill.consumer_checkpoints`;
const LOOK_MS = 50;

/** Where every consumer is. One that sets streams aside may stand still for other reasons. */
async function placesOf(client: pg.ClientBase): Promise<Map<string, number>> {
  const { rows } = await client.query<{ name: string; position: number }>(PLACES);
  const steady = rows.filter(({ name }) => name.replace(PARTITION_NAME, "$1") !== PARKING);
  return new Map(steady.map(({ name, position }) => [name, position]));
}

/**
 * Until every consumer has moved, or so long. That some work goes on after a fault is judged; that
 * all of it does keeps the next fault from being judged by what the one before left behind.
 */
export async function untilAllMove(client: pg.ClientBase, timeoutMs: number): Promise<void> {
  const before = await placesOf(client);
  const deadlineMs = performance.now() + timeoutMs;
  while (performance.now() < deadlineMs) {
    const now = await placesOf(client);
    if ([...before].every(([name, position]) => (now.get(name) ?? 0) > position)) return;
    await delay(LOOK_MS);
  }
}
