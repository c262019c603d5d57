import { expect, it } from "vitest";
import { type Ranked, Standings } from "./standings.ts";

const task = (id: string, runAtSeconds: number, more: Partial<Ranked> = {}): Ranked => {
  const runAt = new Date(runAtSeconds * 1_000);
  return { id, priority: 5, isOnProbation: false, runAt, ...more };
};

it("ranks by priority and by since when a task may run, however long ago it was enqueued", () => {
  const standings = new Standings({ agingSeconds: 10 });
  const delayed = { ...task("1", 3_600), createdAt: new Date(0) };
  const rankOf = (one: Ranked): number => standings.of(one).rank;
  expect(rankOf(delayed)).toBeLessThan(rankOf(task("2", 3_599)));
  expect(rankOf(task("3", 3_600, { priority: 8 }))).toBeGreaterThan(rankOf(task("4", 3_575)));
  expect(rankOf(task("5", 3_600, { priority: 8 }))).toBeLessThan(rankOf(task("6", 3_565)));
  expect(rankOf(task("7", 9_999, { isOnProbation: true }))).toBeGreaterThan(rankOf(delayed));
  expect([
    standings.of(delayed).isHigh,
    standings.of(task("8", 0, { priority: 8 })).isHigh,
  ]).toEqual([false, true]);
});

it("remembers since when those wait that were sent away, and of how many", () => {
  const standings = new Standings({ agingSeconds: 10, awayMax: 2 });
  const first = standings.of(task("1", 100)).rank;
  standings.sentAway(task("1", 100));
  expect(standings.of(task("1", 160)).rank).toBe(first);
  standings.sentAway(task("1", 160));
  expect(standings.of(task("1", 900)).rank).toBe(first);
  // When it was called, it waits anew.
  standings.called(task("1", 900));
  expect(standings.of(task("1", 900)).rank).toBeLessThan(first);
  for (const id of ["2", "3", "4"]) standings.sentAway(task(id, 100));
  const ranks = ["2", "3", "4"].map((id) => standings.of(task(id, 900)).rank);
  expect(ranks.map((rank) => rank === first)).toEqual([false, true, true]);
});
