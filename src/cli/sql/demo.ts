import type { ConsumerTx } from "../../consumers/consumer.ts";
import type { SqlExecutor } from "../../db/executor.ts";
import type { PersistedEvent } from "../../events/event.ts";

/** Quoted names of the demo's own tables and of the log it is checked against. */
export interface DemoNames {
  readonly schema: string;
  readonly events: string;
  readonly streamType: string;
}

/** Tables as an application would have them, and a receipt for each event that was handled. */
export async function createDemoTables(tx: SqlExecutor, { schema }: DemoNames): Promise<void> {
  // Two programs that start at once would both find the schema missing.
  await tx.query("SELECT pg_advisory_xact_lock(hashtextextended('tidemill demo', 0))");
  await tx.query(`CREATE SCHEMA IF NOT EXISTS ${schema}`);
  await tx.query(`CREATE TABLE IF NOT EXISTS ${schema}.order_view (
      order_id     TEXT PRIMARY KEY,
      status       TEXT NOT NULL,
      amount_cents BIGINT NOT NULL,
      updated_at   TIMESTAMPTZ NOT NULL
  )`);
  await tx.query(`CREATE TABLE IF NOT EXISTS ${schema}.revenue (
      day          DATE PRIMARY KEY,
      orders       BIGINT NOT NULL,
      amount_cents BIGINT NOT NULL
  )`);
  await tx.query(`CREATE TABLE IF NOT EXISTS ${schema}.shipments (
      order_id   TEXT PRIMARY KEY,
      carrier    TEXT NOT NULL,
      shipped_at TIMESTAMPTZ NOT NULL
  )`);
  await tx.query(`CREATE TABLE IF NOT EXISTS ${schema}.receipts (
      consumer TEXT NOT NULL,
      position BIGINT NOT NULL
  )`);
}

export interface Handled {
  readonly names: DemoNames;
  readonly event: PersistedEvent;
  readonly amountCents: number;
}

export async function saveOrder(
  tx: ConsumerTx,
  { names, event, amountCents }: Handled,
  status: string,
): Promise<void> {
  await tx.query(
    `INSERT INTO ${names.schema}.order_view AS view (order_id, status, amount_cents, updated_at)
     VALUES ($1, $2, $3, $4)
         ON CONFLICT (order_id) DO UPDATE
        SET status       = excluded.status,
            amount_cents = GREATEST(view.amount_cents, excluded.amount_cents),
            updated_at   = excluded.updated_at`,
    [event.streamId, status, amountCents, event.createdAt],
  );
}

export async function addRevenue(
  tx: ConsumerTx,
  { names, event, amountCents }: Handled,
): Promise<void> {
  await tx.query(
    `INSERT INTO ${names.schema}.revenue AS total (day, orders, amount_cents)
     VALUES ($1::timestamptz::date, 1, $2)
         ON CONFLICT (day) DO UPDATE
        SET orders       = total.orders + 1,
            amount_cents = total.amount_cents + excluded.amount_cents`,
    [event.createdAt, amountCents],
  );
}

export async function saveShipment(
  tx: ConsumerTx,
  { names, event }: Handled,
  carrier: string,
): Promise<void> {
  await tx.query(
    `INSERT INTO ${names.schema}.shipments (order_id, carrier, shipped_at)
     VALUES ($1, $2, $3)
         ON CONFLICT (order_id) DO NOTHING`,
    [event.streamId, carrier, event.createdAt],
  );
}

/** In the transaction of the handler, so there are as many receipts as there were effects. */
export async function saveReceipt(
  tx: ConsumerTx,
  { names, event }: Handled,
  consumer: string,
): Promise<void> {
  await tx.query(`INSERT INTO ${names.schema}.receipts (consumer, position) VALUES ($1, $2)`, [
    consumer,
    String(event.position),
  ]);
}

export interface Count {
  readonly events: number;
  readonly missed: number;
  readonly repeated: number;
}

export interface CountRequest {
  readonly consumer: string;
  readonly streamType: string;
  readonly eventTypes: readonly string[];
  /** Exclusive. */
  readonly after: bigint;
  readonly upTo: bigint;
}

/** Compares the log with the receipts of one consumer. */
export async function countReceipts(
  tx: SqlExecutor,
  names: DemoNames,
  request: CountRequest,
): Promise<Count> {
  const { consumer, streamType, eventTypes, after, upTo } = request;
  const { rows } = await tx.query(
    `SELECT count(*)::int AS events,
            count(*) FILTER (WHERE receipt.times IS NULL)::int AS missed,
            count(*) FILTER (WHERE receipt.times > 1)::int AS repeated
       FROM ${names.events} AS event
       LEFT JOIN (SELECT position, count(*) AS times
                    FROM ${names.schema}.receipts
                   WHERE consumer = $1 AND position > $4 AND position <= $5
                   GROUP BY position) AS receipt
         ON receipt.position = event.global_position
      WHERE event.global_position > $4
        AND event.global_position <= $5
        AND event.${names.streamType} = $2
        AND event.event_type = ANY($3::text[])`,
    [consumer, streamType, [...eventTypes], String(after), String(upTo)],
  );
  return rows[0] as Count;
}
