import { expect } from "vitest";
import {
  type Consumer,
  type ConsumerOptions,
  consumer,
  type EventHandler,
  type RebuildStatus,
  type Tidemill,
} from "../../../src/index.ts";
import { type TestDatabase, testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { STEADY } from "./handled.ts";

// Names that a copy by LIKE would lose, a key that leads from one table to the other, a sequence.
export const TABLES = `
  CREATE TABLE order_view (
    id       TEXT CONSTRAINT order_view_key PRIMARY KEY,
    customer TEXT NOT NULL,
    cents    INT NOT NULL CONSTRAINT order_view_cents CHECK (cents >= 0),
    events   INT NOT NULL
  ) WITH (fillfactor = 70);
  CREATE INDEX orders_by_customer ON order_view (customer, cents);
  CREATE TABLE order_lines (
    line     BIGSERIAL,
    position BIGINT PRIMARY KEY,
    order_id TEXT NOT NULL CONSTRAINT lines_of_order REFERENCES order_view (id),
    cents    INT NOT NULL
  );`;

export const VIEW = "order_view_v1";
export const TABLE_NAMES = ["order_view", "public.order_lines"];

/** Adds up, so that an event that is handled twice, or not at all, shows in the sums. */
export const project: EventHandler = async (event, { tx, table }) => {
  const { customer, cents } = event.data as { customer: string; cents: number };
  await tx.query(
    `INSERT INTO order_view AS one (id, customer, cents, events) VALUES ($1, $2, $3, 1)
         ON CONFLICT ON CONSTRAINT order_view_key DO UPDATE
        SET cents = one.cents + excluded.cents, events = one.events + 1`,
    [event.streamId, customer, cents],
  );
  await tx.query(
    `INSERT INTO ${table("order_lines")} (position, order_id, cents) VALUES ($1, $2, $3)`,
    [String(event.position), event.streamId, cents],
  );
};

/** The same with a bug: it counts every cent twice. */
export const projectWrongly: EventHandler = async (event, context) => {
  await project(event, context);
  await context.tx.query("UPDATE order_view SET cents = cents * 2 WHERE id = $1", [event.streamId]);
};

export const orderView = (
  handle: EventHandler = project,
  options: Partial<ConsumerOptions> = {},
): Consumer => consumer(VIEW, { tables: TABLE_NAMES, handle, ...options });

export interface RebuildScene {
  readonly database: TestDatabase;
  readonly mill: Tidemill;
}

export async function rebuildScene(): Promise<RebuildScene> {
  const database = await testDatabase();
  await database.pool.query(TABLES);
  return { database, mill: await database.connect() };
}

const STREAMS = 10;

/** One cent each, over ten orders of three customers. */
export async function appendOrders(mill: Tidemill, count: number): Promise<bigint> {
  let last = 0n;
  for (let at = 0; at < count; at += STREAMS) {
    const many = Array.from({ length: Math.min(STREAMS, count - at) }, (_, id) =>
      mill.append({ type: "Order", id: `order-${id}` }, [
        { type: "OrderPaid", data: { customer: `customer-${id % 3}`, cents: 1 } },
      ]),
    );
    for (const { position } of await Promise.all(many)) if (position > last) last = position;
  }
  return last;
}

export interface Sums {
  readonly cents: number;
  readonly events: number;
  readonly lines: number;
}

export async function sumsOf({ pool }: TestDatabase, schema = "public"): Promise<Sums> {
  const { rows } = await pool.query<Sums>(
    `SELECT (SELECT COALESCE(sum(cents), 0)::int FROM ${schema}.order_view) AS cents,
            (SELECT COALESCE(sum(events), 0)::int FROM ${schema}.order_view) AS events,
            (SELECT count(*)::int FROM ${schema}.order_lines) AS lines`,
  );
  return rows[0]!;
}

/** What there must be when each of so many events was handled once, by a handler without a bug. */
export const once = (events: number): Sums => ({ cents: events, events, lines: events });

export async function eventuallyBuilt(mill: Tidemill, name = VIEW): Promise<RebuildStatus> {
  const head = await mill.latestPosition();
  return await eventually(async () => {
    const status = await mill.consumers.rebuilds.status(name);
    expect(status.progress?.error).toBeUndefined();
    expect(status.progress?.position ?? 0n).toBeGreaterThanOrEqual(head);
    return status;
  });
}

export async function schemasOf({ pool }: TestDatabase): Promise<string[]> {
  const { rows } = await pool.query<{ nspname: string }>(
    "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'tidemill\\_%' ORDER BY nspname",
  );
  return rows.map((row) => row.nspname);
}

/** Orders handled by a worker that is gone, and one that runs now. */
export async function builtScene(count = 60): Promise<RebuildScene> {
  const scene = await rebuildScene();
  await appendOrders(scene.mill, count);
  await scene.mill.startWorker({ ...STEADY, consumers: [orderView()] });
  await scene.mill.waitFor(VIEW, { position: await scene.mill.latestPosition() });
  return scene;
}
