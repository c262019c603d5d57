import pg from "pg";
import { expect, it } from "vitest";
import { fromPg } from "../../../src/adapters/pg.ts";
import { ConfigError } from "../../../src/index.ts";
import { adapterContract } from "../../contract/adapter.ts";
import { onCleanup, testDatabase } from "../../support/database.ts";

adapterContract("node-postgres", (url) => {
  const pool = new pg.Pool({ connectionString: url, max: 2 });
  pool.on("error", () => {}); // The database is dropped under a connection that is being closed.
  onCleanup(() => pool.end());
  return async (work) => {
    const client = await pool.connect();
    try {
      await client.query("BEGIN");
      const result = await work({
        tx: fromPg(client),
        insertOrder: (id) => client.query("INSERT INTO orders (id) VALUES ($1)", [id]),
      });
      await client.query("COMMIT");
      return result;
    } catch (error) {
      await client.query("ROLLBACK");
      throw error;
    } finally {
      client.release();
    }
  };
});

it("refuses a pool", async () => {
  const { pool } = await testDatabase();
  // @ts-expect-error: a pool counts its clients.
  expect(() => fromPg(pool)).toThrow(ConfigError);
  // @ts-expect-error: a pool counts its clients.
  expect(() => fromPg(pool)).toThrow(/pool\.connect\(\)/);
  // @ts-expect-error: nothing at all.
  expect(() => fromPg(undefined)).toThrow(ConfigError);
});

it("refuses a client on which no transaction is open", async () => {
  const database = await testDatabase();
  const mill = await database.connect();
  const client = await database.session();
  const stream = { type: "Order", id: "1" };
  const append = () => mill.append(stream, [{ type: "Placed" }], { tx: fromPg(client) });
  await expect(append()).rejects.toThrow(/await BEGIN/);
  await client.query("BEGIN");
  await append();
  await client.query("COMMIT");
  await expect(append()).rejects.toThrow(ConfigError);
  expect(await mill.readStream(stream)).toHaveLength(1);
});
