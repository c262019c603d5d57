import type { ConsumerTx } from "../../consumers/consumer.ts";
import type { SqlExecutor } from "../../db/executor.ts";
import type { PersistedEvent } from "../../events/event.ts";
import type { LeaseToken } from "../../tasks/task.ts";

/** Quoted names: of the demo's own tables, and of those that it is checked against. */
export interface DemoNames {
  readonly schema: string;
  /** Of Tidemill's own tables. */
  readonly mill: string;
  readonly events: string;
  readonly checkpoints: string;
  readonly streamType: string;
  readonly streamId: string;
}

/**
 * Tables as an application would have them, and two that tell what was done: `handled` for events
 * and `effects` for tasks. Those have no unique key, so that what happens twice is two rows.
 */
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
  await tx.query(`CREATE TABLE IF NOT EXISTS ${schema}.reports (
      at           TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(),
      orders       BIGINT NOT NULL,
      amount_cents BIGINT NOT NULL
  )`);
  await tx.query(`CREATE TABLE IF NOT EXISTS ${schema}.handled (
      seq      BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
      consumer TEXT NOT NULL,
      position BIGINT NOT NULL
  )`);
  await tx.query(`CREATE INDEX IF NOT EXISTS handled_position_idx ON ${schema}.handled (position)`);
  await tx.query(`CREATE TABLE IF NOT EXISTS ${schema}.effects (
      seq        BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
      task_id    BIGINT NOT NULL,
      queue      TEXT NOT NULL,
      name       TEXT NOT NULL,
      order_id   TEXT,
      generation INT NOT NULL,
      claim_id   UUID NOT NULL,
      started_at TIMESTAMPTZ NOT NULL,
      at         TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp()
  )`);
  await tx.query(`CREATE INDEX IF NOT EXISTS effects_order_idx ON ${schema}.effects (order_id)`);
  await tx.query(`CREATE INDEX IF NOT EXISTS effects_task_idx ON ${schema}.effects (task_id)`);
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

/** In the transaction of the handler, so there are as many rows as there were effects. */
export async function saveHandled(
  tx: ConsumerTx,
  { names, event }: Handled,
  consumer: string,
): Promise<void> {
  await tx.query(`INSERT INTO ${names.schema}.handled (consumer, position) VALUES ($1, $2)`, [
    consumer,
    String(event.position),
  ]);
}

/** What a task did, by which claim. */
export interface Effect {
  readonly queue: string;
  readonly name: string;
  readonly order: string | undefined;
  readonly token: LeaseToken;
  /** By the clock of the database, as it told. */
  readonly startedAt: string;
}

export async function saveEffect(tx: SqlExecutor, names: DemoNames, made: Effect): Promise<void> {
  const { queue, name, order, token, startedAt } = made;
  await tx.query(
    `INSERT INTO ${names.schema}.effects
            (task_id, queue, name, order_id, generation, claim_id, started_at)
     VALUES ($1, $2, $3, $4, $5, $6, $7)`,
    [token.taskId, queue, name, order ?? null, token.generation, token.claimId, startedAt],
  );
}

/** The time by the clock of the database, in all its digits. */
export async function readNow(tx: SqlExecutor): Promise<string> {
  const { rows } = await tx.query("SELECT clock_timestamp()::text AS now");
  return (rows[0] as { now: string }).now;
}

/** What the shop earned so far, written down. */
export async function saveReport(tx: SqlExecutor, { schema }: DemoNames): Promise<void> {
  await tx.query(
    `INSERT INTO ${schema}.reports (orders, amount_cents)
     SELECT COALESCE(sum(orders), 0), COALESCE(sum(amount_cents), 0) FROM ${schema}.revenue`,
  );
}
