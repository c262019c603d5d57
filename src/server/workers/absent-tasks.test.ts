import { expect, it } from "vitest";
import { AbsentTasks } from "./absent-tasks.ts";

type Found = ReadonlyMap<string, "live" | "over">;

/** What is said of each task, in the order in which it was. */
function scene(find: (ids: readonly string[]) => Promise<Found>) {
  const asked: (readonly string[])[] = [];
  const absent = new AbsentTasks(() => ({
    whereabouts(ids) {
      asked.push(ids);
      return find(ids);
    },
  }));
  const ask = (taskId: string): Promise<string> =>
    new Promise((resolve) => absent.ask("acme", taskId, resolve));
  return { asked, ask };
}

it("says where tasks are that a stream does not have, asking for all of them at once", async () => {
  const { asked, ask } = scene(() =>
    Promise.resolve(
      new Map([
        ["1", "live"],
        ["2", "over"],
      ]),
    ),
  );
  expect(await Promise.all(["1", "2", "3", "no number"].map(ask))).toEqual([
    "not-owner",
    "not-in-progress",
    "not-found",
    "not-found",
  ]);
  expect(asked).toEqual([["1", "2", "3"]]);
});

it("says that a task is not the client's when nobody can tell more, and asks again", async () => {
  let isAway = true;
  const { ask } = scene(() =>
    isAway ? Promise.reject(new Error("away")) : Promise.resolve(new Map()),
  );
  expect(await ask("1")).toBe("not-owner");
  isAway = false;
  expect(await ask("1")).toBe("not-found");
});
