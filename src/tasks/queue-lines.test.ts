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

function scene(names: readonly string[]) {
  const handlers = names.map((name) => queue(name).handle(() => undefined));
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
  const push = (name: string, priority: number): void => {
    lastId += 1;
    const row = [lastId, 10 * names.indexOf(name) + priority, "", 1, "", 5, 0, name, "a", priority];
    const handler = handlers.find((one) => one.queue.name === name);
    if (handler === undefined) throw new Error(`no handler of ${name}`);
    const sources = { laneOf: () => undefined, handlerOf: () => handler };
    const facts = { claimedAtMs: 0, trustedUntilMs: 1, isHeldHead: false };
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

it.each([[["one"]], [["one", "two"]]])(
  "keeps the last slots for tasks of high priority, of %j",
  (names) => {
    const { lines, push, start } = scene(names);
    const [first = "", last = ""] = [names[0], names.at(-1)];
    for (let n = 0; n < 6; n += 1) push(first, 2);
    const low = [start(), start(), start()];
    expect(low.every((task) => task?.priority === 2)).toBe(true);
    expect(start()).toBe(undefined);
    push(last, 8);
    push(last, 9);
    push(last, 8);
    expect([start()?.priority, start()?.priority]).toEqual([9, 8]);
    expect(start()).toBe(undefined); // All are taken.
    // One of the low ones ends: the slot that comes free is again one of the last two.
    if (low[0] !== undefined) lines.returned(low[0]);
    expect(start()?.priority).toBe(8);
    if (low[1] !== undefined) lines.returned(low[1]);
    expect(start()).toBe(undefined);
    expect(lines.active).toBe(4);
  },
);
