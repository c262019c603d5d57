import { describe, expect, it } from "vitest";
import { type ConsumerTx, consumer, type Tidemill } from "../../../src/index.ts";
import { type TestDatabase, testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { STEADY, statusOf } from "./handled.ts";

const OPTIONS = { ...STEADY, maxConsecutiveFailures: 2 };

interface Setup {
  readonly database: TestDatabase;
  readonly mill: Tidemill;
  /** `A2` is the second event of stream A. Whatever is in here fails, in its own way. */
  readonly failing: Map<string, (tx: ConsumerTx) => unknown>;
  readonly books: ReturnType<typeof consumer>;
  /** What was handled and committed, in order. */
  handled(): Promise<string[]>;
  /** Appends one event to each of the streams. */
  append(...streams: string[]): Promise<void>;
}

async function setup(): Promise<Setup> {
  const database = await testDatabase();
  await database.pool.query("CREATE TABLE handled (n SERIAL, what TEXT)");
  const mill = await database.connect();
  const failing: Setup["failing"] = new Map();
  const books = consumer("books", {
    onFailure: "park",
    handle: async (event, { tx }) => {
      const what = `${event.streamId}${event.streamVersion}`;
      await tx.query("INSERT INTO handled (what) VALUES ($1)", [what]);
      await failing.get(what)?.(tx);
    },
  });
  return {
    database,
    mill,
    failing,
    books,
    async handled() {
      const { rows } = await database.pool.query<{ what: string }>(
        "SELECT what FROM handled ORDER BY n",
      );
      return rows.map((row) => row.what);
    },
    async append(...streams) {
      for (const id of streams) await mill.append({ type: "Order", id }, [{ type: "Step" }]);
    },
  };
}

const fail = (): never => {
  throw new Error("cannot book this");
};

/** A1 is handled; A2 fails, so it and A3 are parked; B flows. */
async function parked(): Promise<Setup> {
  const all = await setup();
  all.failing.set("A2", fail);
  await all.append("A", "A", "B", "A", "B");
  await all.mill.startWorker({ consumers: [all.books], ...OPTIONS });
  await all.mill.waitFor(all.books, { position: 5n });
  expect(await all.handled()).toEqual(["A1", "B1", "B2"]);
  return all;
}

const handledAfter = async (all: Setup, expected: readonly string[]): Promise<void> => {
  await eventually(async () => {
    expect(await all.handled()).toEqual(expected);
  });
};

describe("a poison event with onFailure park", () => {
  it("sets its stream aside with all that follows in it, and lets the others flow", async () => {
    const all = await parked();
    expect(await statusOf(all.mill, "books")).toMatchObject({
      state: "running",
      checkpoint: 5n,
      parkedStreams: 1,
      parkedEvents: 2,
    });
    await all.append("B", "A", "C");
    await all.mill.waitFor(all.books, { position: 8n });
    expect(await all.handled()).toEqual(["A1", "B1", "B2", "B3", "C1"]);
    const { rows } = await all.database.pool.query(
      "SELECT global_position::int AS at FROM tidemill.parked_events ORDER BY 1",
    );
    expect(rows).toEqual([{ at: 2 }, { at: 4 }, { at: 7 }]);
    const { rows: streams } = await all.database.pool.query(
      "SELECT stream_id, state, error, stack FROM tidemill.parked_streams",
    );
    expect(streams).toEqual([
      {
        stream_id: "A",
        state: "parked",
        error: "cannot book this",
        stack: expect.stringContaining("park.test.ts") as string,
      },
    ]);
  });

  it("is replayed in order, before newer events of its stream, when resumed", async () => {
    const all = await parked();
    await all.append("A", "A");
    all.failing.clear();
    expect(await all.mill.consumers.resume("books")).toEqual({ resumed: 0, replaying: 1 });
    await all.append("A", "B");
    await eventually(async () => {
      const handled = await all.handled();
      // Between streams there is no order to keep.
      expect(handled.filter((what) => what.startsWith("A"))).toEqual([
        "A1",
        "A2",
        "A3",
        "A4",
        "A5",
        "A6",
      ]);
      expect(handled.filter((what) => what.startsWith("B"))).toEqual(["B1", "B2", "B3"]);
    });
    expect(await statusOf(all.mill, "books")).toMatchObject({ parkedStreams: 0, parkedEvents: 0 });
    await all.append("A");
    await all.mill.waitFor(all.books, { position: 10n });
    expect((await all.handled()).at(-1)).toBe("A7");
  });

  it("is replayed with hundreds behind it, each once", async () => {
    const all = await parked();
    const many = Array.from({ length: 250 }, () => ({ type: "Step" }));
    const { position } = await all.mill.append({ type: "Order", id: "A" }, many);
    await all.mill.waitFor(all.books, { position });
    all.failing.clear();
    await all.mill.consumers.resume("books");
    const replayed = Array.from({ length: 252 }, (_, index) => `A${index + 2}`);
    await handledAfter(all, ["A1", "B1", "B2", ...replayed]);
  });

  it("parks again when its replay fails, with nothing of the replay left behind", async () => {
    const all = await parked();
    all.failing.clear();
    all.failing.set("A3", () => {
      throw new Error("nor this");
    });
    await all.mill.consumers.resume("books");
    await eventually(async () => {
      const { rows } = await all.database.pool.query("SELECT error FROM tidemill.parked_streams");
      expect(rows).toEqual([{ error: "nor this" }]);
    });
    expect(await all.handled()).toEqual(["A1", "B1", "B2"]);
    expect(await statusOf(all.mill, "books")).toMatchObject({ parkedStreams: 1, parkedEvents: 2 });
    all.failing.clear();
    await all.mill.consumers.resume("books");
    await handledAfter(all, ["A1", "B1", "B2", "A2", "A3"]);
  });

  it("does not keep other parked streams from being replayed", async () => {
    const all = await parked();
    all.failing.set("C1", fail);
    await all.append("C", "C");
    await all.mill.waitFor(all.books, { position: 7n });
    all.failing.delete("C1");
    await all.mill.consumers.resume("books");
    await handledAfter(all, ["A1", "B1", "B2", "C1", "C2"]);
    expect(await statusOf(all.mill, "books")).toMatchObject({ parkedStreams: 1, parkedEvents: 2 });
  });

  it("stays parked for the worker that takes over", async () => {
    const all = await setup();
    all.failing.set("A1", fail);
    await all.append("A", "B");
    await all.mill.runToHead({ consumers: [all.books], ...OPTIONS });
    await all.append("A", "B");
    await all.mill.runToHead({ consumers: [all.books], ...OPTIONS });
    expect(await all.handled()).toEqual(["B1", "B2"]);
    all.failing.clear();
    await all.mill.consumers.resume("books");
    await all.mill.startWorker({ consumers: [all.books], ...OPTIONS });
    await handledAfter(all, ["B1", "B2", "A1", "A2"]);
  });

  it("keeps the order of its stream when the consumer is changed to quarantine", async () => {
    const all = await setup();
    all.failing.set("A1", fail);
    await all.append("A", "B");
    await all.mill.runToHead({ consumers: [all.books], ...OPTIONS });
    const { handle } = all.books;
    const changed = consumer("books", { handle });
    await all.append("A");
    await all.mill.runToHead({ consumers: [changed], ...OPTIONS });
    expect(await all.handled()).toEqual(["B1"]);
  });

  it("is met again in the log when the consumer is rewound below it", async () => {
    const all = await parked();
    all.failing.clear();
    await all.mill.consumers.rewind("books", { to: 1n });
    await all.mill.waitFor(all.books, { position: 5n });
    await handledAfter(all, ["A1", "B1", "B2", "A2", "B1", "A3", "B2"]);
    expect(await statusOf(all.mill, "books")).toMatchObject({ parkedStreams: 0, parkedEvents: 0 });
  });
});

describe("the replay of parked events", () => {
  const MISDEEDS: readonly [string, (tx: ConsumerTx) => unknown, RegExp][] = [
    [
      "swallows the error of a statement",
      (tx) => tx.query("SELECT 1 / 0").catch(() => {}),
      /ignored the error/,
    ],
    ["ends the transaction itself", (tx) => tx.query("COMMIT"), /must not commit or roll back/],
    [
      "breaks a constraint that is checked at commit",
      (tx) => tx.query("INSERT INTO strict VALUES (1), (1)"),
      /strict_n_key/,
    ],
    ["never ends", () => new Promise(() => {}), /batchTimeout/],
    ["throws an error with a zero byte", () => Promise.reject(new Error("\u0000")), /./],
  ];

  it.each(MISDEEDS)("parks again when the handler %s", async (_, misdeed, message) => {
    const all = await setup();
    await all.database.pool.query(
      "CREATE TABLE strict (n INT UNIQUE DEFERRABLE INITIALLY DEFERRED)",
    );
    all.failing.set("A1", fail);
    await all.append("A");
    const worker = all.mill.worker({ consumers: [all.books], ...OPTIONS, batchTimeout: 1_500 });
    const stop = new AbortController();
    const running = worker.start(stop.signal);
    await eventually(() => expect(worker.assigned).toEqual(["books"]));
    await all.mill.waitFor(all.books, { position: 1n });
    all.failing.set("A1", misdeed);
    await all.mill.consumers.resume("books");
    await Promise.race([
      running.then(() => expect.fail("the worker ended")),
      eventually(async () => {
        const { rows } = await all.database.pool.query<{ state: string; error: string }>(
          "SELECT state, error FROM tidemill.parked_streams",
        );
        expect(rows).toMatchObject([{ state: "parked" }]);
        expect(rows[0]?.error).toMatch(message);
      }),
    ]);
    await all.append("B");
    await all.mill.waitFor(all.books, { position: 2n });
    stop.abort();
    await running;
  });

  it("is interrupted by a stop that waited long enough, and repeated elsewhere", async () => {
    const all = await setup();
    all.failing.set("A1", fail);
    await all.append("A");
    const worker = await all.mill.startWorker({
      consumers: [all.books],
      ...OPTIONS,
      drainTimeout: 100,
    });
    await all.mill.waitFor(all.books, { position: 1n });
    const entered = new Promise<void>((resolve) => {
      all.failing.set("A1", () => {
        resolve();
        return new Promise(() => {});
      });
    });
    await all.mill.consumers.resume("books");
    await entered;
    await worker.stop();
    all.failing.clear();
    await all.mill.startWorker({ consumers: [all.books], ...OPTIONS });
    await handledAfter(all, ["A1"]);
  });
});

describe("what was set aside", () => {
  it("is told by why, and replayed stream by stream, for a reason that is kept", async () => {
    const all = await setup();
    const { mill, failing, books } = all;
    for (const what of ["A1", "B1", "C1"]) {
      failing.set(what, () => {
        throw new Error(what === "C1" ? "no such account" : `cannot book ${what}`);
      });
    }
    await all.append("A", "B", "C", "A");
    await mill.startWorker({ consumers: [books], ...OPTIONS });
    await mill.waitFor(books, { position: 4n });
    const { groups, isCut } = await mill.consumers.parked();
    expect(isCut).toBe(false);
    expect(groups[0]?.events).toBe(2);
    expect(groups.toSorted((a, b) => (a.error < b.error ? -1 : 1))).toMatchObject([
      { consumer: "books", state: "parked", error: "cannot book A#", events: 2 },
      { error: "cannot book B#", events: 1 },
      { error: "no such account", streams: [{ type: "Order", id: "C", position: "3" }] },
    ]);
    failing.clear();
    const streams = [{ type: "Order", id: "A" }];
    expect(await mill.consumers.replay("books", { streams, reason: "fixed" })).toBe(1);
    await handledAfter(all, ["A1", "A2"]);
    await eventually(async () => {
      expect((await mill.consumers.parked()).groups.map(({ events }) => events)).toEqual([1, 1]);
    });
    const again = mill.consumers.replay("books", { streams });
    await expect(again).rejects.toThrow("has none of these streams parked");
    const { rows } = await all.database.pool.query(
      "SELECT action, detail, reason FROM tidemill.operator_actions",
    );
    expect(rows).toEqual([{ action: "replay", detail: { streams: 1 }, reason: "fixed" }]);
  });
});
