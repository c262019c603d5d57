import { expect, it } from "vitest";
import { ManualClock } from "../../../test/support/manual-clock.ts";
import type { KnownQueue } from "../../tasks/directory.ts";
import { queue, type TaskHandler } from "../../tasks/queue.ts";
import { HandledQueues } from "./handled-queues.ts";

/** What is known of queues, as others change it. */
function scene() {
  const known = new Map<string, KnownQueue>();
  const define = (name: string, maxAttempts = 5): KnownQueue => {
    const { settings } = queue(name, { maxAttempts });
    const one = { name, keySpaceId: 1, settings, definition: undefined, isOpen: false };
    known.set(name, one);
    return one;
  };
  const rounds: (readonly TaskHandler[])[] = [];
  const failures: Error[] = [];
  const handled = new HandledQueues({
    directory: {
      findOrIntroduce: (name) => Promise.resolve(known.get(name) ?? define(name)),
      names: () => Promise.resolve([...known.keys()]),
      peek: (name) => known.get(name),
    },
    queuesMax: 10,
    clock: new ManualClock(),
    handler: { run: () => undefined },
    begin(handlers) {
      rounds.push([...handlers]);
      const failure = failures.shift();
      return failure === undefined ? Promise.resolve() : Promise.reject(failure);
    },
  });
  return { known, define, rounds, failures, handled };
}

it("begins with queues that come together at once, and with each of them once", async () => {
  const { define, rounds, handled } = scene();
  for (const name of ["a", "b", "c"]) define(name);
  await Promise.all([handled.handle("all", "t"), handled.handle(["c", "d"], "t")]);
  await handled.handle(["a", "d"], "t");
  const begun = rounds.map((round) => round.map(({ queue: { name } }) => name).sort());
  expect(begun.flat().sort()).toEqual(["a", "b", "c", "d"]);
  expect(rounds.length).toBeLessThanOrEqual(2);
  expect([...handled.names].sort()).toEqual(["a", "b", "c", "d"]);
});

it("knows the settings of a queue as they are now", async () => {
  const { define, rounds, handled } = scene();
  define("a");
  await handled.handle(["a"], "t");
  const settingsOf = () => rounds[0]?.[0]?.queue.settings.maxAttempts;
  expect(settingsOf()).toBe(5);
  define("a", 9);
  expect(settingsOf()).toBe(9);
});

it("knows the last settings of a queue that is being read again", async () => {
  const { known, define, rounds, handled } = scene();
  define("a", 7);
  const handling = handled.handle(["a"], "t");
  known.delete("a");
  await handling;
  expect(rounds[0]?.[0]?.queue.settings.maxAttempts).toBe(7);
});

it("tries a queue again that could not be begun with", async () => {
  const { rounds, failures, handled } = scene();
  failures.push(new Error("away"));
  await expect(handled.handle(["a"], "t")).rejects.toThrow("away");
  await handled.handle(["a"], "t");
  expect(rounds).toHaveLength(2);
});
