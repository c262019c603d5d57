import postgres from "postgres";
import { expect, it } from "vitest";
import { fromPostgresJs } from "../../../src/adapters/postgres-js.ts";
import { ConfigError } from "../../../src/index.ts";
import {
  type AdaptedTransaction,
  adapterContract,
  type RunTransaction,
} from "../../contract/adapter.ts";
import { onCleanup, testDatabase } from "../../support/database.ts";

type Options = postgres.Options<Record<string, postgres.PostgresType>>;

const connect = (url: string, options: Options = {}) => {
  const sql = postgres(url, { max: 2, onnotice: () => {}, ...options });
  onCleanup(() => sql.end());
  return sql;
};

const open =
  (options?: Options) =>
  (url: string): RunTransaction => {
    const sql = connect(url, options);
    return async <T>(work: (adapted: AdaptedTransaction) => Promise<T>): Promise<T> =>
      (await sql.begin((tx) =>
        work({
          tx: fromPostgresJs(tx),
          insertOrder: (id) => tx`INSERT INTO orders (id) VALUES (${id})`,
        }),
      )) as T;
  };

adapterContract("postgres.js", open());
adapterContract("postgres.js that gives bigints and camel case", (url) =>
  open({ types: { bigint: postgres.BigInt }, transform: postgres.camel })(url),
);
adapterContract("postgres.js without prepared statements and types of arrays", (url) =>
  open({ prepare: false, fetch_types: false, transform: postgres.pascal })(url),
);

it("follows a savepoint", async () => {
  const database = await testDatabase();
  const mill = await database.connect();
  await connect(database.url).begin(async (tx) => {
    await mill.append({ type: "Order", id: "1" }, [{ type: "A" }], { tx: fromPostgresJs(tx) });
    const inner = tx.savepoint(async (savepoint) => {
      const options = { tx: fromPostgresJs(savepoint) };
      await mill.append({ type: "Order", id: "1" }, [{ type: "B" }], options);
      throw new Error("only this");
    });
    await expect(inner).rejects.toThrow("only this");
  });
  const events = await mill.readStream({ type: "Order", id: "1" });
  expect(events.map((event) => event.type)).toEqual(["A"]);
});

it("refuses what is not a transaction", async () => {
  const sql = connect((await testDatabase()).url);
  // @ts-expect-error: it has no savepoints.
  expect(() => fromPostgresJs(sql)).toThrow(ConfigError);
  const reserved = await sql.reserve();
  // @ts-expect-error: nobody knows whether a transaction was begun on it.
  expect(() => fromPostgresJs(reserved)).toThrow(/sql\.begin\(\)/);
  reserved.release();
  // @ts-expect-error: nothing at all.
  expect(() => fromPostgresJs(undefined)).toThrow(ConfigError);
});

it("refuses rows that a setting has changed", async () => {
  const sql = connect((await testDatabase()).url, {
    transform: { row: { from: (row: object) => ({ ...row }) } },
  });
  const read = sql.begin((tx) => fromPostgresJs(tx).query("SELECT $1::int AS n", [1]));
  await expect(read).rejects.toThrow(/transform\.row/);
});
