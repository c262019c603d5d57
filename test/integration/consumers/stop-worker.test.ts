import { expect, it } from "vitest";
import { ConsecutiveFailuresError, consumer } from "../../../src/index.ts";
import { testDatabase } from "../../support/database.ts";
import {
  appendEvents,
  createHandled,
  readHandled,
  readWorkerIds,
  recordHandled,
  STEADY,
  statusOf,
} from "./handled.ts";

it("ends the whole worker with onFailure stop-worker, as the sources do", async () => {
  const database = await testDatabase();
  await createHandled(database);
  const mill = await database.connect();
  let attempts = 0;
  const sick = consumer("sick", {
    onFailure: "stop-worker",
    handle: async (event, context) => {
      await recordHandled(event, context);
      if (event.position < 3n) return;
      attempts += 1;
      throw new Error("cannot book this");
    },
  });
  await appendEvents(mill, 5);
  const worker = mill.worker({ consumers: [sick], ...STEADY, maxConsecutiveFailures: 4 });
  const failure: unknown = await worker.start().catch((error: unknown) => error);
  expect(failure).toBeInstanceOf(ConsecutiveFailuresError);
  expect(failure).toMatchObject({
    code: "TM_CONSECUTIVE_FAILURES",
    retryable: false,
    consumer: "sick",
    position: 3n,
    message: "consumer sick failed 4 times at position 3: cannot book this",
    cause: { message: "cannot book this" },
  });
  expect(attempts).toBe(4);
  expect(await readHandled(database.pool)).toEqual([]);
  expect((await statusOf(mill, "sick")).checkpoint).toBe(0n);
  expect(await readWorkerIds(database.pool)).toEqual([]);
  expect((await mill.listConsumers())[0]).toMatchObject({ state: "unassigned", poison: undefined });
});

it("counts failures in a row: a success in between starts the count anew", async () => {
  const database = await testDatabase();
  const mill = await database.connect();
  const left = new Map<bigint, number>();
  const flaky = consumer("flaky", {
    onFailure: "stop-worker",
    handle: ({ position }) => {
      const failures = left.get(position) ?? 2;
      left.set(position, failures - 1);
      if (failures > 0) throw new Error("not yet");
    },
  });
  await appendEvents(mill, 4);
  const options = { consumers: [flaky], ...STEADY, batchSize: 1, maxConsecutiveFailures: 3 };
  expect(await mill.runToHead(options)).toBe(4n);
});
