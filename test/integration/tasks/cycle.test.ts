import { describe, expect, it } from "vitest";
import { completed, queue } from "../../../src/index.ts";
import { testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";

describe("a task", () => {
  it("is enqueued, claimed, handled and kept in history with its result", async () => {
    const db = await testDatabase();
    const mill = await db.connect();
    const mails = queue<{ to: string }, { sent: boolean }>("mails");
    const seen: unknown[] = [];
    const handler = mails.handle(async (task, context) => {
      seen.push([task.id, task.payload, task.attempt, context.token.generation]);
      return completed({ sent: true });
    });
    await mill.startWorker({ handlers: [handler] });
    const { id } = await mill.enqueue(mails, { to: "ada" });
    await eventually(async () => {
      const { rows } = await db.pool.query("SELECT id, state, result FROM tidemill.task_history");
      expect(rows).toEqual([{ id, state: "completed", result: '{"sent":true}' }]);
    });
    expect(seen).toEqual([[id, { to: "ada" }, 1, 1]]);
    const { rows } = await db.pool.query("SELECT count(*)::int AS n FROM tidemill.tasks");
    expect(rows).toEqual([{ n: 0 }]);
  });
});
