import { describe, expect, it } from "vitest";
import type { Database, Store } from "../../../src/db/database.ts";
import {
  failed,
  queue,
  type TaskHandle,
  type TaskHandler,
  type Tidemill,
} from "../../../src/index.ts";
import { DeadLetters } from "../../../src/tasks/dead-letters.ts";
import { TaskAdmin } from "../../../src/tasks/task-admin.ts";
import { type TestDatabase, testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { type KeyOwner, olderTransactionsEnded, ownAll } from "./key-owner.ts";
import { LateAnswers } from "./late-answers.ts";
import { BRISK, readColumn } from "./scene.ts";

const orders = queue("orders", { maxAttempts: 1 });

async function ownAllLate(
  database: TestDatabase,
  handler: TaskHandler,
): Promise<{ owner: KeyOwner; answers: LateAnswers }> {
  const late: LateAnswers[] = [];
  const owner = await ownAll(database, handler, (session) => {
    const answers = new LateAnswers(session, "key_lanes_look");
    late.push(answers);
    return answers;
  });
  const [answers] = late;
  if (answers === undefined) throw new Error("nothing is late");
  return { owner, answers };
}

interface Scene {
  readonly database: TestDatabase;
  readonly mill: Tidemill;
  readonly handler: TaskHandler;
  /** A dead letter, and the task that waits behind it. */
  readonly first: TaskHandle;
  readonly second: TaskHandle;
}

/** Nobody owns their bucket. */
async function deadAndWaiting(): Promise<Scene> {
  const database = await testDatabase();
  const mill = await database.connect();
  const handler = orders.handle(() => failed("no"));
  const worker = await mill.startWorker({ ...BRISK, handlers: [handler] });
  const first = await mill.enqueue(orders, 1, { partitionKey: "order:1" });
  await eventually(async () => expect((await mill.tasks.get(first.id)).state).toBe("dead"));
  await worker.stop();
  const second = await mill.enqueue(orders, 2, { partitionKey: "order:1" });
  await database.pool.query("DELETE FROM tidemill.bucket_owners");
  return { database, mill, handler, first, second };
}

/** Of a process that dies with its first COMMIT: whatever was to come next is not done. */
function dying(db: Database): Store {
  let isDead = false;
  const alive = async <T>(act: () => Promise<T>): Promise<T> => {
    if (isDead) throw new Error("it died");
    return await act();
  };
  return {
    isWalled: false,
    query: (statement, values) => alive(() => db.query(statement, values)),
    transaction: (work) =>
      alive(async () => {
        const done = await db.transaction(work);
        isDead = true;
        return done;
      }),
    withConnection: (work) => alive(() => db.withConnection(work)),
    over: (executor) => db.over(executor),
  };
}

describe("a dead letter that comes back below a floor", () => {
  const CHANNELS = { changes: "changes", tasks: "tasks" };

  it.each([
    ["redrive", (store: Store) => new DeadLetters(store, CHANNELS).redrive()],
    ["retry", (store: Store, id: string) => new TaskAdmin(store, CHANNELS).retry(id)],
  ])("is announced, though whoever brought it died at once: %s", async (_how, act) => {
    const { database, handler, first, second } = await deadAndWaiting();
    const owner = await ownAll(database, handler);
    await owner.settling.open(owner.session);
    await olderTransactionsEnded(database);
    await owner.keys.look();
    const version = "SELECT version::int FROM tidemill.cluster_changes";
    const [before] = await readColumn<number>(database, version);
    await act(dying(owner.db), first.id).catch(() => {});
    const [after] = await readColumn<number>(database, version);
    if (after !== before) owner.keys.changed(); // As every worker does that hears or sees it.
    expect(await owner.claim()).toEqual([first.id, second.id]);
  });
});

describe("a floor that was lowered while a look was on its way", () => {
  it("is not raised by what that look saw: a dead letter runs before its successors", async () => {
    const { database, mill, handler, first, second } = await deadAndWaiting();
    const { owner, answers } = await ownAllLate(database, handler);
    const { keys, settling, session } = owner;
    await settling.open(session);
    await olderTransactionsEnded(database);
    const looking = keys.look();
    await answers.answered;
    expect(await mill.deadLetters.redrive()).toBe(1);
    keys.changed(); // As the announcement of the redrive does.
    answers.release();
    await looking;
    expect(settling.settled).toBeGreaterThanOrEqual(Number(second.id));
    expect(await owner.claim()).toEqual([first.id, second.id]);
  });
});

describe("a floor that rests on a claim", () => {
  it("is no good to claims after the crash that took that one back", async () => {
    const database = await testDatabase();
    const { pool } = database;
    const mill = await database.connect();
    const handler = orders.handle(() => failed("no"));
    const first = await mill.enqueue(orders, 1, { partitionKey: "order:1" });
    const owner = await ownAll(database, handler);
    const { keys, settling, session } = owner;
    await keys.look();
    await settling.open(session);
    expect(await owner.claim()).toEqual([first.id]);
    const second = await mill.enqueue(orders, 2, { partitionKey: "order:1" });
    await keys.workArrived();
    await olderTransactionsEnded(database);
    await keys.look();
    expect(settling.settled).toBeGreaterThanOrEqual(Number(first.id));

    // What a crash leaves of a claim that was not flushed, and of an unlogged table.
    await pool.query(
      `UPDATE tidemill.tasks SET state = 'pending', attempt = 0, lease_generation = 0,
              claim_id = NULL, leased_by = NULL, claimed_at = NULL, lease_until = NULL`,
    );
    await pool.query("DELETE FROM tidemill.task_claims");
    await pool.query("TRUNCATE tidemill.crash_marker");
    expect(await owner.claim()).toEqual([]);
    await keys.look();
    expect(await owner.claim()).toEqual([first.id, second.id]);
  });
});
