import { describe, expect, it } from "vitest";
import {
  DuplicateEventError,
  type SqlExecutor,
  WrongExpectedVersionError,
} from "../../src/index.ts";
import { type TestDatabase, testDatabase } from "../support/database.ts";

/** A transaction of the library under test. */
export interface AdaptedTransaction {
  /** The transaction as the adapter hands it to us. */
  readonly tx: SqlExecutor;
  /** A row of the user's, written the way the library's users write. */
  readonly insertOrder: (id: string) => Promise<unknown>;
}

/** Commits when the work resolves, rolls back when it rejects. */
export type RunTransaction = <T>(work: (adapted: AdaptedTransaction) => Promise<T>) => Promise<T>;

/** Opens the library on a database, and leaves what it opened to `onCleanup`. */
export type OpenLibrary = (url: string) => RunTransaction | Promise<RunTransaction>;

const order = { type: "Order", id: "1" };
const at = new Date("2026-03-29T01:30:00.123Z");
const uuid = "0197a3f0-0000-7000-8000-000000000001";
const awkward = [
  "",
  " ",
  "NULL",
  "null",
  'a"b',
  "a\\b",
  "a,b",
  "{c}",
  "'",
  "é 漢 🜁",
  "\n",
  "$1",
  "?",
];
const bytes = Buffer.from([0, 255, 92, 120, 34]);
const json = '{"a": [1, null, "x\\"y"], "b_c": "?"}';

/** Type, what is passed, and what comes back. */
const VALUES: readonly (readonly [type: string, given: unknown, expected: unknown])[] = [
  ["text", null, null],
  ["text", undefined, null],
  ["bigint", undefined, null],
  ["text[]", undefined, null],
  ["text", "", ""],
  ["text", "null", "null"],
  ["text", "{not,an,array}", "{not,an,array}"],
  ["text", "é 漢 🜁 ' \" \\ $1 ? :name ::x", "é 漢 🜁 ' \" \\ $1 ? :name ::x"],
  ["text", json, json],
  ["int", 42, 42],
  ["int", "-7", -7],
  ["smallint", 3, 3],
  ["bigint", 5, "5"],
  ["bigint", "9223372036854775807", "9223372036854775807"],
  ["bigint", 9223372036854775807n, "9223372036854775807"],
  ["float8", 0.1, 0.1],
  ["numeric", "12345678901234567890.5", "12345678901234567890.5"],
  ["boolean", true, true],
  ["boolean", false, false],
  ["uuid", uuid, uuid],
  ["timestamptz", at, at],
  ["timestamptz", at.toISOString(), at],
  ["bytea", bytes, bytes],
  ["bytea", Uint8Array.from(bytes), bytes],
  ["bytea", Buffer.from("xxpartxx").subarray(2, 6), Buffer.from("part")],
  ["bytea", Buffer.alloc(0), Buffer.alloc(0)],
  ["jsonb", json, JSON.parse(json)],
  ["json", json, JSON.parse(json)],
  ["jsonb", '"text"', "text"],
  ["jsonb", { a: [1, { b_c: null }] }, { a: [1, { b_c: null }] }],
  ["text[]", awkward, awkward],
  ["text[]", [], []],
  ["text[]", ["a", null, undefined], ["a", null, null]],
  ["text[]", [json], [json]],
  ["bigint[]", ["1", "9223372036854775807"], ["1", "9223372036854775807"]],
  ["bigint[]", [1, 2n, null], ["1", "2", null]],
  ["uuid[]", [uuid, null], [uuid, null]],
  ["smallint[]", [1, -2], [1, -2]],
  ["int[]", ["1", 2], [1, 2]],
  ["boolean[]", [true, false, null], [true, false, null]],
  ["timestamptz[]", [at, null], [at, null]],
  ["bytea[]", [bytes, Buffer.alloc(0)], [bytes, Buffer.alloc(0)]],
];

async function withOrders(): Promise<TestDatabase> {
  const database = await testDatabase();
  await database.pool.query("CREATE TABLE orders (id text PRIMARY KEY)");
  return database;
}

const orderIds = async (database: TestDatabase): Promise<string[]> => {
  const { rows } = await database.pool.query<{ id: string }>("SELECT id FROM orders ORDER BY id");
  return rows.map((row) => row.id);
};

/** What every adapter must keep: the transaction is the library's, the values node-postgres's. */
export function adapterContract(name: string, open: OpenLibrary): void {
  describe(name, () => {
    describe("the transaction", () => transactionTests(open));
    describe("the values", () => valueTests(open));
  });
}

function transactionTests(open: OpenLibrary): void {
  it("commits events together with rows of the user's", async () => {
    const database = await withOrders();
    const mill = await database.connect();
    const transaction = await open(database.url);
    const result = await transaction(async ({ tx, insertOrder }) => {
      await insertOrder("1");
      const events = [
        { type: "Placed", data: { cents: 4200, note: "what?" }, metadata: { user_id: "ann" } },
        { type: "Signed", bytes },
      ];
      const appended = await mill.append(order, events, { tx, expectedVersion: "no-stream" });
      expect(await mill.readStream(order)).toEqual([]);
      expect(await orderIds(database)).toEqual([]);
      return appended;
    });
    expect(result).toMatchObject({ positions: [1n, 2n], fromVersion: 0n, toVersion: 2n });
    const [placed, signed] = await mill.readStream(order);
    expect(placed?.data).toEqual({ cents: 4200, note: "what?" });
    expect(placed?.metadata).toEqual({ user_id: "ann" });
    expect(signed?.payload.equals(bytes)).toBe(true);
    expect(await orderIds(database)).toEqual(["1"]);
  });

  it("rolls events back together with rows of the user's", async () => {
    const database = await withOrders();
    const mill = await database.connect();
    const transaction = await open(database.url);
    const changed = transaction(async ({ tx, insertOrder }) => {
      await insertOrder("1");
      await mill.append(order, [{ type: "Placed" }], { tx });
      throw new Error("changed my mind");
    });
    await expect(changed).rejects.toThrow("changed my mind");
    expect(await mill.readStream(order)).toEqual([]);
    expect(await orderIds(database)).toEqual([]);
  });

  it("stays usable when the stream was not at the expected version", async () => {
    const database = await withOrders();
    const mill = await database.connect();
    const transaction = await open(database.url);
    await transaction(async ({ tx, insertOrder }) => {
      await mill.append(order, [{ type: "Placed" }], { tx });
      const late = mill.append(order, [{ type: "Paid" }], { tx, expectedVersion: 7n });
      await expect(late).rejects.toThrow(WrongExpectedVersionError);
      await mill.append(order, [{ type: "Paid" }], { tx, expectedVersion: 1n });
      await insertOrder("1");
    });
    expect((await mill.readStream(order)).map((event) => event.type)).toEqual(["Placed", "Paid"]);
    expect(await orderIds(database)).toEqual(["1"]);
  });

  it("fails with our error when the server refuses a row", async () => {
    const database = await withOrders();
    const mill = await database.connect();
    const transaction = await open(database.url);
    await mill.append(order, [{ type: "Placed", id: uuid }]);
    const twice = transaction(({ tx }) =>
      mill.append({ type: "Order", id: "2" }, [{ type: "Placed", id: uuid }], { tx }),
    );
    await expect(twice).rejects.toThrow(DuplicateEventError);
    await expect(twice).rejects.toThrow("an event with this id");
  });
}

function valueTests(open: OpenLibrary): void {
  it("come back as they do from node-postgres", async () => {
    const { url, pool } = await testDatabase();
    const transaction = await open(url);
    await transaction(async ({ tx }) => {
      for (const [type, given, expected] of VALUES) {
        const text = `SELECT $1::${type} AS the_value, ($1::${type})::text AS as_text`;
        const { rows } = await tx.query(text, [given]);
        const message = `${type} ${String(given)}`;
        expect(rows, message).toEqual([{ the_value: expected, as_text: expect.toSatisfy(isText) }]);
        expect(rows, message).toEqual((await pool.query(text, [given])).rows);
      }
    });
  });

  it("find their places, and question marks and colons are left alone", async () => {
    const { url } = await testDatabase();
    const transaction = await open(url);
    const text = `
      SELECT $2::text AS second, $1::text AS first, $2::text || $1::text AS both_of_them,
             '{"a": 1}'::jsonb ? 'a' AS has_key, '{"a": 1}'::jsonb ?| $3::text[] AS has_any,
             'what? \\? :first $1' AS "quoted" -- why? :second`;
    const { rows } = await transaction(({ tx }) => tx.query(text, ["1", "2", ["b", "a"]]));
    const quoted = "what? \\? :first $1";
    expect(rows).toEqual([
      { second: "2", first: "1", both_of_them: "21", has_key: true, has_any: true, quoted },
    ]);
  });

  it("may be many, in arrays and in rows", async () => {
    const { url } = await testDatabase();
    const transaction = await open(url);
    const numbers = Array.from({ length: 1000 }, (_, index) => String(index));
    const text = "SELECT * FROM unnest($1::bigint[], $2::text[]) AS t(a_number, a_text)";
    const { rows } = await transaction(({ tx }) => tx.query(text, [numbers, numbers]));
    expect(rows).toEqual(numbers.map((number) => ({ a_number: number, a_text: number })));
  });

  it("are given as rows by every kind of statement", async () => {
    const { url } = await withOrders();
    const transaction = await open(url);
    await transaction(async ({ tx }) => {
      const rowsOf = async (text: string, values?: unknown[]): Promise<unknown[]> =>
        (await tx.query(text, values)).rows;
      expect(await rowsOf("INSERT INTO orders VALUES ('1'), ($1)", ["2"])).toEqual([]);
      expect(await rowsOf("INSERT INTO orders VALUES ('3') RETURNING id")).toEqual([{ id: "3" }]);
      const update = "UPDATE orders SET id = id || 'x' WHERE id = $1 RETURNING id";
      expect(await rowsOf(update, ["1"])).toEqual([{ id: "1x" }]);
      expect(await rowsOf(update, ["1"])).toEqual([]);
      const cte = `WITH gone AS (${update}) SELECT count(*) AS how_many FROM gone`;
      expect(await rowsOf(cte, ["2"])).toEqual([{ how_many: "1" }]);
      expect(await rowsOf("DELETE FROM orders WHERE id = '3' RETURNING 1::bigint AS n")).toEqual([
        { n: "1" },
      ]);
      expect(await rowsOf("SELECT count(*) AS how_many FROM orders")).toEqual([{ how_many: "2" }]);
    });
  });
}

const isText = (value: unknown): boolean => value === null || typeof value === "string";
