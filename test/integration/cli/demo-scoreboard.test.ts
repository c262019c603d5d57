import type pg from "pg";
import { beforeAll, describe, expect, it } from "vitest";
import { demoConsumers } from "../../../src/cli/demo/consumers.ts";
import { demoHandlers } from "../../../src/cli/demo/handlers.ts";
import { Ledger } from "../../../src/cli/demo/ledger.ts";
import { takeOrders } from "../../../src/cli/demo/producer.ts";
import { type Score, Scoreboard } from "../../../src/cli/demo/scoreboard.ts";
import { labelsTo } from "../../../src/cli/demo/shop.ts";
import { createDemoTables, type DemoNames } from "../../../src/cli/sql/demo.ts";
import type { Tidemill } from "../../../src/index.ts";
import { type TestDatabase, testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { STEADY } from "./cli.ts";

const NAMES: DemoNames = {
  schema: "tidemill_demo",
  mill: "tidemill",
  events: "tidemill.events",
  checkpoints: "tidemill.consumer_checkpoints",
  streamType: "stream_type",
  streamId: "stream_id",
};
/** Few at a time, so that orders come to their end. */
const RATE = 200;
const EVENTS = 100;

let database: TestDatabase;
let pool: pg.Pool;
let mill: Tidemill;
let board: Scoreboard;
let ledger: Ledger;

/** A shop that took some orders and has done everything that it could: nobody makes labels. */
beforeAll(async () => {
  database = await testDatabase({ until: "file" });
  ({ pool } = database);
  mill = await database.connect();
  await mill.transaction((tx) => createDemoTables(tx, NAMES));
  ledger = new Ledger();
  board = await Scoreboard.open(mill, NAMES, ledger);
  const labels = labelsTo("http://127.0.0.1:9/labels");
  await mill.queues.define(labels);
  const enough = new AbortController();
  const rate = (): number => {
    if (ledger.counts.events >= EVENTS) enough.abort();
    return RATE;
  };
  const failures: unknown[] = [];
  const onFailure = (error: unknown): void => {
    failures.push(error);
    enough.abort();
  };
  await takeOrders(mill, { rate, labels, ledger, onFailure }, enough.signal);
  expect(failures).toEqual([]);
  await mill.startWorker({
    ...STEADY,
    concurrency: 50,
    consumers: demoConsumers(NAMES),
    handlers: demoHandlers({ mill, names: NAMES, onLetter: () => {}, onRefused: () => {} }),
  });
  const { rows } = await pool.query<{ waiting: number }>(
    "SELECT count(*)::int AS waiting FROM tidemill.live_tasks WHERE queue = 'labels'",
  );
  const done = ledger.counts.tasks - (rows[0]?.waiting ?? 0);
  await eventually(async () => {
    expect(await judged()).toMatchObject({ eventsDone: ledger.counts.events, tasksDone: done });
  });
});

async function judged(): Promise<Score> {
  await board.judge();
  return board.score;
}

const CLEAN = { lost: 0, doubled: 0, outOfOrder: 0, findings: [] };

/** Looks twice: what was found counts once. */
async function expectScore(expected: Partial<Score>): Promise<void> {
  await judged();
  const { lost, doubled, outOfOrder, findings } = await judged();
  const nothing = { lost: 0, doubled: 0, outOfOrder: 0 };
  expect({ lost, doubled, outOfOrder }, findings.join("\n")).toEqual({ ...nothing, ...expected });
}

/** One shop for all: what is found in one test is still found in the next. */
describe("the scoreboard", () => {
  it("is clean when nothing went wrong, whatever people add by hand", async () => {
    const stream = { type: "Order", id: "mine" };
    await mill.append(stream, [{ type: "OrderPlaced", data: { name: "mine" } }]);
    await mill.append(stream, [{ type: "OrderPaid", data: { name: "mine" } }]);
    for (const payload of [{ name: "mine" }, { name: "mine" }, null, "text"]) {
      await mill.enqueue("receipts", payload, { partitionKey: "mine" });
    }
    await mill.enqueue("receipts", new Uint8Array([1, 2, 3]));
    await eventually(async () => {
      const { rows } = await pool.query("SELECT FROM tidemill.live_tasks WHERE queue <> 'labels'");
      expect(rows).toEqual([]);
    });
    expect(await judged()).toMatchObject(CLEAN);
  });

  it("forgives a consumer that somebody rewound, and watches it again from there", async () => {
    await mill.consumers.rewind("order_view", { to: 0n });
    await eventually(async () => {
      const { checkpoint } = await mill.consumers.progress("order_view");
      expect(checkpoint).toBeGreaterThanOrEqual(await mill.latestPosition());
    });
    const { moved } = await board.judge();
    expect(moved).toMatchObject([{ consumer: "order_view", action: "rewind" }]);
    expect(board.score).toMatchObject(CLEAN);
    const { position } = await mill.append({ type: "Order", id: "late" }, [{ type: "OrderPaid" }]);
    await mill.waitFor("order_view", { position });
    await mill.waitFor("revenue", { position });
    await mill.waitFor("shipping", { position });
    await pool.query("INSERT INTO tidemill_demo.handled (consumer, position) VALUES ($1, $2)", [
      "order_view",
      String(position),
    ]);
    await expectScore({ doubled: 1 });
  });

  it("counts what is lost, doubled and out of order, each once", async () => {
    await pool.query(
      `DELETE FROM tidemill.tasks
        WHERE id = (SELECT min(id) FROM tidemill.tasks WHERE queue = 'labels')`,
    );
    await expectScore({ doubled: 1, lost: 1 }); // A task that was promised.
    const [gone, again] = await receipts();
    await pool.query("DELETE FROM tidemill_demo.effects WHERE task_id = $1", [gone]);
    await expectScore({ doubled: 1, lost: 2 }); // A completion without its effect.
    await pool.query(
      `DELETE FROM tidemill_demo.handled
        WHERE position = (SELECT max(position) FROM tidemill_demo.handled)
          AND consumer = 'order_view'`,
    );
    await expectScore({ doubled: 1, lost: 3 }); // An event that a consumer passed.

    await pool.query(
      `INSERT INTO tidemill_demo.effects
              (task_id, queue, name, order_id, generation, claim_id, started_at)
       SELECT task_id, queue, name, order_id, generation + 1, gen_random_uuid(), clock_timestamp()
         FROM tidemill_demo.effects WHERE task_id = $1`,
      [again],
    );
    // Of somebody without a lease, and one too many.
    await expectScore({ lost: 3, doubled: 3 });
    await pool.query(
      `INSERT INTO tidemill_demo.handled (consumer, position)
       SELECT 'revenue', min(position) FROM tidemill_demo.handled WHERE consumer = 'revenue'`,
    );
    await expectScore({ lost: 3, doubled: 4 });

    await refundBeforeReceipt();
    await expectScore({ lost: 3, doubled: 4, outOfOrder: 1 });
  });
});

/** Tasks of receipts that were written. */
async function receipts(): Promise<string[]> {
  const { rows } = await pool.query<{ task: string }>(
    `SELECT task_id::text AS task FROM tidemill_demo.effects
      WHERE queue = 'receipts' ORDER BY seq DESC`,
  );
  expect(rows.length).toBeGreaterThan(1);
  return rows.map(({ task }) => task);
}

/** An order of which the tables say that it was refunded an hour ago, and has a receipt now. */
async function refundBeforeReceipt(): Promise<void> {
  const order = "late-receipt";
  for (const queue of ["receipts", "refunds"]) {
    const name = `${ledger.run}${order}/${queue}`;
    const { id } = await mill.enqueue(queue, { name }, { partitionKey: order });
    const keys = [order];
    const told = { op: "enqueue", phase: "ok", queue, names: [name], ids: [id], keys } as const;
    ledger.add(order, [told], { isOver: queue === "refunds" });
  }
  await eventually(async () => {
    const { rowCount } = await pool.query("SELECT FROM tidemill_demo.effects WHERE order_id = $1", [
      order,
    ]);
    expect(rowCount).toBe(2);
  });
  const before = await judged();
  expect(before.outOfOrder).toBe(0);
  await pool.query(
    `UPDATE tidemill_demo.effects
        SET at = at - interval '1 hour', started_at = started_at - interval '1 hour'
      WHERE order_id = $1 AND queue = 'refunds'`,
    [order],
  );
}
