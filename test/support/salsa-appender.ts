import { randomUUID } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import type pg from "pg";
import { headsTable, type SalsaFamily } from "./salsa-schema.ts";

export interface SalsaAppend {
  readonly streamType: string;
  readonly streamId: string;
  readonly count: number;
  /** "events-first" draws positions before the head row is written, as older stores did. */
  readonly order?: "head-first" | "events-first";
  /** Defaults to "commit". */
  readonly end?: "commit" | "rollback";
}

/**
 * Appends with the statements of eventsalsa/store's `Any()`: the head reserves the versions, then
 * one INSERT per event. Returns the positions, which nobody will ever see after a rollback.
 */
export async function salsaAppend(
  client: pg.Client,
  family: SalsaFamily,
  append: SalsaAppend,
): Promise<bigint[]> {
  const { streamType, streamId, count, order = "head-first", end = "commit" } = append;
  const stream = [streamType, streamId];
  await client.query("BEGIN");
  let first: bigint;
  let positions: bigint[];
  if (order === "head-first") {
    first = (await upsertHead(client, family, stream, count)) - BigInt(count) + 1n;
    positions = await insertEvents(client, family, stream, { first, count });
  } else {
    first = (await readHead(client, family, stream)) + 1n;
    positions = await insertEvents(client, family, stream, { first, count });
    await upsertHead(client, family, stream, count);
  }
  await client.query(end === "commit" ? "COMMIT" : "ROLLBACK");
  return positions;
}

async function upsertHead(
  client: pg.Client,
  family: SalsaFamily,
  stream: readonly string[],
  count: number,
): Promise<bigint> {
  const { rows } = await client.query<{ version: string }>(
    `INSERT INTO ${headsTable(family)} AS h (${family}_type, ${family}_id, ${family}_version,
                                             updated_at)
     VALUES ($1, $2, $3, NOW())
     ON CONFLICT (${family}_type, ${family}_id) DO UPDATE
       SET ${family}_version = h.${family}_version + $3, updated_at = NOW()
     RETURNING ${family}_version AS version`,
    [...stream, count],
  );
  return BigInt(rows[0]!.version);
}

async function readHead(
  client: pg.Client,
  family: SalsaFamily,
  stream: readonly string[],
): Promise<bigint> {
  const { rows } = await client.query<{ version: string }>(
    `SELECT ${family}_version AS version FROM ${headsTable(family)}
      WHERE ${family}_type = $1 AND ${family}_id = $2`,
    [...stream],
  );
  return BigInt(rows[0]?.version ?? 0);
}

async function insertEvents(
  client: pg.Client,
  family: SalsaFamily,
  stream: readonly string[],
  { first, count }: { readonly first: bigint; readonly count: number },
): Promise<bigint[]> {
  const positions: bigint[] = [];
  for (let index = 0; index < count; index += 1) {
    const { rows } = await client.query<{ global_position: string }>(
      `INSERT INTO events (${family}_type, ${family}_id, ${family}_version, event_id, event_type,
                           event_version, payload, trace_id, correlation_id, causation_id,
                           metadata, created_at)
       VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
       RETURNING global_position`,
      [
        ...stream,
        String(first + BigInt(index)),
        randomUUID(),
        `${stream[0]}Changed`,
        1,
        Buffer.from([0x00, 0xff, index]),
        null,
        index === 0 ? "correlated" : null,
        null,
        index === 0 ? '{"by":"salsa"}' : null,
        new Date(),
      ],
    );
    positions.push(BigInt(rows[0]!.global_position));
  }
  return positions;
}

/** Repeats `work` with a rest in between until it is stopped, as a busy application does. */
export function steadily(
  everyMs: number,
  work: (turn: number) => Promise<unknown>,
): { stop(): Promise<void> } {
  const stopping = new AbortController();
  const run = async (): Promise<void> => {
    for (let turn = 1; !stopping.signal.aborted; turn += 1) {
      await work(turn);
      await delay(everyMs);
    }
  };
  const running = run();
  running.catch(() => {}); // Reported by stop().
  return {
    stop: async () => {
      stopping.abort();
      await running;
    },
  };
}
