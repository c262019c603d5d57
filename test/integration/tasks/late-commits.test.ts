import type pg from "pg";
import { describe, expect, it } from "vitest";
import { type Queue, queue, type Tidemill } from "../../../src/index.ts";
import { type TestDatabase, testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { backendOf, isBlocked } from "../../support/handled.ts";
import { BRISK } from "./scene.ts";

/*
 * Floors of lanes pass what was run, thousands of numbers at a time. A task whose number was drawn
 * before theirs, and which commits after they were run, must be found all the same.
 */

interface Scene {
  readonly database: TestDatabase;
  readonly mill: Tidemill;
  readonly mails: Queue<string>;
  readonly ran: Map<string, number>;
}

/** More than the floors wait for, again and again. */
const ROUNDS = 5;
const ROUND = 1_500;
/** Enough for a pack. */
const BULK = 20;

async function startScene(): Promise<Scene> {
  const database = await testDatabase();
  const mill = await database.connect();
  const mails = queue<string>("mails");
  const ran = new Map<string, number>();
  const handler = mails.handle(({ payload }) => {
    ran.set(payload, (ran.get(payload) ?? 0) + 1);
  });
  await mill.startWorker({ ...BRISK, handlers: [handler], concurrency: 50 });
  return { database, mill, mails, ran };
}

const bulkOf = (payload: string, size: number): { payload: string }[] =>
  Array.from({ length: size }, () => ({ payload }));

async function runManyOthers({ mill, mails, ran }: Scene): Promise<void> {
  for (let round = 1; round <= ROUNDS; round += 1) {
    await mill.enqueueMany(mails, bulkOf("other", ROUND));
    await eventually(() => expect(ran.get("other")).toBe(round * ROUND));
  }
  expect(ran.get("late")).toBeUndefined();
}

/** Rows and packs of late tasks wait for a lock after their numbers were drawn. */
async function holdInserts({ database }: Scene): Promise<pg.Client> {
  await database.pool.query(
    `CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS
     $$ BEGIN PERFORM pg_advisory_xact_lock_shared(42); RETURN NEW; END $$;
     CREATE TRIGGER hold BEFORE INSERT ON tidemill.tasks FOR EACH ROW
       WHEN (NEW.payload = '"late"') EXECUTE FUNCTION hold();
     CREATE TRIGGER hold BEFORE INSERT ON tidemill.task_packs FOR EACH ROW
       WHEN (NEW.payloads LIKE '"late"%') EXECUTE FUNCTION hold()`,
  );
  const gate = await database.session();
  await gate.query("SELECT pg_advisory_lock(42)");
  return gate;
}

/**
 * The sequence writes ahead what it will hand out, and whoever makes it do so gets a transaction id
 * all the same. So many numbers are left that nobody has to.
 */
async function writeNumbersAhead({ database: { pool } }: Scene): Promise<void> {
  await eventually(
    async () => {
      await pool.query("SELECT nextval('tidemill.task_numbers')");
      const { rows } = await pool.query<{ left: number }>(
        "SELECT log_cnt::int AS left FROM tidemill.task_numbers",
      );
      expect(rows[0]?.left).toBeGreaterThan(BULK);
    },
    { everyMs: 0 },
  );
}

describe.each([
  ["a task", 1],
  ["a bulk in a pack", BULK],
])("%s that commits after thousands of later ones were run", (_, size) => {
  it("is run when its transaction stayed open", async () => {
    const scene = await startScene();
    const { database, mill, mails, ran } = scene;
    const session = await database.session();
    await session.query("BEGIN");
    await mill.enqueueMany(mails, bulkOf("late", size), { tx: session });
    await runManyOthers(scene);
    await session.query("COMMIT");
    await eventually(() => expect(ran.get("late")).toBe(size), { timeoutMs: 15_000 });
  });

  it("is run when its insert had drawn numbers and written nothing", async () => {
    const scene = await startScene();
    const { database, mill, mails, ran } = scene;
    await runManyOthers(scene);
    ran.clear();
    const gate = await holdInserts(scene);
    const session = await database.session();
    const pid = await backendOf(session);
    await writeNumbersAhead(scene);
    const enqueuing = mill.enqueueMany(mails, bulkOf("late", size), { tx: session });
    await isBlocked(database, pid);
    await runManyOthers(scene);
    await gate.query("SELECT pg_advisory_unlock(42)");
    await enqueuing;
    await eventually(() => expect(ran.get("late")).toBe(size), { timeoutMs: 15_000 });
  });
});
