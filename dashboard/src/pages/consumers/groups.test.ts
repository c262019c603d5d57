import { expect, it } from "vitest";
import type { Consumer } from "../../api/types.ts";
import { describeStopped, groupsOf } from "./groups.ts";

const one = (name: string, given: Partial<Consumer> = {}): Consumer => ({
  name,
  checkpoint: "90",
  lag: "10",
  workerId: "w1",
  state: "running",
  parkedStreams: 0,
  parkedEvents: 0,
  isParkedCut: false,
  ...given,
});

it("puts the partitions of a consumer together, in the order of their numbers", () => {
  const names = ["a", "split/0", "split/10", "split/2", "split~rebuild/0", "split~rebuild/1"];
  const groups = groupsOf(names.map((name) => one(name)));
  expect(groups.map(({ name, partitions }) => [name, partitions.map((part) => part.name)])).toEqual(
    [
      ["a", ["a"]],
      ["split", ["split/0", "split/2", "split/10"]],
      ["split~rebuild", ["split~rebuild/0", "split~rebuild/1"]],
    ],
  );
});

it("leaves a consumer that is not split as it is", () => {
  const alone = one("orders");
  expect(groupsOf([alone])[0]?.whole).toBe(alone);
});

it("adds up what is behind and set aside, and is as the worst of them", () => {
  const [group] = groupsOf([
    one("split/0", { lagSeconds: 3, parkedEvents: 2, parkedStreams: 1 }),
    one("split/1", { checkpoint: "70", lag: "30", lagSeconds: 9, state: "paused", reason: "why" }),
    one("split/2", { state: "quarantined", workerId: "w2", reason: "it failed" }),
  ]);
  expect(group?.whole).toEqual({
    name: "split",
    checkpoint: "70",
    lag: "50",
    lagSeconds: 9,
    state: "quarantined",
    reason: "it failed",
    parkedStreams: 1,
    parkedEvents: 2,
    isParkedCut: false,
  });
  expect(describeStopped(group?.partitions ?? [])).toBe("1 quarantined, 1 paused");
  expect(describeStopped([one("a")])).toBe("");
});
