import { expect, it } from "vitest";
import { ManualClock, settle } from "../../../test/support/manual-clock.ts";
import { Timers } from "../../base/timers.ts";
import type { ClaimedTask } from "../../tasks/claimed-task.ts";
import { Assignment, AssignmentList } from "./assignment.ts";
import { Departures } from "./departures.ts";

/** What was asked of a database that knows which tasks are still here. */
function scene() {
  const clock = new ManualClock();
  const asked: string[][] = [];
  const here = new Set<string>();
  let isAway = false;
  const departures = new Departures(new Timers(clock), () => ({
    async findOwn(tokens) {
      asked.push(tokens.map(({ taskId }) => taskId));
      if (isAway) throw new Error("away");
      return new Set([...tokens.keys()].filter((place) => here.has(tokens[place]?.taskId ?? "")));
    },
  }));
  const given: string[] = [];
  /** A stream that holds these. */
  const stream = (...ids: string[]): AssignmentList => {
    const list = new AssignmentList();
    for (const id of ids) {
      const task = { id, state: "started", token: { taskId: id } } as ClaimedTask;
      const context = { workerId: "server" } as Assignment["context"];
      const one = new Assignment(task, context, (_, { holder }) => {
        given.push(`${id} by ${holder}`);
        list.delete(one); // As when its end was answered.
      });
      list.add(one);
      here.add(id);
    }
    return list;
  };
  const pass = async (): Promise<void> => {
    clock.advance(500);
    await settle();
  };
  const answers = (answering: boolean): void => void (isAway = !answering);
  return { clock, asked, here, departures, given, stream, pass, answers };
}

it("lets go of what is elsewhere, and asks as long as there is something", async () => {
  const { clock, asked, here, departures, given, stream, pass } = scene();
  expect(clock.pending).toBe(0);
  departures.add(stream("1", "2"));
  departures.add(stream("3"));
  await pass();
  expect([asked, given]).toEqual([[["2", "1", "3"]], []]);
  here.delete("1");
  here.delete("3");
  await pass();
  expect(given).toEqual(["1 by server", "3 by server"]);
  here.clear();
  await pass();
  await pass();
  expect([asked.at(-1), given.length, clock.pending]).toEqual([["2"], 3, 0]);
});

it("lets go of nothing while nobody can say where it is", async () => {
  const { asked, here, departures, given, stream, pass, answers } = scene();
  departures.add(stream("1"));
  here.clear();
  answers(false);
  await pass();
  expect([asked.length, given]).toEqual([1, []]);
  answers(true);
  await pass();
  expect(given).toEqual(["1 by server"]);
});
