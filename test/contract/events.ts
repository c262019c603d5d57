import { describe, expect, it } from "vitest";
import {
  type ConnectOptions,
  type NewEvent,
  type StreamRef,
  type Tidemill,
  WrongExpectedVersionError,
} from "../../src/index.ts";
import { type TestDatabase, testDatabase } from "../support/database.ts";
import { eventually } from "../support/eventually.ts";
import { type ContractSetup, describeIn } from "./setup.ts";

interface Scene {
  readonly database: TestDatabase;
  readonly mill: Tidemill;
}

type Open = (options?: ConnectOptions) => Promise<Scene>;

const order: StreamRef = { type: "Order", id: "1" };
const paid: NewEvent = { type: "OrderPaid", data: { total: 42 } };

async function headOf(database: TestDatabase, stream = order): Promise<string | undefined> {
  const { rows } = await database.pool.query<{ stream_version: string }>(
    "SELECT stream_version FROM tidemill.stream_heads WHERE stream_type = $1 AND stream_id = $2",
    [stream.type, stream.id],
  );
  return rows[0]?.stream_version;
}

const versionsOf = async (mill: Tidemill, stream = order): Promise<bigint[]> =>
  (await mill.readStream(stream)).map((event) => event.streamVersion);

/** Versions 1 to n, without a hole. */
const upTo = (n: number): bigint[] => Array.from({ length: n }, (_, index) => BigInt(index + 1));

/** What every way of connecting must keep of the log. */
export function eventContract(name: string, setup: ContractSetup): void {
  describeIn(setup, name, () => {
    const open: Open = async (options) => {
      const database = await testDatabase();
      return { database, mill: await setup.connect(database, options) };
    };
    describe("an append of its own", () => ownTests(open));
    describe("an append in the caller's transaction", () => callerTests(open));
    describe("concurrent appends", () => concurrentTests(open));
    describe("a read", () => readTests(open));
  });
}

function ownTests(open: Open): void {
  it("continues the stream whatever its version", async () => {
    const { mill } = await open();
    const first = await mill.append(order, [paid, paid]);
    const second = await mill.append(order, [paid], { expectedVersion: "any" });
    expect(first).toMatchObject({ stream: order, fromVersion: 0n, toVersion: 2n, position: 2n });
    expect(first.positions).toEqual([1n, 2n]);
    expect(second).toMatchObject({ fromVersion: 2n, toVersion: 3n, position: 3n });
    expect(await versionsOf(mill)).toEqual([1n, 2n, 3n]);
  });

  it("begins a stream that must not exist, once", async () => {
    const { database, mill } = await open();
    const begun = await mill.append(order, [paid], { expectedVersion: "no-stream" });
    expect(begun).toMatchObject({ fromVersion: 0n, toVersion: 1n });
    const again = mill.append(order, [paid], { expectedVersion: "no-stream" });
    await expect(again).rejects.toMatchObject({
      code: "TM_WRONG_EXPECTED_VERSION",
      retryable: false,
      stream: order,
      expected: "no-stream",
      actual: 1n,
      message: "stream Order/1 is at version 1, expected no-stream",
    });
    expect(await versionsOf(mill)).toEqual([1n]);
    expect(await headOf(database)).toBe("1");
  });

  it.each([2n, 2])("continues exactly the version given as %o", async (expectedVersion) => {
    const { mill } = await open();
    await mill.append(order, [paid, paid]);
    await expect(mill.append(order, [paid], { expectedVersion })).resolves.toMatchObject({
      fromVersion: 2n,
      toVersion: 3n,
    });
    await expect(mill.append(order, [paid], { expectedVersion })).rejects.toMatchObject({
      expected: expectedVersion,
      actual: 3n,
    });
  });

  it("takes version 0 for a stream that does not exist", async () => {
    const { mill } = await open();
    await mill.append(order, [paid], { expectedVersion: 0 });
    await expect(mill.append(order, [paid], { expectedVersion: 0n })).rejects.toBeInstanceOf(
      WrongExpectedVersionError,
    );
  });

  it("does not begin a stream that must be at a version", async () => {
    const { database, mill } = await open();
    await expect(mill.append(order, [paid], { expectedVersion: 1 })).rejects.toMatchObject({
      actual: 0n,
    });
    expect(await headOf(database)).toBeUndefined();
    expect(await mill.latestPosition()).toBe(0n);
  });
}

function callerTests(open: Open): void {
  it("becomes visible when the caller commits, together with the caller's rows", async () => {
    const { database, mill } = await open();
    await database.pool.query("CREATE TABLE orders (id TEXT)");
    await mill.transaction(async (tx) => {
      await tx.query("INSERT INTO orders VALUES ($1)", ["1"]);
      await mill.append(order, [paid], { tx, expectedVersion: "no-stream" });
      await mill.append(order, [paid], { tx, expectedVersion: 1 });
      await mill.append(order, [paid], { tx });
      expect(await mill.readStream(order)).toEqual([]);
    });
    expect(await versionsOf(mill)).toEqual([1n, 2n, 3n]);
    expect((await database.pool.query("SELECT * FROM orders")).rows).toHaveLength(1);
  });

  it("takes any node-postgres client as it is", async () => {
    const { database, mill } = await open();
    const tx = await database.session();
    await tx.query("BEGIN");
    await expect(mill.append(order, [paid], { tx })).resolves.toMatchObject({ toVersion: 1n });
    await tx.query("COMMIT");
    expect(await versionsOf(mill)).toEqual([1n]);
  });

  it.each([
    ["no-stream", "no-stream"],
    ["a version", 7],
  ] as const)("leaves it usable after a conflict with %s", async (_, expectedVersion) => {
    const { database, mill } = await open();
    await database.pool.query("CREATE TABLE orders (id TEXT)");
    await mill.append(order, [paid]);
    await mill.transaction(async (tx) => {
      await tx.query("INSERT INTO orders VALUES ($1)", ["before"]);
      const refused = mill.append(order, [paid], { tx, expectedVersion });
      await expect(refused).rejects.toMatchObject({ actual: 1n });
      await mill.append(order, [paid], { tx, expectedVersion: 1 });
      await tx.query("INSERT INTO orders VALUES ($1)", ["after"]);
    });
    expect(await versionsOf(mill)).toEqual([1n, 2n]);
    expect((await database.pool.query("SELECT * FROM orders")).rows).toHaveLength(2);
  });

  it("is undone with it: the head is restored and the next append takes its versions", async () => {
    const { database, mill } = await open();
    await mill.append(order, [paid]);
    const undone = mill.transaction(async (tx) => {
      await mill.append(order, [paid, paid], { tx, expectedVersion: 1 });
      throw new Error("changed my mind");
    });
    await expect(undone).rejects.toThrow("changed my mind");
    expect(await headOf(database)).toBe("1");
    const next = await mill.append(order, [paid], { expectedVersion: 1 });
    expect(next.toVersion).toBe(2n);
    // Positions are never handed out twice: what was rolled back leaves a hole.
    expect(next.positions).toEqual([4n]);
  });
}

function concurrentTests(open: Open): void {
  const settle = async (appends: readonly Promise<unknown>[]) => {
    const results = await Promise.allSettled(appends);
    const failures = results.flatMap((one) => (one.status === "rejected" ? [one.reason] : []));
    return { won: results.length - failures.length, failures: failures as unknown[] };
  };

  it.each([
    ["a stream that must not exist", "no-stream", 0],
    ["an exact version", 1, 1],
  ] as const)("with %s have exactly one winner", async (_, expectedVersion, before) => {
    const { database, mill } = await open({ poolSize: 20 });
    if (before > 0) await mill.append(order, [paid]);
    const { won, failures } = await settle(
      Array.from({ length: 20 }, () => mill.append(order, [paid], { expectedVersion })),
    );
    expect(won).toBe(1);
    for (const failure of failures) expect(failure).toBeInstanceOf(WrongExpectedVersionError);
    expect(await versionsOf(mill)).toEqual(upTo(before + 1));
    expect(await headOf(database)).toBe(String(before + 1));
  });

  it("with any version never conflict and leave no hole in the versions", async () => {
    const { database, mill } = await open({ poolSize: 20 });
    const appender = async (count: number): Promise<void> => {
      for (let index = 0; index < 10; index += 1) {
        await mill.append(
          order,
          Array.from({ length: count }, () => paid),
        );
      }
    };
    await Promise.all(Array.from({ length: 20 }, (_, index) => appender((index % 3) + 1)));
    const events = await mill.readStream(order);
    const expected = 10 * Array.from({ length: 20 }, (_, i) => (i % 3) + 1).reduce((a, b) => a + b);
    expect(events.map((event) => event.streamVersion)).toEqual(upTo(expected));
    const positions = events.map((event) => event.position);
    expect(positions).toEqual(positions.toSorted((a, b) => (a < b ? -1 : 1)));
    expect(await headOf(database)).toBe(String(expected));
  });

  it("wait for a first append that is undecided, and win when it is undone", async () => {
    const { database, mill } = await open();
    const undecided = await database.session();
    await undecided.query("BEGIN");
    await mill.append(order, [paid], { tx: undecided, expectedVersion: "no-stream" });
    const waiting = mill.append(order, [paid], { expectedVersion: "no-stream" });
    await eventually(async () => {
      const { rows } = await database.pool.query(
        `SELECT FROM pg_stat_activity
          WHERE datname = current_database() AND wait_event_type = 'Lock'`,
      );
      expect(rows).toHaveLength(1);
    });
    await undecided.query("ROLLBACK");
    await expect(waiting).resolves.toMatchObject({ toVersion: 1n });
    expect(await versionsOf(mill)).toEqual([1n]);
  });

  it("to other streams do not wait for each other", async () => {
    const { database, mill } = await open();
    const held = await database.session();
    await held.query("BEGIN");
    await mill.append(order, [paid], { tx: held });
    const other = { type: "Order", id: "2" };
    await expect(mill.append(other, [paid])).resolves.toMatchObject({ toVersion: 1n });
    await held.query("COMMIT");
    // The same id in another type is another stream.
    await expect(mill.append({ type: "Refund", id: "1" }, [paid])).resolves.toMatchObject({
      toVersion: 1n,
    });
  });
}

function readTests(open: Open): void {
  it("of all streams goes by position, page after page", async () => {
    const { mill } = await open();
    await mill.append(order, [paid, paid, paid, paid, paid]);
    await mill.append({ type: "Refund", id: "1" }, [{ type: "Asked" }, { type: "Granted" }]);
    const pages: bigint[][] = [];
    for (let after = 0n; ; ) {
      const page = await mill.readAll({ after, limit: 3 });
      if (page.length === 0) break;
      pages.push(page.map((event) => event.position));
      after = page.at(-1)?.position ?? after;
    }
    expect(pages).toEqual([[1n, 2n, 3n], [4n, 5n, 6n], [7n]]);
    const last = await mill.readAll({ after: 5 });
    expect(last.map((event) => event.type)).toEqual(["Asked", "Granted"]);
  });

  it("knows the highest position that is visible, 0 in an empty log", async () => {
    const { database, mill } = await open();
    expect(await mill.latestPosition()).toBe(0n);
    const undone = await database.session();
    await undone.query("BEGIN");
    await mill.append(order, [paid], { tx: undone });
    expect(await mill.latestPosition()).toBe(0n);
    await mill.append({ type: "Refund", id: "1" }, [paid]);
    expect(await mill.latestPosition()).toBe(2n);
    await undone.query("ROLLBACK");
    expect((await mill.readAll()).map((event) => event.position)).toEqual([2n]);
  });
}
