import {
  CamelCasePlugin,
  DummyDriver,
  Kysely,
  type KyselyPlugin,
  PostgresDialect,
  SqliteAdapter,
  SqliteIntrospector,
  SqliteQueryCompiler,
} from "kysely";
import pg from "pg";
import { expect, it } from "vitest";
import { fromKysely } from "../../../src/adapters/kysely.ts";
import { ConfigError } from "../../../src/index.ts";
import { adapterContract, type OpenLibrary } from "../../contract/adapter.ts";
import { onCleanup, testDatabase } from "../../support/database.ts";

interface Tables {
  orders: { id: string };
}

const connect = (url: string, plugins: KyselyPlugin[] = []): Kysely<Tables> => {
  const pool = new pg.Pool({ connectionString: url, max: 2 });
  pool.on("error", () => {}); // The database is dropped under a connection that is being closed.
  const db = new Kysely<Tables>({ dialect: new PostgresDialect({ pool }), plugins });
  onCleanup(() => db.destroy());
  return db;
};

const open =
  (...plugins: KyselyPlugin[]): OpenLibrary =>
  (url) => {
    const db = connect(url, plugins);
    return (work) =>
      db.transaction().execute((trx) =>
        work({
          tx: fromKysely(trx),
          insertOrder: (id) => trx.insertInto("orders").values({ id }).execute(),
        }),
      );
  };

adapterContract("Kysely", open());
adapterContract("Kysely with plugins", open(new CamelCasePlugin()));
adapterContract("Kysely with transactions that are ended by hand", (url) => {
  const db = connect(url);
  return async (work) => {
    const trx = await db.startTransaction().execute();
    try {
      const result = await work({
        tx: fromKysely(trx),
        insertOrder: (id) => trx.insertInto("orders").values({ id }).execute(),
      });
      await trx.commit().execute();
      return result;
    } catch (error) {
      await trx.rollback().execute();
      throw error;
    }
  };
});

it("refuses what is not a transaction", async () => {
  const db = connect((await testDatabase()).url);
  // @ts-expect-error: Kysely itself is no transaction.
  expect(() => fromKysely(db)).toThrow(ConfigError);
  await db.connection().execute(async (connection) => {
    // @ts-expect-error: neither is one connection.
    expect(() => fromKysely(connection)).toThrow(/db\.transaction\(\)/);
  });
  // @ts-expect-error: nothing at all.
  expect(() => fromKysely(undefined)).toThrow(ConfigError);
});

it("refuses a transaction that has ended by hand", async () => {
  const trx = await connect((await testDatabase()).url)
    .startTransaction()
    .execute();
  const tx = fromKysely(trx);
  await trx.commit().execute();
  await expect(tx.query("SELECT 1")).rejects.toThrow(/committed/);
});

it("refuses another dialect", async () => {
  const db = new Kysely<Tables>({
    dialect: {
      createAdapter: () => new SqliteAdapter(),
      createDriver: () => new DummyDriver(),
      createIntrospector: (db) => new SqliteIntrospector(db),
      createQueryCompiler: () => new SqliteQueryCompiler(),
    },
  });
  await db.transaction().execute(async (trx) => {
    expect(() => fromKysely(trx)).toThrow(/PostgresDialect/);
  });
});
