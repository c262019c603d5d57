import { randomUUID } from "node:crypto";
import { consumer, Tidemill } from "tidemill";

const url = process.env["DATABASE_URL"];
await Tidemill.migrate(url);
await using mill = await Tidemill.connect(url);

await mill.transaction(async (tx) => {
  await tx.query(
    `CREATE TABLE IF NOT EXISTS order_view (
       order_id TEXT PRIMARY KEY,
       customer TEXT NOT NULL,
       cents    BIGINT NOT NULL,
       status   TEXT NOT NULL
     )`,
  );
});

interface OrderPlaced {
  readonly customer: string;
  readonly cents: number;
}

// What the handler writes through `tx` commits together with the consumer's checkpoint, so each
// event changes the view exactly once, whatever crashes in between.
const orderView = consumer("order_view_v1", {
  aggregateTypes: ["Order"],
  async handle(event, { tx }) {
    if (event.type === "OrderPlaced") {
      const { customer, cents } = event.data as OrderPlaced;
      await tx.query("INSERT INTO order_view VALUES ($1, $2, $3, 'placed')", [
        event.streamId,
        customer,
        cents,
      ]);
    } else if (event.type === "OrderPaid") {
      await tx.query("UPDATE order_view SET status = 'paid' WHERE order_id = $1", [event.streamId]);
    }
  },
});

await mill.startWorker({ consumers: [orderView] });

const order = { type: "Order", id: randomUUID() };
await mill.append(
  order,
  [{ type: "OrderPlaced", data: { customer: "Ada", cents: 4200 } satisfies OrderPlaced }],
  { expectedVersion: "no-stream" },
);
const paid = await mill.append(order, [{ type: "OrderPaid" }], { expectedVersion: 1 });

// Read your own writes: wait until the view contains what was just appended.
await mill.waitFor(orderView, paid);
const { rows } = await mill.transaction((tx) =>
  tx.query("SELECT customer, cents::int, status FROM order_view WHERE order_id = $1", [order.id]),
);
console.log(JSON.stringify(rows));
