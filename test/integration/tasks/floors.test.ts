import { describe, expect, it } from "vitest";
import { failed, queue, type TaskHandler } from "../../../src/index.ts";
import { type TestDatabase, testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { type KeyOwner, olderTransactionsEnded, ownAll } from "./key-owner.ts";
import { LateAnswers } from "./late-answers.ts";
import { BRISK } from "./scene.ts";

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

describe("a floor that was lowered while a look was on its way", () => {
  it("is not raised by what that look saw: a dead letter runs before its successors", async () => {
    const database = await testDatabase();
    const mill = await database.connect();
    const handler = orders.handle(() => failed("no"));
    const worker = await mill.startWorker({ ...BRISK, handlers: [handler] });
    const first = await mill.enqueue(orders, 1, { partitionKey: "order:1" });
    await eventually(async () => expect((await mill.tasks.get(first.id)).state).toBe("dead"));
    await worker.stop();
    const second = await mill.enqueue(orders, 2, { partitionKey: "order:1" });
    await database.pool.query("DELETE FROM tidemill.bucket_owners");

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
