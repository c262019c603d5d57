import fc from "fast-check";
import { expect, it } from "vitest";
import { ClaimedPack } from "../../tasks/claimed-pack.ts";
import { ClaimedRow } from "../../tasks/claimed-row.ts";
import { Claim, ClaimedTask, type TaskPack } from "../../tasks/claimed-task.ts";
import { queue } from "../../tasks/queue.ts";
import { FIELD } from "../../tasks/sql/claim.ts";
import { SEPARATOR } from "../../tasks/sql/enqueue.ts";
import { Result, ServerEvent, WorkerEvent } from "../../wire/generated/codeq/worker.ts";
import type { Assignment } from "./assignment.ts";
import { readEvent, TaskBatches, writeAcks } from "./codeq-batches.ts";
import { toOutcome, toTask } from "./codeq-messages.ts";

const text = fc.oneof(fc.constant(""), fc.string({ unit: "binary", maxLength: 40 }));
const resultJson = fc.oneof(
  fc.json().map((json) => Buffer.from(json)),
  fc.constantFrom(Buffer.alloc(0), Buffer.from(' {"a":"\ufffd"}'), Buffer.from([0x7b, 0xff])),
);
const result = fc
  .record({
    taskId: fc.oneof(fc.nat().map(String), text),
    status: fc.constantFrom("COMPLETED", "FAILED", "", "WAITING"),
    resultJson,
    error: fc.oneof(fc.constantFrom("no", " "), text),
  })
  .map((one) => Result.fromPartial(one));

it("results that are read by hand are what generated code makes of them", () => {
  fc.assert(
    fc.property(fc.array(result, { maxLength: 8 }), (results) => {
      const event = { $case: "resultBatch" as const, value: { results } };
      const bytes = Buffer.from(WorkerEvent.encode({ event }).finish());
      const said = readEvent(bytes);
      if (said?.$case !== "results") expect.fail("no results");
      const { event: decoded } = WorkerEvent.decode(bytes);
      if (decoded?.$case !== "resultBatch") expect.fail("no results");
      expect(said.value.ids).toEqual(decoded.value.results.map(({ taskId }) => taskId));
      expect(said.value.outcomes).toEqual(
        decoded.value.results.map(({ status, resultJson: json, error }) =>
          toOutcome({ status, bytes: json, from: 0, to: json.length, error }),
        ),
      );
    }),
    { numRuns: 500 },
  );
});

it("of several events in one message the last that is known counts", () => {
  const ready: WorkerEvent["event"] = {
    $case: "ready",
    value: { commands: ["mail"], leaseSeconds: 0, count: 3 },
  };
  const batch: WorkerEvent["event"] = { $case: "resultBatch", value: { results: [] } };
  const bytesOf = (...events: WorkerEvent["event"][]): Buffer =>
    Buffer.concat(events.map((event) => WorkerEvent.encode({ event }).finish()));
  expect(readEvent(bytesOf(batch, ready))).toEqual(ready);
  expect(readEvent(bytesOf(ready, batch))?.$case).toBe("results");
  expect(readEvent(Buffer.concat([bytesOf(ready), Buffer.of(0x7a, 0)]))).toEqual(ready);
  expect(readEvent(Buffer.of(0x7a, 0))).toBeUndefined();
});

it("acks that are written by hand are read by generated code", () => {
  const answer = fc.constantFrom("accepted", "refused", "replaced", "not-owner", "schöner Fehler");
  fc.assert(
    fc.property(fc.array(fc.tuple(text, answer), { maxLength: 20 }), (acks) => {
      const [ids, answers] = [acks.map(([id]) => id), acks.map(([, one]) => one)];
      const { event } = ServerEvent.decode(writeAcks(ids, answers));
      if (event?.$case !== "resultAckBatch") expect.fail("no acks");
      const isOver = (one: string): boolean => one === "refused" || one === "replaced";
      expect(event.value.acks).toEqual(
        acks.map(([id, one]) => ({
          taskId: Buffer.from(id).toString(),
          ok: one === "accepted",
          errorMessage: one === "accepted" ? "" : isOver(one) ? "not-in-progress" : one,
        })),
      );
    }),
    { numRuns: 300 },
  );
});

const SOURCES = {
  laneOf: () => ({ queue: "mails", tenant: "acme", priority: 5 }),
  handlerOf: () => queue("mails").handle(() => undefined),
};
const FACTS = { claimedAtMs: 0, trustedUntilMs: 0, isHeldHead: false };

function claimOf(id: string): Claim {
  const claim = new Claim(id);
  claim.until = new Date("2026-01-31T09:00:00Z");
  return claim;
}

function packOf(first: number, payloads: readonly string[]): ClaimedTask[] {
  const ids = payloads.map((_, place) => first + place);
  const fields = [first, 1, 5, 1_700_000_000_123, "", "", ids.join(), payloads.join(SEPARATOR)];
  const pack: TaskPack = new ClaimedPack(fields.join(FIELD), "claim");
  const claim = claimOf("claim");
  return pack.rows().map((row) => new ClaimedTask(row, SOURCES, claim, { ...FACTS, pack }));
}

const rowOf = (id: number, payload: string, ...rare: (string | number)[]): ClaimedTask =>
  new ClaimedTask(
    new ClaimedRow([id, 1, "", 2, "", 7, 1_600_000_000_000, ...rare, payload].join(FIELD)),
    SOURCES,
    claimOf("other"),
    FACTS,
  );

it("tasks that are written by hand are read by generated code, whatever came before them", () => {
  const bytes = [1_500_000_000_000, "f", "", "text/plain", "\\x00ff", '{"webhook":"http://a"}'];
  const [renewed, ...others] = packOf(100, ['{"n":1}', '"größer"', "null"]);
  renewed?.renewed({ until: new Date("2026-01-31T09:00:30Z") });
  const tasks = [
    ...packOf(1, ['{"n":1}', '"\u{1f600}"', "1".repeat(300)]),
    rowOf(10, "{}"),
    rowOf(11, "", ...bytes),
    ...packOf(20, ["1", "2"]),
    ...others,
    ...(renewed === undefined ? [] : [renewed]),
  ];
  const batches = new TaskBatches("hand");
  for (const some of [tasks, tasks.toReversed()]) {
    const written = batches.write(some.map((task) => ({ task }) as Assignment));
    const { event } = ServerEvent.decode(written);
    if (event?.$case !== "taskBatch") expect.fail("no tasks");
    expect(event.value.tasks).toEqual(some.map((task) => toTask(task, "hand")));
    for (const task of some) expect(task.bytesMax).toBeGreaterThan(task.payloadBytes.length);
  }
});
