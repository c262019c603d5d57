import * as nodePostgres from "drizzle-orm/node-postgres";
import { pgTable, text } from "drizzle-orm/pg-core";
import * as postgresJs from "drizzle-orm/postgres-js";
import pg from "pg";
import postgres from "postgres";
import { expect, it } from "vitest";
import { fromDrizzle } from "../../../src/adapters/drizzle.ts";
import { ConfigError, type SqlExecutor } from "../../../src/index.ts";
import { adapterContract } from "../../contract/adapter.ts";
import { onCleanup, testDatabase } from "../../support/database.ts";

const orders = pgTable("orders", { id: text().primaryKey() });
const schema = { orders };
const order = { type: "Order", id: "1" };

const overNodePostgres = (url: string) => {
  const pool = new pg.Pool({ connectionString: url, max: 2 });
  pool.on("error", () => {}); // The database is dropped under a connection that is being closed.
  onCleanup(() => pool.end());
  return nodePostgres.drizzle(pool, { schema });
};

const overPostgresJs = (url: string) => {
  const sql = postgres(url, { max: 2, onnotice: () => {} });
  onCleanup(() => sql.end());
  return postgresJs.drizzle(sql, { schema, casing: "snake_case" });
};

adapterContract("Drizzle over node-postgres", (url) => {
  const db = overNodePostgres(url);
  return (work) =>
    db.transaction((tx) =>
      work({ tx: fromDrizzle(tx), insertOrder: async (id) => tx.insert(orders).values({ id }) }),
    );
});

adapterContract("Drizzle over postgres.js", (url) => {
  const db = overPostgresJs(url);
  return (work) =>
    db.transaction((tx) =>
      work({ tx: fromDrizzle(tx), insertOrder: async (id) => tx.insert(orders).values({ id }) }),
    );
});

it("follows a transaction inside another over node-postgres", async () => {
  const database = await testDatabase();
  const mill = await database.connect();
  await overNodePostgres(database.url).transaction(async (outer) => {
    await mill.append(order, [{ type: "A" }], { tx: fromDrizzle(outer) });
    const inner = outer.transaction(async (tx) => {
      await mill.append(order, [{ type: "B" }], { tx: fromDrizzle(tx) });
      throw new Error("only this");
    });
    await expect(inner).rejects.toThrow("only this");
  });
  expect((await mill.readStream(order)).map((event) => event.type)).toEqual(["A"]);
});

it("follows a transaction inside another over postgres.js", async () => {
  const database = await testDatabase();
  const mill = await database.connect();
  await overPostgresJs(database.url).transaction(async (outer) => {
    await mill.append(order, [{ type: "A" }], { tx: fromDrizzle(outer) });
    const inner = outer.transaction(async (tx) => {
      await mill.append(order, [{ type: "B" }], { tx: fromDrizzle(tx) });
      throw new Error("only this");
    });
    await expect(inner).rejects.toThrow("only this");
  });
  expect((await mill.readStream(order)).map((event) => event.type)).toEqual(["A"]);
});

it.each([
  ["node-postgres", overNodePostgres],
  ["postgres.js", overPostgresJs],
])("refuses what is not a transaction over %s", async (_, connect) => {
  const db = connect((await testDatabase()).url);
  // @ts-expect-error: the database itself cannot be rolled back.
  expect(() => fromDrizzle(db)).toThrow(ConfigError);
  // @ts-expect-error: nothing at all.
  expect(() => fromDrizzle(undefined)).toThrow(/db\.transaction\(\)/);
});

it("refuses a transaction that has ended", async () => {
  const db = overNodePostgres((await testDatabase()).url);
  let kept: SqlExecutor | undefined;
  await db.transaction(async (tx) => {
    kept = fromDrizzle(tx);
  });
  await expect(kept?.query("SELECT 1")).rejects.toThrow(ConfigError);
});

it("refuses the transaction of another driver, and says what to do", () => {
  class NeonTransaction {
    readonly _ = { session: {} };
    rollback(): never {
      throw new Error("unused");
    }
  }
  Object.assign(NeonTransaction, { [Symbol.for("drizzle:entityKind")]: "NeonTransaction" });
  const tx = new NeonTransaction();
  expect(() => fromDrizzle(tx)).toThrow(ConfigError);
  expect(() => fromDrizzle(tx)).toThrow(/NeonTransaction: use drizzle-orm\/node-postgres/);
});
