import { expect, it } from "vitest";
import { systemClock } from "../../../src/base/clock.ts";
import { silentLogger } from "../../../src/base/log.ts";
import { completed, failed, queue, type Tidemill } from "../../../src/index.ts";
import type { Answer, Assignment } from "../../../src/server/workers/assignment.ts";
import { Desk, type RemoteWorker } from "../../../src/server/workers/desk.ts";
import type { Order } from "../../../src/server/workers/order-book.ts";
import { abandon, type Outcome } from "../../../src/tasks/outcome.ts";
import { onCleanup, testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";

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

async function openDesk(): Promise<{ mill: Tidemill; desk: Desk }> {
  const database = await testDatabase();
  const mill = await database.connect();
  const { directory } = mill.engine.enqueue;
  const logger = silentLogger;
  const desk = new Desk({ directory, queuesMax: 10, clock: systemClock, logger });
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
