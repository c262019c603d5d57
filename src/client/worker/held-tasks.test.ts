import { expect, it } from "vitest";
import { ManualClock } from "../../../test/support/manual-clock.ts";
import { queue } from "../../tasks/queue.ts";
import type { Link } from "../link.ts";
import { HeldTasks } from "./held-tasks.ts";
import type { Due } from "./lease-watch.ts";
import { RemoteTask } from "./remote-task.ts";

const GRACE_MS = 2_000;
const token = { taskId: "1", generation: 1, claimId: "c" };
const handler = queue("mails").handle(() => undefined);

/** One task that came by a link, and what became due of it. */
function scene() {
  const clock = new ManualClock();
  const due: Due[] = [];
  const held = new HeldTasks({
    clock,
    canAsk: () => false,
    onDue: (task, what) => {
      due.push(what);
      if (what === "doubt") task.isDoubtful = true;
    },
  });
  const [first, second, third] = [1, 2, 3].map((n) => ({ address: `server-${n}` }) as Link);
  if (!first || !second || !third) throw new Error("there are three");
  const read = {
    bytes: Buffer.alloc(0),
    token,
    remainingMs: 60_000,
    queue: "mails",
    payload: Buffer.from("1"),
    contentType: "",
    timeoutSeconds: 0,
  };
  const task = new RemoteTask(read, handler, first);
  held.add(task, 60_000);
  task.state = "running";
  return { clock, due, held, task, links: [first, second, third] as const };
}

it("gives a task no more time when a hello was acknowledged and the stream broke", () => {
  const { clock, due, held, links } = scene();
  const [first, second, third] = links;
  held.orphan(first, GRACE_MS);
  for (const link of [second, third]) {
    clock.advance(GRACE_MS * 0.4);
    held.adopted(held.orphans(10), link);
    held.orphan(link, GRACE_MS);
  }
  expect(due).toEqual([]);
  clock.advance(GRACE_MS * 0.3);
  expect(due).toEqual(["doubt"]);
});

it("begins anew when the server had said that the task is there", () => {
  const { clock, due, held, links } = scene();
  const [first, second] = links;
  held.orphan(first, GRACE_MS);
  clock.advance(GRACE_MS * 0.8);
  held.adopted(held.orphans(10), second);
  held.renewed({ token, leaseUntil: undefined, remainingMs: 60_000 });
  held.orphan(second, GRACE_MS);
  clock.advance(GRACE_MS * 0.8);
  expect(due).toEqual([]);
  clock.advance(GRACE_MS * 0.3);
  expect(due).toEqual(["doubt"]);
});

it("waits for a server that was told of it as long as its lease stands", () => {
  const { clock, due, held, links } = scene();
  held.orphan(links[0], GRACE_MS);
  held.adopted(held.orphans(10), links[1]);
  clock.advance(10 * GRACE_MS);
  expect(due).toEqual([]);
});
