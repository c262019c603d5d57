import { DataSource, EntitySchema } from "typeorm";
import { expect, it } from "vitest";
import { fromTypeOrm } from "../../../src/adapters/typeorm.ts";
import { ConfigError } from "../../../src/index.ts";
import { adapterContract } from "../../contract/adapter.ts";
import { onCleanup, testDatabase } from "../../support/database.ts";

const Order = new EntitySchema<{ id: string }>({
  name: "Order",
  tableName: "orders",
  columns: { id: { type: "text", primary: true } },
});

const connect = async (url: string): Promise<DataSource> => {
  const source = new DataSource({ type: "postgres", url, entities: [Order], poolSize: 2 });
  await source.initialize();
  onCleanup(() => source.destroy());
  return source;
};

adapterContract("TypeORM's entity manager", async (url) => {
  const source = await connect(url);
  return (work) =>
    source.transaction((manager) =>
      work({
        tx: fromTypeOrm(manager),
        insertOrder: (id) => manager.insert(Order, { id }),
      }),
    );
});

adapterContract("TypeORM's query runner", async (url) => {
  const source = await connect(url);
  return async (work) => {
    const runner = source.createQueryRunner();
    await runner.startTransaction();
    try {
      const result = await work({
        tx: fromTypeOrm(runner),
        insertOrder: (id) => runner.manager.insert(Order, { id }),
      });
      await runner.commitTransaction();
      return result;
    } catch (error) {
      await runner.rollbackTransaction();
      throw error;
    } finally {
      await runner.release();
    }
  };
});

it("refuses what is not a transaction", async () => {
  const source = await connect((await testDatabase()).url);
  // @ts-expect-error: a data source has no query runner.
  expect(() => fromTypeOrm(source)).toThrow(ConfigError);
  expect(() => fromTypeOrm(source.manager)).toThrow(/dataSource\.transaction\(\)/);
  const runner = source.createQueryRunner();
  expect(() => fromTypeOrm(runner)).toThrow(/startTransaction\(\)/);
  // @ts-expect-error: nothing at all.
  expect(() => fromTypeOrm(undefined)).toThrow(ConfigError);
  await runner.release();
});

it("refuses a transaction that has ended", async () => {
  const runner = (await connect((await testDatabase()).url)).createQueryRunner();
  await runner.startTransaction();
  const tx = fromTypeOrm(runner);
  await runner.commitTransaction();
  await expect(tx.query("SELECT 1")).rejects.toThrow(ConfigError);
  await runner.release();
});

it("refuses another database", () => {
  const runner = {
    isTransactionActive: true,
    dataSource: { options: { type: "mysql" } },
    query: () => Promise.reject(new Error()),
  };
  expect(() => fromTypeOrm(runner)).toThrow(/type "postgres", not "mysql"/);
});
