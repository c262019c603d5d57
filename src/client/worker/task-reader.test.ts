import fc from "fast-check";
import { expect, it } from "vitest";
import { Task, ToWorker } from "../../wire/generated/tidemill/v1/worker.ts";
import { readTasks } from "./task-reader.ts";

const text = fc.string({ unit: "grapheme", maxLength: 12 });
const date = fc.date({ min: new Date(0), max: new Date("2100-01-01"), noInvalidDate: true });
const task = fc.record<Task>({
  lease: fc.record({
    token: fc.record({
      taskId: fc.bigInt({ min: 1n, max: 2n ** 62n }).map(String),
      generation: fc.integer({ min: 1, max: 2 ** 31 - 1 }),
      claimId: fc.uuid(),
    }),
    leaseUntil: fc.option(date, { nil: undefined }),
    remainingMs: fc.integer({ min: 0, max: 2 ** 32 - 1 }),
  }),
  queue: text,
  kind: text,
  payload: fc.uint8Array({ maxLength: 300 }).map((bytes) => Buffer.from(bytes)),
  contentType: text,
  partitionKey: text,
  attempt: fc.nat(),
  maxAttempts: fc.nat(),
  priority: fc.integer({ min: 0, max: 9 }),
  tenant: text,
  createdAt: fc.option(date, { nil: undefined }),
  runAt: fc.option(date, { nil: undefined }),
  traceParent: text,
  traceState: text,
  timeoutSeconds: fc.double({ min: 0, max: 1e9, noNaN: true }),
});

it("reads the same of tasks as the generated code does", () => {
  fc.assert(
    fc.property(fc.array(task, { maxLength: 5 }), (tasks) => {
      const message = Buffer.from(
        ToWorker.encode({ message: { $case: "tasks", value: { tasks } } }).finish(),
      );
      const read = readTasks(message) ?? [];
      expect(read.map(({ bytes }) => Task.decode(bytes))).toEqual(tasks);
      for (const [place, one] of read.entries()) {
        const { lease, queue, payload, contentType, timeoutSeconds } = tasks[place] ?? {};
        const { token, remainingMs } = lease ?? {};
        const { bytes: _bytes, ...parts } = one;
        const lazy = { queue, payload, contentType, timeoutSeconds };
        expect(parts).toEqual({ token, remainingMs, ...lazy });
      }
    }),
    { numRuns: 200 },
  );
});

it("leaves other messages alone", () => {
  const others: ToWorker["message"][] = [
    { $case: "leaveAck", value: {} },
    { $case: "drain", value: { graceSeconds: 1, reason: "x" } },
    undefined,
  ];
  for (const message of others) {
    expect(readTasks(Buffer.from(ToWorker.encode({ message }).finish()))).toBeUndefined();
  }
});

it("ends with an error, and nowhere else, when the message is broken", () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 60 }), (bytes) => {
      try {
        readTasks(Buffer.from([18, ...bytes]));
      } catch (error) {
        expect(error).toBeInstanceOf(RangeError);
      }
    }),
    { numRuns: 500 },
  );
});
