import { expect, it } from "vitest";
import { systemClock } from "../base/clock.ts";
import { ClaimedRow } from "./claimed-row.ts";
import { Claim, ClaimedTask } from "./claimed-task.ts";
import { TaskMetrics } from "./metrics.ts";
import { queue } from "./queue.ts";
import { QueueLines } from "./queue-lines.ts";
import { HandlerSlots } from "./slots.ts";
import { FIELD } from "./sql/claim.ts";

const RESERVE = { count: 2, priority: 8 };
let lastId = 0;

function scene(names: readonly string[], concurrency?: number) {
  const handlers = names.map((name) => ({
    ...queue(name).handle(() => undefined),
    concurrency,
  }));
  const lines = new QueueLines({
    handlers,
    concurrency: 5,
    slots: new HandlerSlots(5, RESERVE),
    agingSeconds: 10,
    fairnessTurn: 50,
    onDry: () => {},
    clock: systemClock,
    metrics: new TaskMetrics(),
  });
  const push = (name: string, priority: number, atMs = 0): void => {
    lastId += 1;
    const lane = 10 * names.indexOf(name) + priority;
    const row = [lastId, lane, "", 1, "", 5, atMs, name, "a", priority];
    const handler = handlers.find((one) => one.queue.name === name);
    if (handler === undefined) throw new Error(`no handler of ${name}`);
    const sources = { laneOf: () => undefined, handlerOf: () => handler };
    const facts = { claimedAtMs: atMs, trustedUntilMs: 1, isHeldHead: false };
    const text = [...row, "", "1"].join(FIELD);
    lines.push(new ClaimedTask(new ClaimedRow(text), sources, new Claim("claim"), facts));
  };
  const start = (): ClaimedTask | undefined => {
    const task = lines.canStart ? lines.shift() : undefined;
    if (task !== undefined) lines.started(task);
    return task;
  };
  return { lines, push, start };
}

const KINDS = [[["one"]], [["one", "two"]]];

it.each(KINDS)("bounds how many of low priority run at once, of %j", (names) => {
  const { lines, push, start } = scene(names);
  const [first = "", last = ""] = [names[0], names.at(-1)];
  for (let n = 0; n < 6; n += 1) push(first, 2);
  const low = [start(), start(), start()];
  expect(low.every((task) => task?.priority === 2)).toBe(true);
  expect(start()).toBe(undefined); // Two slots are free, and not for these.
  push(last, 8);
  push(last, 9);
  push(last, 8);
  const high = [start(), start()];
  expect(high.map((task) => task?.priority)).toEqual([9, 8]);
  expect(start()).toBe(undefined); // All are taken.
  // A low one ends: its slot is anybody's, and the high one ranks higher.
  if (low[0] !== undefined) lines.returned(low[0]);
  expect(start()?.priority).toBe(8);
  // Two low ones run, so that another may when a slot comes free, whoever's it was.
  if (high[0] !== undefined) lines.returned(high[0]);
  expect(start()?.priority).toBe(2);
  if (high[1] !== undefined) lines.returned(high[1]);
  expect(start()).toBe(undefined); // Three of low priority run again.
  expect(lines.active).toBe(4);
});

it.each(KINDS)("gives low ones their aged turn under a backlog of high ones, of %j", (names) => {
  const { lines, push, start } = scene(names);
  const [first = "", last = ""] = [names[0], names.at(-1)];
  // Ten seconds weigh as much as a step of priority: these are as good as of priority 12.
  for (let n = 0; n < 3; n += 1) push(first, 2, 0);
  for (let n = 0; n < 20; n += 1) push(last, 8, 100_000);
  const started: number[] = [];
  for (let n = 0; n < 8; n += 1) {
    const task = start();
    if (task === undefined) break;
    started.push(task.priority);
    if (n >= 4) lines.returned(task);
  }
  expect(started.slice(0, 3)).toEqual([2, 2, 2]);
  expect(started.slice(3)).toEqual([8, 8, 8, 8, 8]);
});

it("gives a low one that has aged the next slot, though all run high ones", () => {
  const { lines, push, start } = scene(["one"]);
  for (let n = 0; n < 10; n += 1) push("one", 8, 100_000);
  const high = Array.from({ length: 5 }, start);
  push("one", 2, 0);
  if (high[0] !== undefined) lines.returned(high[0]);
  expect(start()?.priority).toBe(2);
});

it("asks for no more of low priority than may start", () => {
  const { lines, push, start } = scene(["one"]);
  expect(lines.below).toEqual({ priority: 8, tasks: 3 });
  for (let n = 0; n < 3; n += 1) push("one", 2);
  push("one", 8);
  expect(lines.below?.tasks).toBe(0);
  const tasks = Array.from({ length: 4 }, start);
  expect(lines.below?.tasks).toBe(0);
  const low = tasks.find((task) => task?.priority === 2);
  if (low !== undefined) lines.returned(low);
  expect(lines.below?.tasks).toBe(1);
  push("one", 2);
  lines.drain();
  expect(lines.below?.tasks).toBe(1);
});

it("keeps the same share of the slots of a queue that may not have all", () => {
  const { lines, push, start } = scene(["one", "two"], 3);
  for (let n = 0; n < 4; n += 1) push("one", 2);
  // Two of five are reserved, and so one of three.
  expect([start(), start(), start()].map((task) => task?.priority)).toEqual([2, 2, undefined]);
  expect(lines.freeSlotsFor("two", 2)).toBe(2);
  expect(lines.freeSlotsFor("two", 8)).toBe(3);
  expect(lines.freeSlotsFor("one", 2)).toBe(-2);
  push("one", 8);
  expect(start()?.priority).toBe(8);
  push("one", 9);
  expect(start()).toBe(undefined); // All three are taken.
});

it("takes nothing more of a queue that it leaves, until it handles it again", () => {
  const { lines, push, start } = scene(["one", "two"]);
  push("one", 2);
  expect(lines.leave("one")).toEqual(["a"]);
  expect(lines.names).toEqual(["two"]);
  expect(lines.freeSlots("one")).toBe(-Infinity);
  expect(lines.drainOf("one", "a")).toHaveLength(1);
  push("one", 2); // A claim that was under way: it is run, or given back by its handler.
  expect(start()?.queue).toBe("one");
  lines.handle(queue("one").handle(() => undefined));
  expect(lines.names).toEqual(["one", "two"]);
  expect(lines.freeSlots("one")).toBe(4);
});
