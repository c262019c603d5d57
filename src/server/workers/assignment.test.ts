import { describe, expect, it } from "vitest";
import type { ClaimedTask } from "../../tasks/claimed-task.ts";
import { completed, type Outcome } from "../../tasks/outcome.ts";
import { Assignment, AssignmentList } from "./assignment.ts";

/** A task that runs, and the outcomes that the engine was told of it. */
function running(): { readonly one: Assignment; readonly told: Outcome["kind"][] } {
  const told: Outcome["kind"][] = [];
  const task = { state: "started" } as ClaimedTask;
  const one = new Assignment(task, {} as Assignment["context"], (_, { kind }) => told.push(kind));
  return { one, told };
}

describe("an assignment", () => {
  it("tells the engine once how it ended, and the worker once what was written", () => {
    const { one, told } = running();
    const heard: string[] = [];
    const hear = (answer: string, place: number): void => void heard.push(`${place} ${answer}`);
    one.end(completed(), hear, 3);
    one.end(completed(), hear, 4);
    one.answered("complete");
    one.answered("complete");
    expect([told, heard]).toEqual([["completed"], ["4 refused", "3 accepted"]]);
  });

  it("that is dropped leaves the engine the time to say what becomes of it", async () => {
    const { one, told } = running();
    one.drop();
    expect(told).toEqual([]);
    await Promise.resolve();
    one.drop();
    await Promise.resolve();
    expect(told).toEqual(["abandon"]);
  });
});

it("a list of assignments has each of them once, and none that another list has", () => {
  const [a, b, c] = [running().one, running().one, running().one];
  const [first, second] = [new AssignmentList(), new AssignmentList()];
  for (const one of [a, b, c, b]) first.add(one);
  expect([first.size, new Set(first.all())]).toEqual([3, new Set([a, b, c])]);
  second.add(b);
  second.delete(a);
  expect([first.size, second.size, second.all()]).toEqual([2, 1, [b]]);
  expect(new Set(first.all())).toEqual(new Set([a, c]));
  first.delete(c);
  first.delete(a);
  first.delete(a);
  expect([first.size, first.all(), second.all()]).toEqual([0, [], [b]]);
  expect([a.list, b.list]).toEqual([undefined, second]);
});
