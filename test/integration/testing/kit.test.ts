import { describe, expect, it } from "vitest";
import { completed, failed, queue } from "../../../src/index.ts";
import { TestKit } from "../../../src/testing/index.ts";
import { onCleanup, testDatabase } from "../../support/database.ts";

const charges = queue<{ order: string }>("charges", {
  backoff: { kind: "fixed", baseSeconds: 60 },
});

async function kitFor(handler: Parameters<typeof charges.handle>[0]): Promise<TestKit> {
  const db = await testDatabase();
  const kit = await TestKit.open(db.url, { handlers: [charges.handle(handler)] });
  onCleanup(() => kit.close());
  return kit;
}

describe("the test kit", () => {
  it("runs what can run and leaves the rest for its time", async () => {
    const kit = await kitFor(() => completed("done"));
    const now = await kit.mill.enqueue(charges, { order: "1" });
    const later = await kit.mill.enqueue(charges, { order: "2" }, { delaySeconds: 3_600 });
    await kit.runUntilIdle();
    expect((await kit.mill.tasks.get(now.id)).state).toBe("completed");
    expect((await kit.mill.tasks.get(later.id)).state).toBe("scheduled");
    await kit.advance(3_600);
    await kit.runUntilIdle();
    expect((await kit.mill.tasks.get(later.id)).state).toBe("completed");
  });

  it("passes the time between attempts", async () => {
    const kit = await kitFor((task) => (task.attempt < 3 ? failed("busy") : completed()));
    const { id } = await kit.mill.enqueue(charges, { order: "1" });
    for (const attempt of [1, 2, 3]) {
      await kit.runUntilIdle();
      expect(kit.deliveries.length).toBe(attempt);
      await kit.advance(60);
    }
    expect((await kit.mill.tasks.get(id)).state).toBe("completed");
  });

  it("shows a handler that charges twice when its process dies before the commit", async () => {
    const charged: string[] = [];
    const kit = await kitFor((task) => {
      charged.push(task.payload.order);
      return completed();
    });
    await kit.mill.enqueue(charges, { order: "1" });
    kit.crashBeforeCommit("charges");
    await kit.runUntilIdle();
    expect(charged).toEqual(["1", "1"]);
    expect(kit.deliveries.map((one) => one.attempt)).toEqual([1, 2]);
  });

  it("takes a lease away while the handler runs: only the second run is accepted", async () => {
    const kit = await kitFor((task) => completed(task.attempt));
    const { id } = await kit.mill.enqueue(charges, { order: "1" });
    kit.loseLease("charges");
    await kit.runUntilIdle();
    expect((await kit.mill.tasks.get(id)).result).toBe(2);
  });

  it("delivers a task twice", async () => {
    const kit = await kitFor(() => completed());
    await kit.mill.enqueue(charges, { order: "1" });
    kit.deliverTwice("charges");
    await kit.runUntilIdle();
    expect(kit.deliveries.map((one) => one.attempt)).toEqual([1, 1]);
  });

  it("refuses a fault for a queue that it does not run", async () => {
    const kit = await kitFor(() => completed());
    expect(() => kit.loseLease("refunds")).toThrow('no handler for queue "refunds"');
  });
});
