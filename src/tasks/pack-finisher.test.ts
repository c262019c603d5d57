import { expect, it, onTestFinished } from "vitest";
import { ManualClock, settle } from "../../test/support/manual-clock.ts";
import { silentLogger } from "../base/log.ts";
import type { Queryable } from "../db/database.ts";
import type { Statement } from "../db/statement.ts";
import { ClaimedPack } from "./claimed-pack.ts";
import type { ClaimedTask, TaskPack } from "./claimed-task.ts";
import { EndedClaims } from "./ended-claims.ts";
import { PackFinisher, type PackFinisherOptions } from "./pack-finisher.ts";
import { FIELD } from "./sql/claim.ts";

const SETTLEMENT = { kind: "complete", result: "" } as const;

/** Of so many tasks, none of which has ended. */
function pack(id: number, size: number): TaskPack {
  const ids = Array.from({ length: size }, (_, n) => id + n);
  const made: TaskPack = new ClaimedPack(
    [id, 1, 5, 0, "", "", ids.join(), ""].join(FIELD),
    "claim",
  );
  for (const one of ids) {
    const task = {
      id: String(one),
      queue: "orders",
      result: "",
      pack: made,
      settlement: SETTLEMENT,
    };
    made.tasks.push(task as unknown as ClaimedTask);
  }
  return made;
}

type Told = Partial<
  Pick<PackFinisherOptions, "onCompleted" | "onOpened" | "onAnswered" | "lingerMs">
>;

/** Runs until its test is over. */
function started(db: Queryable, told: Told, clock = new ManualClock()): PackFinisher {
  const stop = new AbortController();
  const finisher = new PackFinisher(db, {
    clock,
    logger: silentLogger,
    endedClaims: new EndedClaims(),
    onCompleted: () => {},
    onOpened: () => {},
    onAnswered: () => {},
    ...told,
  });
  void finisher.run(stop.signal);
  onTestFinished(() => stop.abort());
  return finisher;
}

it("opens a pack that waits too long, also when others complete without end", async () => {
  const clock = new ManualClock();
  const sent: string[] = [];
  const db: Queryable = {
    query: <Row>({ name }: Statement, values: readonly unknown[] = []): Promise<Row[]> => {
      sent.push(name);
      if (name !== "packs_complete") return Promise.resolve([]);
      const ids = String(values[0]).slice(1, -1).split(",");
      return Promise.resolve(ids.map((id) => ({ id, is_done: true })) as Row[]);
    },
  };
  let next = 1_000;
  const complete = (): void => {
    next += 10;
    const full = pack(next, 1);
    for (const task of full.tasks) finisher.add(full, task);
  };
  const passedOn: string[] = [];
  const told: Told = {
    onOpened: ({ id }) => passedOn.push(id),
    onAnswered: complete, // Another one is full before this one is answered for.
  };
  const finisher = started(db, told, clock);
  const slow = pack(1, 2);
  finisher.add(slow, slow.tasks[0]!);
  complete();
  await settle();
  expect(passedOn).toEqual([]);
  clock.advance(21);
  for (let round = 0; round < 5; round += 1) await settle();
  expect(passedOn).toEqual(["1"]);
  expect(sent.filter((name) => name === "packs_open_claimed")).toHaveLength(1);
});

it("waits for the ends of a pack for as long as it is told", async () => {
  const clock = new ManualClock();
  const passedOn: string[] = [];
  const told: Told = { lingerMs: 100, onOpened: ({ id }) => passedOn.push(id) };
  const finisher = started({ query: async () => [] }, told, clock);
  const slow = pack(1, 2);
  finisher.add(slow, slow.tasks[0]!);
  await settle();
  clock.advance(99);
  await settle();
  expect(passedOn).toEqual([]);
  clock.advance(1);
  await settle();
  expect(passedOn).toEqual(["1"]);
});

it("completes packs although another one cannot be opened", async () => {
  const clock = new ManualClock();
  const completed: string[] = [];
  const db: Queryable = {
    query: <Row>({ name }: Statement, values: readonly unknown[] = []): Promise<Row[]> => {
      if (name !== "packs_complete") return Promise.reject(new Error("it cannot be opened"));
      const ids = String(values[0]).slice(1, -1).split(",");
      return Promise.resolve(ids.map((id) => ({ id, is_done: true })) as Row[]);
    },
  };
  const told: Told = {
    onCompleted: ({ id }) => completed.push(id),
  };
  const finisher = started(db, told, clock);
  const slow = pack(1, 2);
  finisher.add(slow, slow.tasks[0]!);
  await settle();
  clock.advance(21);
  await settle();
  const full = pack(10, 1);
  finisher.add(full, full.tasks[0]!);
  clock.advance(100); // The pack that could not be opened is due again.
  await settle();
  expect(completed).toEqual(["10"]);
  expect(finisher.isEmpty).toBe(false);
});

/** Answers when told to, and what is full is completed as it is asked. */
function slowServer() {
  const batches: { ids: string[]; answer: () => void; fail: () => void }[] = [];
  const db: Queryable = {
    query: <Row>(_: Statement, values: readonly unknown[] = []): Promise<Row[]> =>
      new Promise((resolve, reject) => {
        const ids = String(values[0]).slice(1, -1).split(",");
        batches.push({
          ids,
          answer: () => resolve(ids.map((id) => ({ id, is_done: true })) as Row[]),
          fail: () => reject(new Error("the connection broke")),
        });
      }),
  };
  return { batches, db };
}

it("sends three packs before it deals with the answer of the last one", async () => {
  const { batches, db } = slowServer();
  const completed: string[] = [];
  const sentBefore: number[] = [];
  const told: Told = {
    onCompleted: ({ id }) => {
      completed.push(id);
      sentBefore.push(batches.length);
    },
  };
  const finisher = started(db, told);
  const full = (from: number, to: number): void => {
    for (let id = from; id <= to; id += 1) {
      const one = pack(id, 1);
      for (const task of one.tasks) finisher.add(one, task);
    }
  };
  full(1, 1);
  await settle();
  full(2, 4);
  batches[0]?.answer();
  await settle();
  expect(sentBefore).toEqual([2]); // Three were enough to go first.
  full(5, 6);
  batches[1]?.answer();
  await settle();
  expect(sentBefore.slice(1)).toEqual(Array.from({ length: 3 }, () => 2)); // Two were not.
  expect(finisher.isEmpty).toBe(false);
  batches[2]?.answer();
  await settle();
  expect(completed).toHaveLength(6);
  expect(finisher.isEmpty).toBe(true);
});

it("sends again what went before an answer and was not answered itself", async () => {
  const clock = new ManualClock();
  const { batches, db } = slowServer();
  const completed = new Set<string>();
  const told: Told = {
    onCompleted: ({ id }) => completed.add(id),
  };
  const finisher = started(db, told, clock);
  const packs = Array.from({ length: 11 }, (_, n) => pack(n + 1, 1));
  for (const one of packs) {
    if (one === packs[1]) await settle(); // The first goes alone.
    for (const task of one.tasks) finisher.add(one, task);
  }
  batches[0]?.answer();
  await settle();
  batches[1]?.fail();
  await settle();
  expect(finisher.isEmpty).toBe(false);
  clock.advance(60);
  await settle();
  expect(batches[2]?.ids).toEqual(batches[1]?.ids);
  expect(packs.map((one) => one.isDoubtful)).toEqual([false, ...Array(10).fill(true)]);
  batches[2]?.answer();
  await settle();
  expect(completed.size).toBe(11);
});
