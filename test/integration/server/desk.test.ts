import { expect, it, vi } from "vitest";
import { type Clock, systemClock } from "../../../src/base/clock.ts";
import { silentLogger } from "../../../src/base/log.ts";
import { completed, failed, queue, type Tidemill } from "../../../src/index.ts";
import type { Answer, Assignment } from "../../../src/server/workers/assignment.ts";
import { Desk, type RemoteWorker } from "../../../src/server/workers/desk.ts";
import { HttpClaims } from "../../../src/server/workers/http-claims.ts";
import type { Order } from "../../../src/server/workers/order-book.ts";
import { RemoteActs } from "../../../src/server/workers/remote-acts.ts";
import { abandon, type Outcome } from "../../../src/tasks/outcome.ts";
import { onCleanup, testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { ManualClock } from "../../support/manual-clock.ts";

const mails = queue<{ n: number }>("mails");

/** Takes what it is given, and says what it is told to. */
class Hand implements RemoteWorker {
  readonly tenant: string;
  readonly served: Assignment[][] = [];
  readonly lost: string[] = [];

  constructor(tenant = "default") {
    this.tenant = tenant;
  }

  onTasks(order: Order<Assignment>): void {
    this.served.push([...order.tasks]);
  }

  onLost(_: Assignment, why: Error): void {
    this.lost.push(why.name);
  }

  onGone(): void {
    // It keeps what it had, to act on it once more.
  }

  onRenewed(): void {
    // Nobody is told.
  }

  get tasks(): Assignment[] {
    return this.served.flat();
  }

  async gets(count: number): Promise<Assignment[]> {
    await eventually(() => expect(this.tasks).toHaveLength(count));
    return this.tasks;
  }
}

const end = (one: Assignment | undefined, outcome: Outcome): Promise<Answer> =>
  new Promise((resolve) => one?.end(outcome, resolve));

async function openDesk(clock: Clock = systemClock): Promise<{ mill: Tidemill; desk: Desk }> {
  const database = await testDatabase();
  const mill = await database.connect();
  const { directory } = mill.engine.enqueue;
  const logger = silentLogger;
  const limits = { queuesMax: 10, leaseSeconds: 30 };
  const desk = new Desk({ directory, ...limits, clock, logger });
  const options = { dispatcherStrategy: "notify", drainTimeout: 50 } as const;
  const worker = await mill.startRemoteWorker(options, desk);
  onCleanup(() => worker.stop());
  await desk.handle(["mails"], "default");
  return { mill, desk };
}

it("serves an order once, with what is there and no more than was asked for", async () => {
  const { mill, desk } = await openDesk();
  const hand = new Hand();
  desk.order(hand, ["mails"], 3);
  await mill.enqueueMany(
    mails,
    [1, 2, 3, 4, 5].map((n) => ({ payload: { n } })),
  );
  const first = await hand.gets(3);
  expect(hand.served).toHaveLength(1);
  desk.order(hand, ["mails"], 10);
  const all = await hand.gets(5);
  expect(first.map(({ task }) => task.payload)).toEqual([{ n: 1 }, { n: 2 }, { n: 3 }]);
  const answers = await Promise.all(all.map((one) => end(one, completed({ ok: true }))));
  expect(new Set(answers)).toEqual(new Set(["accepted"]));
  const [one] = all;
  expect((await mill.tasks.get(one?.task.id ?? "")).state).toBe("completed");
});

it("gives a worker tasks of its own tenant only", async () => {
  const { mill, desk } = await openDesk();
  const [ours, others] = [new Hand("a"), new Hand("b")];
  desk.order(ours, ["mails"], 10);
  await mill.enqueue(mails, { n: 1 }, { tenant: "b" });
  await mill.enqueue(mails, { n: 2 }, { tenant: "a" });
  await ours.gets(1);
  desk.order(others, ["mails"], 10);
  await others.gets(1);
  expect(ours.tasks.map(({ task }) => task.tenant)).toEqual(["a"]);
  expect(others.tasks.map(({ task }) => task.payload)).toEqual([{ n: 1 }]);
});

it("counts what a lost worker had, and hands it out again", async () => {
  const { mill, desk } = await openDesk();
  const hand = new Hand();
  desk.order(hand, ["mails"], 1);
  const { id } = await mill.enqueue(mails, { n: 1 });
  const [held] = await hand.gets(1);
  await desk.lose(held === undefined ? [] : [held]);
  expect(await end(held, completed())).toBe("refused");
  desk.order(hand, ["mails"], 1);
  const [, again] = await hand.gets(2);
  expect(again?.task).toMatchObject({ id, attempt: 2, isOnProbation: true });
  expect(await end(again, completed())).toBe("accepted");
  expect((await mill.tasks.failures(id)).map(({ outcome }) => outcome)).toEqual(["lost"]);
});

it("takes back what was abandoned without counting it", async () => {
  const { mill, desk } = await openDesk();
  const hand = new Hand();
  desk.order(hand, ["mails"], 1);
  await mill.enqueue(mails, { n: 1 });
  const [held] = await hand.gets(1);
  expect(await end(held, abandon())).toBe("accepted");
  desk.order(hand, ["mails"], 1);
  const [, again] = await hand.gets(2);
  expect(again?.task.attempt).toBe(1);
});

it("tries again what failed, and refuses a second word on it", async () => {
  const { mill, desk } = await openDesk();
  const hand = new Hand();
  desk.order(hand, ["mails"], 1);
  const backoff = { kind: "fixed", baseSeconds: 0.01 } as const;
  const { id } = await mill.enqueue(mails, { n: 1 }, { backoff });
  const [held] = await hand.gets(1);
  expect(await end(held, failed("no paper"))).toBe("accepted");
  expect(await end(held, completed())).toBe("refused");
  desk.order(hand, ["mails"], 1);
  await hand.gets(2);
  expect((await mill.tasks.failures(id))[0]?.reason).toBe("no paper");
});

it("tells the worker of a task that was cancelled", async () => {
  const { mill, desk } = await openDesk();
  const hand = new Hand();
  desk.order(hand, ["mails"], 1);
  const { id } = await mill.enqueue(mails, { n: 1 });
  const [held] = await hand.gets(1);
  expect(await mill.tasks.cancel(id)).toBe("cancelling");
  await eventually(() => expect(hand.lost).toEqual(["TaskCancelledError"]));
  expect(await end(held, completed())).toBe("refused");
  await eventually(async () => expect((await mill.tasks.get(id)).state).toBe("cancelled"));
});

it("gives nothing to an order that was withdrawn", async () => {
  const { mill, desk } = await openDesk();
  const [gone, there] = [new Hand(), new Hand()];
  desk.withdraw(desk.order(gone, ["mails"], 5));
  await mill.enqueue(mails, { n: 1 });
  desk.order(there, ["mails"], 1);
  await there.gets(1);
  expect(gone.tasks).toEqual([]);
  expect(there.tasks[0]?.task.attempt).toBe(1);
});

it("serves a queue although tasks of another wait that nobody orders any more", async () => {
  const { mill, desk } = await openDesk();
  const letters = queue<{ n: number }>("letters");
  await desk.handle(["letters"], "default");
  const many = Array.from({ length: 300 }, (_, n) => ({ payload: { n } }));
  const [first, second] = [new Hand(), new Hand()];
  desk.order(first, ["mails"], 300);
  await mill.enqueueMany(mails, many);
  await eventually(() => expect(first.served).toHaveLength(1));
  desk.order(second, ["letters"], 5);
  await mill.enqueue(letters, { n: 1 });
  await second.gets(1);
  const served = first.tasks.length;
  await eventually(async () => {
    const back = await mill.tasks.list({ queue: "mails", state: "pending", limit: 1_000 });
    expect(back).toHaveLength(300 - served);
  });
});

/** A worker that is served so fast that some are held ready for it. */
async function serveFast(mill: Tidemill, desk: Desk, clock: ManualClock): Promise<Hand> {
  const hand = new Hand();
  await mill.enqueueMany(
    mails,
    Array.from({ length: 600 }, (_, n) => ({ payload: { n } })),
  );
  const order = async (count: number): Promise<void> => {
    const before = hand.served.length;
    desk.order(hand, ["mails"], count);
    await eventually(() => expect(hand.served.length).toBeGreaterThan(before));
  };
  while (hand.tasks.length < 100) await order(100 - hand.tasks.length);
  clock.advance(20);
  const claimed = { queue: "mails", state: "running", limit: 1_000 } as const;
  do await order(1);
  while ((await mill.tasks.list(claimed)).length < hand.tasks.length + 20);
  return hand;
}

/** How often the next one was claimed. */
async function nextGeneration(desk: Desk, hand: Hand): Promise<number | undefined> {
  const { length } = hand.tasks;
  desk.order(hand, ["mails"], 1);
  return (await hand.gets(length + 1)).at(-1)?.task.token.generation;
}

it("keeps what is ready while orders come, though none stands whenever it looks", async () => {
  const clock = new ManualClock();
  const { mill, desk } = await openDesk(clock);
  const hand = await serveFast(mill, desk, clock);
  for (let look = 0; look < 4; look += 1) {
    expect(await nextGeneration(desk, hand)).toBe(1);
    clock.advance(1_000);
  }
  clock.advance(1_000); // Nobody has ordered for a second: what is left goes back.
  await eventually(async () => {
    const left = await mill.tasks.list({ queue: "mails", state: "pending", limit: 1_000 });
    expect(left).toHaveLength(600 - hand.tasks.length);
  });
  expect(await nextGeneration(desk, hand)).toBe(2);
});

it("hands out the tasks of a lost worker one by one, without a pause between them", async () => {
  const { mill, desk } = await openDesk();
  const [gone, next] = [new Hand(), new Hand()];
  desk.order(gone, ["mails"], 5);
  await mill.enqueueMany(
    mails,
    [1, 2, 3, 4, 5].map((n) => ({ payload: { n } })),
  );
  await desk.lose(await gone.gets(5));
  const startedAt = performance.now();
  desk.order(next, ["mails"], 1);
  for (let count = 1; count <= 5; count += 1) {
    const held = await next.gets(count);
    expect(held.at(-1)?.task.isOnProbation).toBe(true);
    desk.order(next, ["mails"], 1); // It waits, and only the end before it makes room for it.
    expect(await end(held.at(-1), completed())).toBe("accepted");
  }
  expect(performance.now() - startedAt).toBeLessThan(10_000);
});

it("says that a completion was refused when something else had to be written", async () => {
  const { mill, desk } = await openDesk();
  const hand = new Hand();
  desk.order(hand, ["mails"], 1);
  const { id } = await mill.enqueue(mails, { n: 1 });
  const [held] = await hand.gets(1);
  expect(await end(held, completed(10n))).toBe("replaced");
  expect((await mill.tasks.failures(id))[0]?.outcome).toBe("failed");
});

// Node 20 keeps a weak reference at each signal for every one that AbortSignal.any made of it.
it("a claim by HTTP leaves nothing at a signal that lives as long as the server", async () => {
  const { desk } = await openDesk();
  const acts = new RemoteActs(desk, { clock: systemClock, logger: silentLogger });
  const claims = new HttpClaims({ desk, acts, clock: systemClock, leaseSeconds: 30 });
  const asked = { tenant: "default", holder: "hand", queues: ["mails"], count: 1 };
  const request = { ...asked, leaseSeconds: undefined, waitMs: 1 };
  const any = vi.spyOn(AbortSignal, "any");
  onCleanup(() => Promise.resolve(any.mockRestore()));
  expect(await claims.claim(request, new AbortController().signal)).toEqual([]);
  expect(any).not.toHaveBeenCalled();
});
