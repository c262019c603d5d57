import type pg from "pg";
import { expect } from "vitest";
import {
  type Consumer,
  type ConsumerOptions,
  type ConsumerStatus,
  consumer,
  type HandlerContext,
  type PersistedEvent,
  type Tidemill,
} from "../../../src/index.ts";
import type { TestDatabase } from "../../support/database.ts";
import { FAST } from "../../support/options.ts";

/** As fast, for tests in which no worker dies: a machine under load must not look like a death. */
export const STEADY = { ...FAST, heartbeatInterval: 1_000, heartbeatTimeout: 20_000 };

/** Without a unique key, so that an event that is handled twice shows as two rows. */
export async function createHandled({ pool }: TestDatabase): Promise<void> {
  await pool.query(
    `CREATE TABLE handled (
       id       BIGINT GENERATED ALWAYS AS IDENTITY,
       consumer TEXT NOT NULL,
       position BIGINT NOT NULL,
       worker   UUID NOT NULL,
       batch    XID8 NOT NULL DEFAULT pg_current_xact_id()
     )`,
  );
}

export async function recordHandled(event: PersistedEvent, context: HandlerContext): Promise<void> {
  const values = [context.consumer, String(event.position), context.workerId];
  const insert = "INSERT INTO handled (consumer, position, worker) VALUES ($1, $2, $3)";
  await context.tx.query(insert, values);
}

/** A consumer that writes what it handles through its transaction. */
export function recording(name: string, options: Partial<ConsumerOptions> = {}): Consumer {
  return consumer(name, { handle: recordHandled, ...options });
}

export interface HandledRow {
  readonly consumer: string;
  readonly position: bigint;
  readonly worker: string;
  readonly batch: string;
}

/** In the order in which they were handled. */
export async function readHandled(pool: pg.Pool): Promise<HandledRow[]> {
  const { rows } = await pool.query<HandledRow & { position: string }>(
    "SELECT consumer, position, worker, batch::text FROM handled ORDER BY id",
  );
  return rows.map((row) => ({ ...row, position: BigInt(row.position) }));
}

export async function expectOnceInOrder(
  pool: pg.Pool,
  name: string,
  positions: readonly bigint[],
): Promise<void> {
  const rows = (await readHandled(pool)).filter((row) => row.consumer === name);
  expect(rows.map((row) => row.position)).toEqual(positions);
}

/** Appends single events, each to a stream of its own, and returns their positions. */
export async function appendEvents(mill: Tidemill, count: number): Promise<bigint[]> {
  const start = await mill.latestPosition();
  const positions: bigint[] = [];
  for (let index = 0; index < count; index += 1) {
    const stream = { type: "Order", id: `${start}-${index}` };
    positions.push((await mill.append(stream, [{ type: "OrderPlaced" }])).position);
  }
  return positions;
}

/** What `tidemill status` would show of one consumer. */
export async function statusOf(mill: Tidemill, name: string): Promise<ConsumerStatus> {
  const found = (await mill.listConsumers()).find((one) => one.name === name);
  if (found === undefined) throw new Error(`there is no consumer ${name}`);
  return found;
}

export async function readWorkerIds(pool: pg.Pool): Promise<string[]> {
  const { rows } = await pool.query<{ worker_id: string }>(
    "SELECT worker_id FROM tidemill.worker_nodes",
  );
  return rows.map((row) => row.worker_id);
}
