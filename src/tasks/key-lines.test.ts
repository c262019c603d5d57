import { describe, expect, it } from "vitest";
import { ClaimedRow } from "./claimed-row.ts";
import { Claim, ClaimedTask } from "./claimed-task.ts";
import { KeyLines } from "./key-lines.ts";
import { queue } from "./queue.ts";
import { FIELD } from "./sql/claim.ts";

const strict = queue("orders");
const wide = queue("orders", { keyConcurrency: 2 });

function task(id: number, definition = strict): ClaimedTask {
  const row = [id, -1, "", 1, "", 5, 0, "orders", "default", 5, "key", "1"];
  const facts = { claimedAtMs: 0, trustedUntilMs: 1, isHeldHead: false };
  const handler = definition.handle(() => undefined);
  const sources = { laneOf: () => undefined, handlerOf: () => handler };
  return new ClaimedTask(new ClaimedRow(row.join(FIELD)), sources, new Claim("claim"), facts);
}

describe("the line of a key", () => {
  it("releases the next only when the one before has left", () => {
    const lines = new KeyLines();
    const [first, second] = [task(1), task(2)];
    expect(lines.enter("key", first)).toBe(true);
    expect(lines.enter("key", second)).toBe(false);
    expect(lines.waiting).toBe(1);
    expect(lines.leave("key", second)).toBeUndefined(); // It was not released.
    expect(lines.leave("key", first)).toBe(second);
    expect(lines.waiting).toBe(0);
    expect(lines.leave("key", first)).toBeUndefined(); // It left before.
    expect(lines.enter("key", task(3))).toBe(false);
  });

  it("passes over one that was cancelled while it waited", () => {
    const lines = new KeyLines();
    const [first, second, third] = [task(1), task(2), task(3)];
    for (const one of [first, second, third]) lines.enter("key", one);
    second.state = "settled";
    expect(lines.leave("key", first)).toBe(third);
    expect(lines.leave("key", third)).toBeUndefined();
    expect(lines.enter("key", task(4))).toBe(true);
  });

  it("lets as many run at once as the queue allows", () => {
    const lines = new KeyLines();
    expect(lines.enter("key", task(1, wide))).toBe(true);
    expect(lines.enter("key", task(2, wide))).toBe(true);
    expect(lines.enter("key", task(3, wide))).toBe(false);
  });

  it("gives back everything that waits when it is cut", () => {
    const lines = new KeyLines();
    const [first, second, third] = [task(1), task(2), task(3)];
    for (const one of [first, second, third]) lines.enter("key", one);
    expect(lines.cut("key")).toEqual([second, third]);
    expect(lines.waiting).toBe(0);
    expect(lines.leave("key", first)).toBeUndefined();
  });

  it("names the keys of which too many wait", () => {
    const lines = new KeyLines();
    for (const id of [1, 2, 3]) lines.enter("0\u0000default\u0000key", task(id));
    expect(lines.fullKeys(0, 2)).toEqual(["default\u001fkey"]);
    expect(lines.fullKeys(0, 3)).toEqual([]);
    expect(lines.counts(0)).toEqual([{ tenant: "default", key: "key", count: 3 }]);
    expect([lines.fullKeys(1, 2), lines.counts(1)]).toEqual([[], []]); // Of another key space.
  });

  it("counts of one key no more than fifty against the others", () => {
    const lines = new KeyLines();
    const all = Array.from({ length: 61 }, (_, id) => task(id));
    for (const one of all) lines.enter("key", one);
    expect([lines.waiting, lines.ahead]).toEqual([60, 50]);
    for (const one of all.slice(0, 20)) lines.leave("key", one);
    expect([lines.waiting, lines.ahead]).toEqual([40, 40]);
    lines.cut("key");
    expect([lines.waiting, lines.ahead]).toEqual([0, 0]);
  });

  it("names the keys of which some are on their way back, until all are", () => {
    const lines = new KeyLines();
    for (const key of ["a", "a", "b"]) lines.startReturning(`0\u0000default\u0000${key}`);
    expect(lines.fullKeys(0, 50)).toEqual(["default\u001fa", "default\u001fb"]);
    for (const key of ["a", "b"]) lines.endReturning(`0\u0000default\u0000${key}`);
    expect(lines.fullKeys(0, 50)).toEqual(["default\u001fa"]);
    lines.endReturning("0\u0000default\u0000a");
    expect(lines.isReturning("0\u0000default\u0000a")).toBe(false);
  });
});
