import { describe, expect, it } from "vitest";
import { consumer, type EventHandler, queue, type Tidemill } from "../../../src/index.ts";
import { eventually } from "../../support/eventually.ts";
import { STEADY, statusOf } from "./handled.ts";
import {
  appendOrders,
  builtScene,
  eventuallyBuilt,
  once,
  orderView,
  project,
  rebuildScene,
  schemasOf,
  sumsOf,
  VIEW,
} from "./rebuild-scene.ts";

describe("an illegal move", () => {
  it("is refused in every state with what to do instead", async () => {
    const { database, mill } = await builtScene();
    const { rebuilds } = mill.consumers;
    const none = `"${VIEW}" is not being rebuilt; "tidemill consumer rebuild start" begins`;
    await expect(rebuilds.start("nobody")).rejects.toMatchObject({ code: "TM_NOT_FOUND" });
    for (const move of ["status", "compare", "swap", "rollBack", "cancel", "forget"] as const) {
      await expect(rebuilds[move](VIEW), move).rejects.toThrow(none);
    }

    await rebuilds.start(VIEW);
    await expect(rebuilds.start(VIEW)).rejects.toThrow("has a rebuild already; cancel it, or");
    await expect(rebuilds.rollBack(VIEW)).rejects.toThrow("is not swapped in yet");
    await expect(rebuilds.forget(VIEW)).rejects.toThrow("is not swapped in yet");
    const started = { force: true };
    await expect(mill.consumers.retire(VIEW, started)).rejects.toThrow("cancel its rebuild first");
    const twice = mill.consumers.repartition(VIEW, { partitions: 2 });
    await expect(twice).rejects.toThrow("cancel its rebuild first");
    const rebuild = `${VIEW}~rebuild`;
    await expect(mill.consumers.rewind(rebuild, { to: 0n })).rejects.toThrow("is a rebuild");
    await expect(mill.consumers.retire(rebuild)).rejects.toThrow("is a rebuild");
    await expect(rebuilds.cancel(rebuild)).rejects.toThrow(`name the consumer, ${VIEW}`);

    await eventuallyBuilt(mill);
    await rebuilds.swap(VIEW);
    for (const move of ["compare", "swap", "cancel"] as const) {
      await expect(rebuilds[move](VIEW), move).rejects.toMatchObject({
        code: "TM_CONFLICT",
        message:
          `the rebuild of ${VIEW} is swapped in; ` +
          "roll it back, or forget the tables from before",
      });
    }
    await expect(rebuilds.start(VIEW)).rejects.toThrow("has a rebuild already");
    await expect(mill.consumers.retire(VIEW, started)).rejects.toThrow("forget the tables from");
    await rebuilds.rollBack(VIEW);
    for (const move of ["compare", "swap", "rollBack", "forget"] as const) {
      await expect(rebuilds[move](VIEW), move).rejects.toThrow("was rolled back; cancel it");
    }
    await rebuilds.cancel(VIEW);

    await rebuilds.start(VIEW);
    await eventuallyBuilt(mill);
    await rebuilds.swap(VIEW);
    await rebuilds.forget(VIEW);
    expect(await schemasOf(database)).toEqual([]);
    expect(await sumsOf(database)).toEqual(once(60));
  });

  it("at a rebuild that is stopped is refused until it goes on", async () => {
    const { mill } = await builtScene();
    const { rebuilds } = mill.consumers;
    await rebuilds.start(VIEW);
    await mill.consumers.pause(`${VIEW}~rebuild`);
    const { progress } = await rebuilds.status(VIEW);
    expect(progress?.stopped).toBe("paused");
    await appendOrders(mill, 10);
    await mill.waitFor(VIEW, { position: 70n });
    await expect(rebuilds.swap(VIEW)).rejects.toThrow(/~rebuild is paused at \d+; resume it/);
    await mill.consumers.resume(`${VIEW}~rebuild`);
    await eventuallyBuilt(mill);
    expect(await rebuilds.swap(VIEW)).toBe(70n);
  });
});

describe("tables", () => {
  const CASES: [ddl: string, undo: string, message: string][] = [
    [
      "CREATE VIEW paid AS SELECT id FROM order_view",
      "DROP VIEW paid",
      "public.order_view is used by view paid",
    ],
    [
      "CREATE MATERIALIZED VIEW paid AS SELECT id FROM order_view",
      "DROP MATERIALIZED VIEW paid",
      "public.order_view is used by materialized view paid",
    ],
    [
      "CREATE TABLE notes (id TEXT REFERENCES order_view)",
      "DROP TABLE notes",
      "public.order_view is used by constraint notes_id_fkey on table notes",
    ],
    [
      `CREATE FUNCTION first_order() RETURNS order_view LANGUAGE sql AS
         'SELECT * FROM order_view LIMIT 1'`,
      "DROP FUNCTION first_order",
      "public.order_view is used by function first_order()",
    ],
    [
      `CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN new; END';
       CREATE TRIGGER touched BEFORE UPDATE ON order_lines FOR EACH ROW EXECUTE FUNCTION touch()`,
      "DROP TRIGGER touched ON order_lines",
      "public.order_lines has the trigger touched",
    ],
    [
      "ALTER TABLE order_view ENABLE ROW LEVEL SECURITY",
      "ALTER TABLE order_view DISABLE ROW LEVEL SECURITY",
      "public.order_view has row-level security",
    ],
    [
      "CREATE PUBLICATION told FOR TABLE order_view",
      "DROP PUBLICATION told",
      "public.order_view is in the publication told",
    ],
    [
      "CREATE STATISTICS facts ON id, customer FROM order_view",
      "DROP STATISTICS facts",
      "public.order_view has the extended statistics facts",
    ],
    [
      "CREATE TABLE heir () INHERITS (order_view)",
      "DROP TABLE heir",
      "public.order_view is part of an inheritance tree",
    ],
    [
      "ALTER TABLE order_lines ALTER line SET DEFAULT nextval('order_lines_line_seq') * 2",
      "ALTER TABLE order_lines ALTER line SET DEFAULT nextval('order_lines_line_seq')",
      "public.order_lines draws numbers of its own in an expression, in column line",
    ],
    [
      "ALTER TABLE order_lines RENAME TO lines",
      "ALTER TABLE lines RENAME TO order_lines",
      "declares table order_lines, which does not exist",
    ],
    [
      "ALTER TABLE order_view RENAME TO orders; CREATE VIEW order_view AS SELECT * FROM orders",
      "DROP VIEW order_view; ALTER TABLE orders RENAME TO order_view",
      "public.order_view is not an ordinary table",
    ],
  ];

  it("that cannot be swapped are refused before anything is done", async () => {
    const { database, mill } = await builtScene(10);
    for (const [ddl, undo, message] of CASES) {
      await database.pool.query(ddl);
      const refused = mill.consumers.rebuilds.start(VIEW);
      await expect(refused, ddl).rejects.toMatchObject({ code: "TM_CONFLICT" });
      await expect(refused, ddl).rejects.toThrow(message);
      expect(await schemasOf(database)).toEqual([]);
      await database.pool.query(undo);
    }
    await expect(mill.consumers.rebuilds.status(VIEW)).rejects.toThrow("is not being rebuilt");
    await mill.consumers.rebuilds.start(VIEW);
  });

  it("of another consumer, of no consumer and of no worker are refused", async () => {
    const { database, mill } = await rebuildScene();
    const { rebuilds } = mill.consumers;
    const bare = consumer("bare", { handle: () => {} });
    const rival = consumer("rival", { tables: ["public.order_view"], handle: () => {} });
    await mill.runToHead({ ...STEADY, consumers: [orderView(), bare] });
    await expect(rebuilds.start("bare")).rejects.toThrow("consumer bare declares no tables");
    await expect(rebuilds.start(VIEW)).rejects.toThrow("no running worker can rebuild consumer");
    await mill.startWorker({ ...STEADY, consumers: [orderView(), rival] });
    await expect(rebuilds.start(VIEW)).rejects.toThrow(
      "public.order_view is also a table of consumer rival",
    );
    await expect(rebuilds.start(VIEW, { partitions: 0 })).rejects.toThrow("partitions must be");
    expect(await schemasOf(database)).toEqual([]);
  });

  it("that were altered, or are used since the start, are not swapped", async () => {
    const { database, mill } = await builtScene();
    const { rebuilds } = mill.consumers;
    await rebuilds.start(VIEW);
    await eventuallyBuilt(mill);
    await database.pool.query("CREATE VIEW paid AS SELECT id FROM order_view");
    await expect(rebuilds.swap(VIEW)).rejects.toThrow("public.order_view is used by view paid");
    await database.pool.query("DROP VIEW paid; ALTER TABLE order_view ADD note TEXT");
    await expect(rebuilds.swap(VIEW)).rejects.toThrow("column note text of order_view");
    await database.pool.query(
      "ALTER TABLE order_view DROP note; CREATE INDEX i ON order_lines (cents)",
    );
    await expect(rebuilds.swap(VIEW)).rejects.toThrow("index i of order_lines");
    await database.pool.query("DROP INDEX i");
    await rebuilds.swap(VIEW);
    await database.pool.query("ALTER TABLE order_view ADD note TEXT");
    await expect(rebuilds.rollBack(VIEW)).rejects.toThrow("column note text of order_view");
    await database.pool.query("CREATE VIEW old AS SELECT id FROM tidemill_before_1.order_view");
    await expect(rebuilds.forget(VIEW)).rejects.toThrow(
      /something else uses these tables: view old/,
    );
    await database.pool.query("DROP VIEW old");
    await rebuilds.forget(VIEW);
    expect(await sumsOf(database)).toEqual(once(60));
  });

  it("come back with names, keys, sequences, options and grants", async () => {
    const { database, mill } = await builtScene();
    const { pool } = database;
    const role = `reader_${database.url.slice(-6)}`;
    await pool.query(`CREATE ROLE ${role}; GRANT SELECT ON order_view TO ${role};
      GRANT SELECT (cents) ON order_lines TO ${role}`);
    const shape = async (): Promise<unknown> => {
      const { rows } = await pool.query(
        `SELECT (SELECT array_agg(indexname || ' ' || indexdef ORDER BY indexname)
                   FROM pg_indexes WHERE schemaname = 'public') AS indexes,
                (SELECT array_agg(conname || ' ' || pg_get_constraintdef(oid) ORDER BY conname)
                   FROM pg_constraint WHERE connamespace = 'public'::regnamespace
                    AND contype <> 'n') AS keys,
                (SELECT array_agg(column_name || ' ' || data_type || COALESCE(column_default, '')
                                  ORDER BY table_name, ordinal_position)
                   FROM information_schema.columns WHERE table_schema = 'public') AS columns,
                (SELECT array_agg(relname || COALESCE(reloptions::text, '') ORDER BY relname)
                   FROM pg_class WHERE relnamespace = 'public'::regnamespace
                    AND relkind = 'r') AS tables,
                (SELECT array_agg(table_name || column_name || privilege_type
                                  ORDER BY table_name, column_name)
                   FROM information_schema.column_privileges
                  WHERE grantee = $1 AND table_schema = 'public') AS grants,
                pg_get_serial_sequence('order_lines', 'line') AS sequence`,
        [role],
      );
      return rows;
    };
    const before = await shape();
    expect(JSON.stringify(before)).toContain("order_linescentsSELECT");
    await mill.consumers.rebuilds.start(VIEW);
    await eventuallyBuilt(mill);
    await mill.consumers.rebuilds.swap(VIEW);
    expect(await shape()).toEqual(before);
    await mill.consumers.rebuilds.forget(VIEW);
    expect(await shape()).toEqual(before);
    await mill.waitFor(VIEW, { position: await appendOrders(mill, 10) });
    await pool.query(`DROP OWNED BY ${role}; DROP ROLE ${role}`);
  });
});

describe("a handler in a rebuild", () => {
  const tasks = queue("receipts");
  const STRAYS: [what: string, stray: (mill: Tidemill) => EventHandler, message: string][] = [
    [
      "that spells out the schema",
      () =>
        async (event, { tx }) => {
          await tx.query("UPDATE public.order_view SET cents = 0 WHERE id = $1", [event.streamId]);
        },
      "the handler used public.order_view itself, not its copy",
    ],
    [
      "that looks at a live table",
      () =>
        async (_, { tx }) => {
          await tx.query("SELECT FROM public.order_lines");
        },
      "the handler used public.order_lines itself, not its copy",
    ],
    [
      "that writes a table that is not declared",
      () =>
        async (_, { tx }) => {
          await tx.query("INSERT INTO outbox DEFAULT VALUES");
        },
      "the handler wrote to public.outbox, which is not a table of consumer order_view_v1",
    ],
    [
      "that appends",
      (mill) =>
        async (_, { tx }) => {
          await mill.append({ type: "Mail", id: "1" }, [{ type: "Sent" }], { tx });
        },
      "the handler wrote to tidemill.events: a rebuild causes nothing again",
    ],
    [
      "that enqueues",
      (mill) =>
        async (_, { tx }) => {
          await mill.enqueue(tasks, {}, { tx });
        },
      "the handler wrote to tidemill.task_tally: a rebuild causes nothing again",
    ],
    [
      "that asks for a table it does not declare",
      () =>
        (_, { table }) =>
          void table("outbox"),
      'consumer order_view_v1 does not declare table "outbox"',
    ],
  ];

  it("that goes beyond its copies stops the rebuild, and nothing of it is kept", async () => {
    const { database, mill } = await rebuildScene();
    await database.pool.query("CREATE TABLE outbox (id INT GENERATED ALWAYS AS IDENTITY)");
    await mill.queues.ensure(tasks.name);
    await appendOrders(mill, 20);
    let astray: EventHandler = () => {};
    const view = orderView(async (event, context) => {
      await project(event, context);
      if (context.isRebuild) await astray(event, context);
    });
    await mill.startWorker({ ...STEADY, maxConsecutiveFailures: 1, consumers: [view] });
    await mill.waitFor(VIEW, { position: 20n });
    const before = await sumsOf(database);
    for (const [what, stray, message] of STRAYS) {
      astray = stray(mill);
      const { schema } = await mill.consumers.rebuilds.start(VIEW);
      await eventually(async () => {
        const { progress } = await mill.consumers.rebuilds.status(VIEW);
        expect(progress, what).toMatchObject({ stopped: "quarantined", position: 0n });
        expect(progress?.error).toContain(message);
      });
      expect(await sumsOf(database, schema), what).toEqual(once(0));
      await expect(mill.consumers.rebuilds.swap(VIEW)).rejects.toThrow("is quarantined at 0");
      await mill.consumers.rebuilds.cancel(VIEW);
    }
    expect(await sumsOf(database)).toEqual(before);
    const { rows } = await database.pool.query(
      "SELECT id FROM outbox UNION ALL SELECT id FROM tidemill.live_tasks",
    );
    expect(rows).toEqual([]);
    expect(await mill.latestPosition()).toBe(20n);
    expect((await statusOf(mill, VIEW)).state).toBe("running");
  });

  it("that writes nothing makes a swap that must be forced", async () => {
    const { database, mill } = await rebuildScene();
    await appendOrders(mill, 20);
    const view = orderView(async (event, context) => {
      if (!context.isRebuild) await project(event, context);
    });
    await mill.startWorker({ ...STEADY, consumers: [view] });
    await mill.waitFor(VIEW, { position: 20n });
    await mill.consumers.rebuilds.start(VIEW);
    await eventuallyBuilt(mill);
    await expect(mill.consumers.rebuilds.swap(VIEW)).rejects.toThrow(
      "every rebuilt table of order_view_v1 is empty, and public.order_view is not",
    );
    await mill.consumers.rebuilds.swap(VIEW, { force: true });
    expect(await sumsOf(database)).toEqual(once(0));
  });
});
