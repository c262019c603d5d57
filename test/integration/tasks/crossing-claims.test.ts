import { randomUUID } from "node:crypto";
import { describe, expect, it } from "vitest";
import { silentLogger } from "../../../src/base/log.ts";
import { Database, type Queryable } from "../../../src/db/database.ts";
import { resolveNames } from "../../../src/db/names.ts";
import { queue } from "../../../src/index.ts";
import { type ClaimedRows, claimTasks } from "../../../src/tasks/sql/claim.ts";
import { onCleanup, type TestDatabase, testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { BRISK, range, readColumn } from "./scene.ts";

const orders = queue<number>("orders");

interface Scene {
  readonly database: TestDatabase;
  readonly db: Database;
  readonly claim: (db: Queryable, isBesideOthers: boolean) => Promise<ClaimedRows>;
}

/** Ten tasks in one lane, of which each claim wants five. */
async function tenTasks(): Promise<Scene> {
  const database = await testDatabase();
  const mill = await database.connect();
  await mill.enqueueMany(
    orders,
    range(10).map((payload) => ({ payload })),
  );
  const db = new Database({
    url: database.url,
    names: resolveNames(),
    logger: silentLogger,
    poolSize: 3,
    applicationName: "crossing-claims",
    preparedStatements: false,
    queryTimeoutMs: 30_000,
    connectTimeoutMs: 10_000,
  });
  onCleanup(() => db.close());
  const [lane = 0] = await readColumn<number>(
    database,
    "SELECT lane FROM tidemill.task_lanes WHERE priority = 5",
  );
  return {
    database,
    db,
    claim: (through, isBesideOthers) =>
      claimTasks(
        through,
        {
          claimId: randomUUID(),
          workerId: randomUUID(),
          leaseSeconds: 60,
          proofs: [],
          isBesideOthers,
          waitMs: 30_000,
        },
        [{ lane, floor: 0, take: 5 }],
      ),
  };
}

async function oneWaits(database: TestDatabase): Promise<void> {
  await eventually(async () => {
    const waiting = await readColumn<number>(
      database,
      `SELECT count(*)::int FROM pg_stat_activity
        WHERE application_name LIKE 'crossing-claims%' AND wait_event_type = 'Lock'`,
    );
    expect(waiting).toEqual([1]);
  });
}

const idsOf = ({ rows }: ClaimedRows): string[] => rows.map((row) => row.split("\u001f")[0] ?? "");

describe("two claims that meet in a lane", () => {
  it("take different tasks when they have regard to each other", async () => {
    const { db, claim } = await tenTasks();
    await db.transaction(async (tx) => {
      const first = await claim(tx, true);
      const second = await claim(db, true); // Does not wait for the first.
      expect([first.missed, second.missed]).toEqual([0, 0]);
      expect(new Set([...idsOf(first), ...idsOf(second)]).size).toBe(10);
    });
  });

  it("never take the same, and the later one tells that it missed some", async () => {
    const { database, db, claim } = await tenTasks();
    let later: Promise<ClaimedRows> | undefined;
    const first = await db.transaction(async (tx) => {
      const claimed = await claim(tx, false);
      later = claim(db, false);
      await oneWaits(database);
      return claimed;
    });
    expect(idsOf(first)).toHaveLength(5);
    const second = await later;
    expect(second?.rows).toEqual([]);
    expect(second?.missed).toBe(5);
    expect(idsOf(await claim(db, true))).toHaveLength(5);
  });

  it("leave a task to the later one when the first is rolled back", async () => {
    const { database, db, claim } = await tenTasks();
    let later: Promise<ClaimedRows> | undefined;
    const undone = db.transaction(async (tx) => {
      await claim(tx, false);
      later = claim(db, false);
      await oneWaits(database);
      throw new Error("undone");
    });
    await expect(undone).rejects.toThrow("undone");
    const second = await later;
    expect(second?.rows).toHaveLength(5);
    expect(second?.missed).toBe(0);
  });
});

it("a worker goes on while a stranger has a pending task locked, and runs it later", async () => {
  const { database } = await tenTasks();
  const stranger = await database.session();
  await stranger.query("BEGIN");
  const { rows } = await stranger.query<{ payload: string }>(
    "SELECT payload FROM tidemill.tasks ORDER BY id LIMIT 1 FOR UPDATE",
  );
  const ran: number[] = [];
  const handlers = [orders.handle(({ payload }) => void ran.push(payload))];
  const mill = await database.connect();
  await mill.startWorker({ ...BRISK, handlers });
  await eventually(() => expect(ran).toHaveLength(9));
  expect(ran).not.toContain(Number(rows[0]?.payload));
  await stranger.query("COMMIT");
  await mill.enqueue(orders, 10); // Nobody announces that a lock is gone.
  await eventually(() => expect(ran).toHaveLength(11));
});
