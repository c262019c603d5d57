import { describe, expect, it } from "vitest";
import { consumer, type PersistedEvent } from "../../../src/index.ts";
import { type TestDatabase, testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import {
  appendEvents,
  createHandled,
  expectOnceInOrder,
  readHandled,
  recordHandled,
  recording,
  STEADY,
  statusOf,
} from "./handled.ts";

const LIMIT = 3;

/** Fails at one position until it is cured. */
function fragile(position: bigint, failure: (event: PersistedEvent) => unknown) {
  const attempts: bigint[] = [];
  let isCured = false;
  const sick = consumer("sick", {
    handle: async (event, context) => {
      attempts.push(event.position);
      await recordHandled(event, context);
      if (event.position === position && !isCured) throw failure(event);
    },
  });
  const cure = (): void => {
    isCured = true;
  };
  return { sick, attempts, cure };
}

const boom = (): Error => new Error("cannot book this");

async function setup(): Promise<TestDatabase> {
  const database = await testDatabase();
  await createHandled(database);
  return database;
}

describe("a poison event with onFailure quarantine", () => {
  it("stops its consumer alone: what precedes it is committed, the others run on", async () => {
    const database = await setup();
    const mill = await database.connect();
    const { sick } = fragile(5n, boom);
    const healthy = recording("healthy");
    const options = { consumers: [sick, healthy], ...STEADY, maxConsecutiveFailures: LIMIT };
    const workers = [await mill.startWorker(options), await mill.startWorker(options)];
    const positions = await appendEvents(mill, 10);
    await eventually(async () => {
      expect((await statusOf(mill, "sick")).state).toBe("quarantined");
    });
    positions.push(...(await appendEvents(mill, 5)));
    await mill.waitFor(healthy, { position: 15n });
    await expectOnceInOrder(database.pool, "healthy", positions);
    await expectOnceInOrder(database.pool, "sick", [1n, 2n, 3n, 4n]);
    const { workers: seen } = await mill.status();
    expect(
      seen
        .filter((one) => one.status === "active")
        .map((one) => one.id)
        .sort(),
    ).toEqual(workers.map((one) => one.id).sort());
  });

  it("is shown with its position, its id, the error, the stack and the attempts", async () => {
    const database = await setup();
    const mill = await database.connect();
    const { sick, attempts } = fragile(2n, boom);
    await mill.startWorker({ consumers: [sick], ...STEADY, maxConsecutiveFailures: LIMIT });
    const id = "0197a3f0-0000-7000-8000-000000000001";
    await mill.append({ type: "Order", id: "1" }, [{ type: "A" }, { type: "B", id }]);
    const status = await eventually(async () => {
      const found = await statusOf(mill, "sick");
      expect(found.state).toBe("quarantined");
      return found;
    });
    expect(status.checkpoint).toBe(1n);
    expect(status.lag).toBe(1n);
    expect(status.poison).toMatchObject({
      position: 2n,
      eventId: id,
      error: "cannot book this",
      failures: LIMIT,
    });
    expect(status.poison?.stack).toContain("quarantine.test.ts");
    expect(attempts.filter((position) => position === 2n)).toHaveLength(LIMIT);
    expect(mill.metrics.quarantines.value({ consumer: "sick" })).toBe(1);
  });

  it("is where the consumer goes on when it is resumed", async () => {
    const database = await setup();
    const mill = await database.connect();
    const { sick, attempts, cure } = fragile(3n, boom);
    await mill.startWorker({ consumers: [sick], ...STEADY, maxConsecutiveFailures: LIMIT });
    const positions = await appendEvents(mill, 6);
    await eventually(async () => {
      expect((await statusOf(mill, "sick")).state).toBe("quarantined");
    });
    attempts.length = 0;
    cure();
    expect(await mill.consumers.resume("sick")).toEqual({ resumed: 1, replaying: 0 });
    await mill.waitFor(sick, { position: 6n });
    expect(attempts).toEqual([3n, 4n, 5n, 6n]);
    await expectOnceInOrder(database.pool, "sick", positions);
    expect(await statusOf(mill, "sick")).toMatchObject({ state: "running", poison: undefined });
  });

  it("quarantines again, after all its attempts, when it was resumed too early", async () => {
    const database = await setup();
    const mill = await database.connect();
    const { sick, attempts } = fragile(1n, boom);
    await mill.startWorker({ consumers: [sick], ...STEADY, maxConsecutiveFailures: LIMIT });
    await appendEvents(mill, 1);
    for (let round = 1; round <= 2; round += 1) {
      await eventually(async () => {
        expect((await statusOf(mill, "sick")).poison?.failures).toBe(LIMIT);
        expect(attempts).toHaveLength(round * LIMIT);
      });
      if (round === 1) await mill.consumers.resume("sick");
    }
    expect(await readHandled(database.pool)).toEqual([]);
  });

  it("stays quarantined for the worker that takes over", async () => {
    const database = await setup();
    const mill = await database.connect();
    const { sick, attempts, cure } = fragile(1n, boom);
    const options = { consumers: [sick], ...STEADY, maxConsecutiveFailures: LIMIT };
    const first = await mill.startWorker(options);
    await appendEvents(mill, 2);
    await eventually(async () => {
      expect((await statusOf(mill, "sick")).state).toBe("quarantined");
    });
    await first.stop();
    attempts.length = 0;
    const second = await mill.startWorker(options);
    await eventually(() => expect(second.assigned).toEqual(["sick"]));
    await expect(mill.waitFor(sick, { position: 2n })).rejects.toThrow("quarantined");
    expect(attempts).toEqual([]);
    cure();
    await mill.consumers.resume("sick");
    await mill.waitFor(sick, { position: 2n });
    await expectOnceInOrder(database.pool, "sick", [1n, 2n]);
  });

  it("can be passed for ever by a person, for a reason that is kept", async () => {
    const database = await setup();
    const mill = await database.connect();
    const { sick } = fragile(2n, boom);
    await mill.startWorker({ consumers: [sick], ...STEADY, maxConsecutiveFailures: LIMIT });
    await appendEvents(mill, 3);
    await eventually(async () => {
      expect((await statusOf(mill, "sick")).state).toBe("quarantined");
    });
    await expect(mill.consumers.skip("sick", { reason: " " })).rejects.toThrow("needs a reason");
    expect(await mill.consumers.skip("sick", { reason: "booked by hand" })).toBe(2n);
    await mill.waitFor(sick, { position: 3n });
    await expectOnceInOrder(database.pool, "sick", [1n, 3n]);
    const { rows } = await database.pool.query(
      "SELECT action, detail, reason FROM tidemill.operator_actions",
    );
    expect(rows).toEqual([{ action: "skip", detail: { position: "2" }, reason: "booked by hand" }]);
  });

  it.each([
    ["a text", () => "just a text", "just a text"],
    ["nothing", () => undefined, "undefined"],
    ["an object without prototype", () => Object.create(null) as unknown, "null prototype"],
    ["an error with a zero byte", () => new Error("bad \u0000 byte"), "bad"],
  ])("may throw whatever it likes: %s", async (_, failure, text) => {
    const database = await setup();
    const mill = await database.connect();
    const { sick } = fragile(1n, failure);
    const worker = mill.worker({ consumers: [sick], ...STEADY, maxConsecutiveFailures: 1 });
    const stop = new AbortController();
    const running = worker.start(stop.signal);
    await appendEvents(mill, 1);
    await Promise.race([
      running,
      eventually(async () => {
        expect((await statusOf(mill, "sick")).poison?.error).toContain(text);
      }),
    ]);
    stop.abort();
    await running;
  });

  it("may be a payload that is not JSON, which the error quotes", async () => {
    const database = await setup();
    const mill = await database.connect();
    const reader = consumer("reader", { handle: (event) => void event.data });
    const worker = mill.worker({ consumers: [reader], ...STEADY, maxConsecutiveFailures: 1 });
    const stop = new AbortController();
    const running = worker.start(stop.signal);
    const bytes = Uint8Array.of(0x00, 0xff);
    await mill.append({ type: "Blob", id: "1" }, [{ type: "Blob", bytes }]);
    await Promise.race([
      running,
      eventually(async () => {
        expect((await statusOf(mill, "reader")).poison?.error).toContain("not valid JSON");
      }),
    ]);
    stop.abort();
    await running;
  });
});
