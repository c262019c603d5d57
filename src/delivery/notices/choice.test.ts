import { describe, expect, it } from "vitest";
import { chooseNotices } from "./choice.ts";
import type { Candidate } from "./sql/notices.ts";

const candidate = (id: string, given: Partial<Candidate> = {}): Candidate => ({
  id,
  tenant: "acme",
  url: `https://${id}.example.org/`,
  queues: null,
  mode: "fanout",
  group_name: null,
  format: "standard",
  generation: 0,
  told_at: null,
  told_queue: null,
  failures: 0,
  is_due: true,
  ...given,
});

const told = (
  candidates: readonly Candidate[],
  queues: readonly string[],
  quiet: readonly string[] = [],
): Record<string, readonly string[]> => {
  const work = new Map(queues.map((queue) => [queue, 1]));
  const turns = quiet.map((queue) => ({ tenant: "acme", group_name: "g", queue }));
  const choices = chooseNotices(candidates, work, turns);
  return Object.fromEntries(choices.map((one) => [one.candidate.id, one.queues]));
};

describe("fanout", () => {
  it("tells everybody who is due, of what they named", () => {
    const all = [
      candidate("a"),
      candidate("b", { queues: ["mails", "other"] }),
      candidate("c", { queues: ["other"] }),
      candidate("d", { is_due: false }),
    ];
    expect(told(all, ["pictures", "mails"])).toEqual({ a: ["mails", "pictures"], b: ["mails"] });
    expect(told(all, [])).toEqual({});
  });
});

describe("group", () => {
  const member = (id: string, seconds: number | null, given: Partial<Candidate> = {}) =>
    candidate(id, {
      mode: "group",
      group_name: "g",
      told_at: seconds === null ? null : new Date(seconds * 1_000),
      ...given,
    });

  it("tells the member that was told longest ago", () => {
    expect(told([member("a", 30), member("b", 10), member("c", 20)], ["mails"])).toEqual({
      b: ["mails"],
    });
    expect(told([member("a", 10), member("c", null), member("b", null)], ["mails"])).toEqual({
      b: ["mails"],
    });
  });

  it("tells a member of a queue that no other names, and none that is not due", () => {
    const members = [
      member("a", 10, { queues: ["mails"] }),
      member("b", 20, { queues: ["mails", "pictures"] }),
      member("c", 5, { is_due: false }),
    ];
    expect(told(members, ["mails", "pictures"])).toEqual({ a: ["mails"], b: ["pictures"] });
  });

  it("tells nobody of a queue of which the group was told", () => {
    expect(told([member("a", 10)], ["mails", "pictures"], ["mails"])).toEqual({ a: ["pictures"] });
    const other = member("b", 10, { group_name: "h" });
    expect(told([member("a", 10), other], ["mails"], ["mails"])).toEqual({ b: ["mails"] });
  });
});

describe("hash", () => {
  const ids = ["a", "b", "c", "d"];
  const queues = Array.from({ length: 200 }, (_, n) => `queue-${n}`);
  const hashed = (id: string, given: Partial<Candidate> = {}) =>
    candidate(id, { mode: "hash", ...given });
  const ownerOf = (candidates: readonly Candidate[]): Map<string, string> =>
    new Map(
      Object.entries(told(candidates, queues)).flatMap(([id, list]) =>
        list.map((queue) => [queue, id] as const),
      ),
    );

  it("gives every queue to one, always the same, and about as many to each", () => {
    const owners = ownerOf(ids.map((id) => hashed(id)));
    expect([...owners.keys()].sort()).toEqual([...queues].sort());
    expect(ownerOf(ids.toReversed().map((id) => hashed(id)))).toEqual(owners);
    for (const id of ids) {
      expect([...owners.values()].filter((one) => one === id).length).toBeGreaterThan(30);
    }
  });

  it("moves only the queues of who is gone, or fails, and has them back later", () => {
    const before = ownerOf(ids.map((id) => hashed(id)));
    const without = ownerOf(["a", "c", "d"].map((id) => hashed(id)));
    const failing = ownerOf(ids.map((id) => hashed(id, { failures: id === "b" ? 1 : 0 })));
    for (const [queue, id] of before) {
      if (id !== "b") expect(without.get(queue)).toBe(id);
      expect(failing.get(queue)).toBe(without.get(queue));
    }
    // A worker that starts again subscribes anew, with the same address.
    const again = ownerOf(ids.map((id) => hashed(id, { id: `new-${id}` })));
    for (const [queue, id] of before) expect(again.get(queue)).toBe(`new-${id}`);
  });

  it("tells nobody else while the chosen one rests", () => {
    const resting = told(
      ids.map((id) => hashed(id, { is_due: id !== "b" })),
      queues,
    );
    expect(resting["b"]).toBeUndefined();
    const count = Object.values(resting).flat().length;
    expect(count).toBe(
      [...ownerOf(ids.map((id) => hashed(id))).values()].filter((one) => one !== "b").length,
    );
  });
});

it("a notice of CodeQ names one queue after the other", () => {
  const one = (told_queue: string | null) => candidate("a", { format: "codeq", told_queue });
  const queues = ["c", "a", "b"];
  expect(told([one(null)], queues)).toEqual({ a: ["a"] });
  expect(told([one("a")], queues)).toEqual({ a: ["b"] });
  expect(told([one("c")], queues)).toEqual({ a: ["a"] });
});
