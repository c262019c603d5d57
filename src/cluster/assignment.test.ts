import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { assignRoundRobin, assignSticky, type Candidate, changedOwners } from "./assignment.ts";

const worker = (workerId: string, ...capabilities: string[]): Candidate => ({
  workerId,
  capabilities: capabilities.length === 0 ? undefined : new Set(capabilities),
});

const workers = (count: number): Candidate[] =>
  Array.from({ length: count }, (_, index) => worker(`worker-${index + 1}`));

const names = (count: number): string[] =>
  Array.from({ length: count }, (_, index) => `consumer-${String(index).padStart(3, "0")}`);

function heldBy(owners: ReadonlyMap<string, string | undefined>): Map<string, string[]> {
  const held = new Map<string, string[]>();
  for (const [consumer, owner] of owners) {
    if (owner !== undefined) held.set(owner, [...(held.get(owner) ?? []), consumer]);
  }
  return held;
}

function loads(
  owners: ReadonlyMap<string, string | undefined>,
  candidates: readonly Candidate[],
): number[] {
  const held = heldBy(owners);
  return candidates.map(({ workerId }) => held.get(workerId)?.length ?? 0);
}

const spread = (counts: readonly number[]): number => Math.max(...counts) - Math.min(...counts);
const free = (consumers: readonly string[]): Map<string, undefined> =>
  new Map(consumers.map((name) => [name, undefined]));
const canRun = ({ capabilities }: Candidate, consumer: string): boolean =>
  capabilities?.has(consumer) ?? true;

describe("a capability for every partition", () => {
  it("covers the name with and without an index, and no other", () => {
    const some = [worker("a", "view", "view~rebuild/*"), worker("b", "view~rebuild")];
    const wanted = [
      "view~rebuild/0",
      "view~rebuild/17",
      "view~rebuild/x",
      "view/0",
      "view~rebuild",
    ];
    const owners = assignRoundRobin(wanted, some);
    expect(Object.fromEntries(owners)).toEqual({
      "view/0": undefined,
      "view~rebuild": "b",
      "view~rebuild/0": "a",
      "view~rebuild/17": "a",
      "view~rebuild/x": undefined,
    });
  });
});

describe("assignRoundRobin", () => {
  const six = ["Shipping", "Analytics", "Orders", "Billing", "Inventory", "Email"];

  it.each([
    [1, ["Analytics Billing Email Inventory Orders Shipping"]],
    [2, ["Analytics Email Orders", "Billing Inventory Shipping"]],
    [3, ["Analytics Inventory", "Billing Orders", "Email Shipping"]],
    [6, ["Analytics", "Billing", "Email", "Inventory", "Orders", "Shipping"]],
  ])("gives six consumers to %i workers as the sources' table says", (count, table) => {
    const held = heldBy(assignRoundRobin(six, workers(count).toReversed()));
    const rows = workers(count).map(({ workerId }) => held.get(workerId)?.join(" "));
    expect(rows).toEqual(table);
  });

  it("leaves workers beyond the number of consumers idle", () => {
    expect(loads(assignRoundRobin(six, workers(8)), workers(8))).toEqual([1, 1, 1, 1, 1, 1, 0, 0]);
  });

  it("gives 101 consumers to 4 workers as 26, 25, 25 and 25", () => {
    const assigned = assignRoundRobin(names(101), workers(4));
    expect(loads(assigned, workers(4))).toEqual([26, 25, 25, 25]);
  });

  it("gives nothing to nobody", () => {
    expect([...assignRoundRobin(["a", "b"], [])]).toEqual([
      ["a", undefined],
      ["b", undefined],
    ]);
  });

  it("passes a consumer on to the next worker that can run it", () => {
    const some = [worker("w1", "b"), worker("w2", "a", "b"), worker("w3", "c")];
    const assigned = assignRoundRobin(["a", "b", "c", "d"], some);
    expect(Object.fromEntries(assigned)).toEqual({ a: "w2", b: "w2", c: "w3", d: undefined });
  });

  it("orders names by bytes, as every member in every language must", () => {
    const assigned = assignRoundRobin(["a", "B", "\u{1F600}", "\uFFFD"], workers(4));
    expect([...assigned.keys()]).toEqual(["B", "a", "\uFFFD", "\u{1F600}"]);
  });
});

interface Scene {
  readonly current: Map<string, string | undefined>;
  readonly candidates: Candidate[];
}

/** Any owners, some of them gone, and workers that can run everything or only some. */
function scenes(limits: { consumers: number; workers: number; isMixed: boolean }) {
  return fc
    .record({
      consumerCount: fc.integer({ min: 0, max: limits.consumers }),
      workerCount: fc.integer({ min: 1, max: limits.workers }),
      owners: fc.array(fc.integer({ min: -1, max: limits.workers }), {
        minLength: limits.consumers,
        maxLength: limits.consumers,
      }),
      able: fc.array(fc.array(fc.boolean(), { minLength: 30, maxLength: 30 }), {
        minLength: limits.workers,
        maxLength: limits.workers,
      }),
    })
    .map(({ consumerCount, workerCount, owners, able }): Scene => {
      const consumers = names(consumerCount);
      const current = new Map(
        consumers.map((name, index) => {
          const owner = owners[index] ?? -1;
          return [name, owner < 0 ? undefined : `worker-${owner + 1}`];
        }),
      );
      const candidates = workers(workerCount).map(({ workerId }, index) => ({
        workerId,
        capabilities: limits.isMixed
          ? new Set(consumers.filter((_, at) => able[index]?.[at] === true))
          : undefined,
      }));
      return { current, candidates };
    });
}

/** Whether load could be moved from `a` to `b`, by as many workers in between as it takes. */
function reaches(held: ReadonlyMap<string, string[]>, candidates: readonly Candidate[]) {
  const next = new Map(
    candidates.map((giver) => [
      giver.workerId,
      candidates.filter((taker) =>
        (held.get(giver.workerId) ?? []).some((name) => canRun(taker, name)),
      ),
    ]),
  );
  return (a: string, b: string): boolean => {
    const seen = new Set([a]);
    const queue = [a];
    for (let at = queue.pop(); at !== undefined; at = queue.pop()) {
      for (const { workerId } of next.get(at) ?? []) {
        if (workerId === b) return true;
        if (!seen.has(workerId)) queue.push(workerId);
        seen.add(workerId);
      }
    }
    return false;
  };
}

/** The least sum of squared loads that any assignment has. */
function bestSquares(consumers: readonly string[], candidates: readonly Candidate[]): number {
  const counts = candidates.map(() => 0);
  let best = Number.POSITIVE_INFINITY;
  const place = (index: number): void => {
    const consumer = consumers[index];
    if (consumer === undefined) {
      best = Math.min(best, squares(counts));
      return;
    }
    const able = [...candidates.keys()].filter((at) => canRun(candidates[at]!, consumer));
    if (able.length === 0) place(index + 1);
    for (const at of able) {
      counts[at]! += 1;
      place(index + 1);
      counts[at]! -= 1;
    }
  };
  place(0);
  return best;
}

const squares = (counts: readonly number[]): number =>
  counts.reduce((sum, count) => sum + count * count, 0);

describe("assignSticky", () => {
  const mixed = scenes({ consumers: 24, workers: 6, isMixed: true });
  const alike = scenes({ consumers: 24, workers: 6, isMixed: false });

  it("gives every consumer that somebody can run to one live worker that can", () => {
    fc.assert(
      fc.property(mixed, ({ current, candidates }) => {
        const wanted = assignSticky(current, candidates);
        expect([...wanted.keys()].sort()).toEqual([...current.keys()].sort());
        for (const [consumer, owner] of wanted) {
          const able = candidates.filter((one) => canRun(one, consumer)).map((w) => w.workerId);
          if (able.length === 0) expect(owner).toBeUndefined();
          else expect(able).toContain(owner);
        }
      }),
    );
  });

  it("balances within one when everybody can run everything", () => {
    fc.assert(
      fc.property(alike, ({ current, candidates }) => {
        expect(spread(loads(assignSticky(current, candidates), candidates))).toBeLessThan(2);
      }),
    );
  });

  it("moves no more than balance demands, from any owners", () => {
    fc.assert(
      fc.property(alike, ({ current, candidates }) => {
        const wanted = assignSticky(current, candidates);
        const before = loads(current, candidates).sort((a, b) => b - a);
        const low = Math.floor(current.size / candidates.length);
        const extra = current.size % candidates.length;
        // The fullest keep one more: then the fewest have to leave.
        const surplus = before.reduce(
          (sum, count, rank) => sum + Math.max(0, count - low - (rank < extra ? 1 : 0)),
          0,
        );
        const orphans = current.size - before.reduce((sum, count) => sum + count, 0);
        expect(changedOwners(current, wanted)).toHaveLength(surplus + orphans);
      }),
    );
  });

  it("moves only the new worker's share to it when one joins", () => {
    fc.assert(
      fc.property(fc.nat(60), fc.integer({ min: 1, max: 6 }), (count, size) => {
        const before = assignSticky(free(names(count)), workers(size));
        const moves = changedOwners(before, assignSticky(before, workers(size + 1)));
        expect(moves).toHaveLength(Math.floor(count / (size + 1)));
        for (const { to } of moves) expect(to).toBe(`worker-${size + 1}`);
      }),
    );
  });

  it("moves only what a worker had when it leaves", () => {
    fc.assert(
      fc.property(fc.nat(60), fc.integer({ min: 2, max: 6 }), fc.nat(5), (count, size, pick) => {
        const gone = `worker-${(pick % size) + 1}`;
        const before = assignSticky(free(names(count)), workers(size));
        const left = workers(size).filter(({ workerId }) => workerId !== gone);
        for (const { from } of changedOwners(before, assignSticky(before, left))) {
          expect(from).toBe(gone);
        }
      }),
    );
  });

  it("changes nothing when asked again", () => {
    fc.assert(
      fc.property(mixed, ({ current, candidates }) => {
        const wanted = assignSticky(current, candidates);
        expect(changedOwners(wanted, assignSticky(wanted, candidates))).toEqual([]);
      }),
    );
  });

  it("decides the same for any order of its input", () => {
    const shuffled = mixed.chain((scene) =>
      fc.record({
        scene: fc.constant(scene),
        consumers: fc.shuffledSubarray([...scene.current], {
          minLength: scene.current.size,
        }),
        candidates: fc.shuffledSubarray(scene.candidates, {
          minLength: scene.candidates.length,
        }),
      }),
    );
    fc.assert(
      fc.property(shuffled, ({ scene, consumers, candidates }) => {
        const one = assignSticky(scene.current, scene.candidates);
        const other = assignSticky(new Map(consumers), candidates);
        expect(Object.fromEntries(other)).toEqual(Object.fromEntries(one));
      }),
    );
  });

  it("leaves no two workers two apart when a chain of moves could narrow them", () => {
    fc.assert(
      fc.property(mixed, ({ current, candidates }) => {
        const held = heldBy(assignSticky(current, candidates));
        const load = (id: string): number => held.get(id)?.length ?? 0;
        const canMove = reaches(held, candidates);
        for (const { workerId: full } of candidates) {
          for (const { workerId: idle } of candidates) {
            const isApart = load(full) - load(idle) >= 2;
            expect(isApart && canMove(full, idle), `${full} to ${idle}`).toBe(false);
          }
        }
      }),
    );
  });

  it("is as even as any assignment could be", () => {
    const small = scenes({ consumers: 6, workers: 3, isMixed: true });
    fc.assert(
      fc.property(small, ({ current, candidates }) => {
        const counts = loads(assignSticky(current, candidates), candidates);
        expect(squares(counts)).toBe(bestSquares([...current.keys()], candidates));
      }),
      { numRuns: 300 },
    );
  });

  it("moves along a chain where no single move would do", () => {
    // Only w2 can take from w1, and only w3 has room.
    const current = new Map([
      ["a", "w1"],
      ["b", "w1"],
      ["c", "w2"],
    ]);
    const some = [worker("w1", "a", "b"), worker("w2", "b", "c"), worker("w3", "c")];
    const wanted = assignSticky(current, some);
    expect(Object.fromEntries(wanted)).toEqual({ a: "w1", b: "w2", c: "w3" });
  });

  it("takes a consumer from an owner that cannot run it any more", () => {
    const current = new Map([["a", "w1"]]);
    const wanted = assignSticky(current, [worker("w1", "b"), worker("w2", "a")]);
    expect(wanted.get("a")).toBe("w2");
  });
});

describe("changedOwners", () => {
  it("lists only what differs", () => {
    const current = new Map([
      ["a", "w1"],
      ["b", undefined],
      ["c", "w1"],
    ]);
    const wanted = new Map([
      ["a", "w1"],
      ["b", undefined],
      ["c", "w2"],
      ["d", "w1"],
    ]);
    expect(changedOwners(current, wanted)).toEqual([
      { consumer: "c", from: "w1", to: "w2" },
      { consumer: "d", from: undefined, to: "w1" },
    ]);
  });
});
