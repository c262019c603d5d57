import knex, { type Knex } from "knex";
import { expect, it } from "vitest";
import { fromKnex } from "../../../src/adapters/knex.ts";
import { ConfigError } from "../../../src/index.ts";
import { adapterContract, type OpenLibrary } from "../../contract/adapter.ts";
import { onCleanup, testDatabase } from "../../support/database.ts";

const connect = (url: string, config: Knex.Config = {}): Knex => {
  const db = knex({ client: "pg", connection: url, pool: { min: 0, max: 2 }, ...config });
  onCleanup(() => db.destroy());
  return db;
};

const open =
  (config?: Knex.Config): OpenLibrary =>
  (url) => {
    const db = connect(url, config);
    return (work) =>
      db.transaction((trx) =>
        work({ tx: fromKnex(trx), insertOrder: async (id) => await trx("orders").insert({ id }) }),
      );
  };

adapterContract("knex", open());
adapterContract("knex that changes results and identifiers", (url) =>
  open({
    postProcessResponse: () => "something else",
    wrapIdentifier: (name, wrap) => wrap(name.toLowerCase()),
  })(url),
);
it("follows a transaction inside another", async () => {
  const database = await testDatabase();
  const mill = await database.connect();
  const order = { type: "Order", id: "1" };
  await connect(database.url).transaction(async (outer) => {
    await mill.append(order, [{ type: "A" }], { tx: fromKnex(outer) });
    const inner = outer.transaction(async (trx) => {
      await mill.append(order, [{ type: "B" }], { tx: fromKnex(trx) });
      throw new Error("only this");
    });
    await expect(inner).rejects.toThrow("only this");
  });
  expect((await mill.readStream(order)).map((event) => event.type)).toEqual(["A"]);
});

it("refuses what is not a transaction", async () => {
  const db = connect((await testDatabase()).url);
  // @ts-expect-error: knex itself does not complete.
  expect(() => fromKnex(db)).toThrow(ConfigError);
  // @ts-expect-error: nothing at all.
  expect(() => fromKnex(undefined)).toThrow(/knex\.transaction\(\)/);
});

it("refuses a transaction that has ended", async () => {
  const trx = await connect((await testDatabase()).url).transaction();
  const tx = fromKnex(trx);
  await trx.commit();
  await expect(tx.query("SELECT 1")).rejects.toThrow(ConfigError);
});

it("refuses another database", () => {
  const client = { driverName: "mysql2", acquireConnection: () => Promise.reject(new Error()) };
  const trx = { isTransaction: true, client, isCompleted: () => false };
  expect(() => fromKnex(trx)).toThrow(/client "pg", not "mysql2"/);
});
