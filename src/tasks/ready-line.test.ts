import { describe, expect, it } from "vitest";
import { ClaimedRow } from "./claimed-row.ts";
import { Claim, ClaimedTask } from "./claimed-task.ts";
import { queue } from "./queue.ts";
import { ReadyLine } from "./ready-line.ts";
import { FIELD } from "./sql/claim.ts";

const orders = queue("orders", { tenantWeights: { heavy: 2 } });
const handler = orders.handle(() => undefined);
const TURN = 3;

interface Given {
  readonly lane: number;
  readonly tenant?: string;
  readonly priority?: number;
  readonly runAt?: number;
  readonly claimedAtMs?: number;
}

let lastId = 0;

function task(given: Given): ClaimedTask {
  const { lane, tenant = "a", priority = 5, runAt = 0, claimedAtMs = 0 } = given;
  lastId += 1;
  const key = lane < 0 ? `key ${lastId}` : "";
  const owner = ["orders", tenant, priority, key];
  const row = [lastId, lane, "", 1, "", 5, runAt * 1000, ...owner, "1"];
  const sources = { laneOf: () => undefined, handlerOf: () => handler };
  const facts = { claimedAtMs, trustedUntilMs: 1, isHeldHead: false };
  return new ClaimedTask(new ClaimedRow(row.join(FIELD)), sources, new Claim("claim"), facts);
}

/** A line with so many tasks of each kind, one kind after another. */
function lineOf(...kinds: (Given & { readonly count: number })[]): ReadyLine {
  const line = new ReadyLine(orders.settings, {
    fairnessTurn: TURN,
    agingSeconds: 10,
    onDry: (lane) => dry.push(lane),
  });
  for (const kind of kinds) pushMany(line, kind);
  return line;
}

let dry: number[] = [];

function pushMany(line: ReadyLine, { count, ...kind }: Given & { readonly count: number }): void {
  for (let left = count; left > 0; left -= 1) line.push(task(kind));
}

function shiftAll(line: ReadyLine, count = line.size): ClaimedTask[] {
  return Array.from({ length: count }, () => line.shift()).filter((one) => one !== undefined);
}

const tenantsOf = (tasks: readonly ClaimedTask[]): string =>
  tasks.map(({ tenant }) => tenant[0]).join("");

describe("what is ready of a queue", () => {
  it("starts only what has the priority, when it must: by rank, whoever's it is", () => {
    const line = lineOf(
      { lane: 1, priority: 2, runAt: -1_000, count: 2 },
      { lane: 2, tenant: "b", priority: 8, runAt: 20, count: 1 },
      { lane: 3, tenant: "c", priority: 9, runAt: 0, count: 1 },
      { lane: -4, tenant: "d", priority: 8, runAt: 5, count: 1 },
    );
    expect(line.peek(8)?.tenant).toBe("c");
    const high = [line.shift(8), line.shift(8), line.shift(8)].map((one) => one?.tenant);
    expect(high).toEqual(["c", "d", "b"]);
    expect(line.shift(8)).toBe(undefined);
    // What could not start meanwhile has lost nothing.
    expect(line.size).toBe(2);
    expect(tenantsOf(shiftAll(line))).toBe("aa");
  });

  it("starts by turns of its tenants, whoever came first", () => {
    const line = lineOf({ lane: 1, count: 8 }, { lane: 2, tenant: "b", count: 4 });
    expect(tenantsOf(shiftAll(line))).toBe("aaabbbaaabaa");
    expect(line.shift()).toBeUndefined();
  });

  it("starts a tenant that comes to a full line within a turn", () => {
    const line = lineOf({ lane: 1, count: 2_000 });
    shiftAll(line, 100);
    pushMany(line, { lane: 2, tenant: "b", count: 10 });
    const started = tenantsOf(shiftAll(line));
    expect(started.indexOf("b")).toBeLessThanOrEqual(TURN);
    expect(started.slice(0, 24)).toBe("bbbaaabbbaaabbbaaabaaaaa");
  });

  it("gives a tenant turns as long as its weight says", () => {
    const line = lineOf({ lane: 1, count: 6 }, { lane: 2, tenant: "heavy", count: 12 });
    expect(tenantsOf(shiftAll(line))).toBe("aaahhhhhhaaahhhhhh");
  });

  it("takes the turns of keyed tasks by tenant, too, whatever their buckets", () => {
    const line = lineOf({ lane: -1, count: 4 }, { lane: -2, count: 2 });
    pushMany(line, { lane: -1, tenant: "b", count: 2 });
    expect(["a", "b", "c"].map((one) => line.hasKeyedOf(one))).toEqual([true, true, false]);
    expect(tenantsOf(shiftAll(line))).toBe("aaabbaaa");
    expect(["a", "b"].map((one) => line.hasKeyedOf(one))).toEqual([false, false]);
  });

  it("starts keyed and other tasks of a tenant as they came, however long those waited", () => {
    const line = lineOf();
    line.push(task({ lane: 1, claimedAtMs: 1, runAt: 9 }));
    line.push(task({ lane: -1, claimedAtMs: 2, runAt: 9 }));
    line.push(task({ lane: 1, claimedAtMs: 3, runAt: 1 }));
    line.push(task({ lane: -2, claimedAtMs: 4, runAt: 1 }));
    expect(shiftAll(line).map(({ lane }) => lane)).toEqual([1, -1, 1, -2]);
  });

  it("knows the highest priority that is there", () => {
    const line = lineOf({ lane: 1, count: 1 }, { lane: 2, tenant: "b", priority: 9, count: 1 });
    expect([line.highest(), line.highest("a"), line.highest("c")]).toEqual([9, 5, -Infinity]);
    shiftAll(line);
    expect(line.highest()).toBe(-Infinity);
  });

  it("keeps the order of each lane", () => {
    const line = lineOf();
    for (let round = 0; round < 20; round += 1) {
      pushMany(line, { lane: 1, count: 2 });
      pushMany(line, { lane: 2, priority: 9, count: 1 });
      pushMany(line, { lane: 3, tenant: "b", count: 2 });
    }
    const started = shiftAll(line);
    for (const lane of [1, 2, 3]) {
      const ids = started.filter((one) => one.lane === lane).map(({ id }) => Number(id));
      expect(ids).toEqual(ids.toSorted((a, b) => a - b));
    }
  });

  it("starts what ranks highest of a tenant, by priority and waiting", () => {
    const line = lineOf(
      { lane: 1, priority: 0, runAt: 100, count: 1 },
      { lane: 2, priority: 9, runAt: 195, count: 1 },
      { lane: 3, priority: 9, runAt: 180, count: 1 },
    );
    // Ten seconds weigh as much as one step: the low one is ahead of what came 90 seconds later.
    expect(line.peek()?.lane).toBe(3);
    expect(shiftAll(line).map(({ lane }) => lane)).toEqual([3, 1, 2]);
    expect(line.peek()).toBeUndefined();
  });

  it("charges nobody's turn for what was given back", () => {
    const line = lineOf({ lane: 1, count: 3 }, { lane: 2, tenant: "b", count: 1 });
    const gone = task({ lane: 1 });
    gone.state = "ended";
    const other = lineOf();
    other.push(gone);
    for (const one of line.drain()) other.push(one);
    expect(tenantsOf(shiftAll(other))).toBe("aaaab");
  });

  it("tells which lanes have nothing more", () => {
    dry = [];
    const line = lineOf({ lane: 1, count: 2 }, { lane: -7, count: 1 });
    pushMany(line, { lane: -8, tenant: "b", count: 1 });
    expect([line.has(1), line.has(2)]).toEqual([true, false]);
    shiftAll(line);
    expect(line.has(1)).toBe(false);
    expect(dry).toEqual([-7, 1, -8]);
  });

  it("forgets tenants of whom nothing is there", () => {
    const line = lineOf();
    for (let n = 0; n < 20_000; n += 1) {
      line.push(task({ lane: n + 1, tenant: `t${n}` }));
      line.shift();
    }
    pushMany(line, { lane: 1, tenant: "t0", count: 2 });
    expect(shiftAll(line)).toHaveLength(2);
  });

  it("gives up everything when it is drained", () => {
    const line = lineOf({ lane: 1, count: 2 }, { lane: 2, tenant: "b", count: 1 });
    expect(line.drain()).toHaveLength(3);
    expect([line.size, line.shift()]).toEqual([0, undefined]);
  });
});
