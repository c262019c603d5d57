import { expect, it } from "vitest";
import { consumer } from "../../src/index.ts";
import { testDatabase } from "../support/database.ts";
import { FAST } from "../support/options.ts";

it("hands an appended event to a consumer in a transaction", async () => {
  const database = await testDatabase();
  await database.pool.query("CREATE TABLE seen (position BIGINT, data JSONB)");
  const mill = await database.connect();
  const seen = consumer("seen", {
    handle: async (event, { tx }) => {
      await tx.query("INSERT INTO seen VALUES ($1, $2)", [String(event.position), event.data]);
    },
  });
  await mill.startWorker({ consumers: [seen], ...FAST });
  const appended = await mill.append({ type: "Order", id: "1" }, [
    { type: "OrderPaid", data: { total: 42 } },
  ]);
  await mill.waitFor(seen, appended);
  const { rows } = await database.pool.query("SELECT * FROM seen");
  expect(rows).toEqual([{ position: "1", data: { total: 42 } }]);
});
