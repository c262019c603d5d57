import fc from "fast-check";
import type pg from "pg";
import { expect, it } from "vitest";
import {
  DuplicateEventError,
  type ExpectedVersion,
  type PersistedEvent,
  type StreamRef,
  type Tidemill,
  WrongExpectedVersionError,
} from "../../src/index.ts";
import { testDatabase } from "../support/database.ts";
import { assertModel, type ModelTest, timeoutOf } from "./replay.ts";

/*
 * The event store against the simplest thing it could be: a list. Every command runs on both, and
 * both must answer the same.
 */

interface Stored {
  readonly stream: string;
  readonly version: number;
  readonly tag: number;
  readonly position: bigint;
}

interface Model {
  log: Stored[];
  /** Events of the transaction that is open. */
  pending: Stored[] | undefined;
  highest: bigint;
  tags: number;
}

interface Real {
  readonly mill: Tidemill;
  readonly session: pg.Client;
}

const STREAMS = ["a", "b", "c"];
const refOf = (stream: string): StreamRef => ({ type: "Thing", id: stream });
const idOf = (tag: number): string => `00000000-0000-4000-8000-${String(tag).padStart(12, "0")}`;

/** What the session that appends sees: the log, and its own open transaction. */
const seenBy = (model: Model, inTransaction: boolean): Stored[] =>
  inTransaction ? [...model.log, ...(model.pending ?? [])] : model.log;

const versionOf = (events: readonly Stored[], stream: string): number =>
  events.filter((event) => event.stream === stream).length;

function accepts(expected: ExpectedVersion, version: number): boolean {
  if (expected === "any") return true;
  return version === (expected === "no-stream" ? 0 : Number(expected));
}

class Append implements fc.AsyncCommand<Model, Real> {
  readonly stream: string;
  readonly count: number;
  readonly rule: "any" | "no-stream" | "exact" | "stale";
  readonly inTransaction: boolean;

  constructor(stream: string, count: number, rule: Append["rule"], inTransaction: boolean) {
    this.stream = stream;
    this.count = count;
    this.rule = rule;
    this.inTransaction = inTransaction;
  }

  check(model: Readonly<Model>): boolean {
    if (this.inTransaction) return model.pending !== undefined;
    // It would wait for the open transaction's stream, and nobody would end that.
    return !(model.pending ?? []).some((event) => event.stream === this.stream);
  }

  async run(model: Model, real: Real): Promise<void> {
    const version = versionOf(seenBy(model, this.inTransaction), this.stream);
    const expected = this.#expected(version);
    const tags = Array.from({ length: this.count }, () => ++model.tags);
    const events = tags.map((tag) => ({ type: "Done", data: { tag }, id: idOf(tag) }));
    const options = {
      expectedVersion: expected,
      ...(this.inTransaction ? { tx: real.session } : {}),
    };
    const appending = real.mill.append(refOf(this.stream), events, options);
    if (!accepts(expected, version)) {
      await expect(appending).rejects.toThrow(WrongExpectedVersionError);
      await expect(appending).rejects.toMatchObject({ actual: BigInt(version) });
      return;
    }
    const appended = await appending;
    expect(appended.fromVersion).toBe(BigInt(version));
    expect(appended.toVersion).toBe(BigInt(version + this.count));
    expect(appended.positions).toHaveLength(this.count);
    expect(appended.position).toBe(appended.positions.at(-1));
    for (const [index, position] of appended.positions.entries()) {
      expect(position).toBeGreaterThan(model.highest);
      model.highest = position;
      const stored = {
        stream: this.stream,
        version: version + index + 1,
        tag: tags[index] ?? 0,
        position,
      };
      (this.inTransaction ? model.pending : model.log)?.push(stored);
    }
  }

  #expected(version: number): ExpectedVersion {
    if (this.rule === "exact") return version;
    if (this.rule === "stale") return BigInt(version + 1);
    return this.rule;
  }

  toString(): string {
    const where = this.inTransaction ? " in the transaction" : "";
    return `append ${this.count} to ${this.stream}, ${this.rule}${where}`;
  }
}

class AppendAgain implements fc.AsyncCommand<Model, Real> {
  readonly pick: number;

  constructor(pick: number) {
    this.pick = pick;
  }

  check(model: Readonly<Model>): boolean {
    return model.log.length > 0 && model.pending === undefined;
  }

  async run(model: Model, { mill }: Real): Promise<void> {
    const { stream, tag } = model.log[this.pick % model.log.length]!;
    const appending = mill.append(refOf(stream), [{ type: "Done", id: idOf(tag) }]);
    await expect(appending).rejects.toThrow(DuplicateEventError);
    model.highest += 1n; // The position is gone.
  }

  toString(): string {
    return `append event ${this.pick} again`;
  }
}

class Transaction implements fc.AsyncCommand<Model, Real> {
  readonly act: "begin" | "commit" | "rollback";

  constructor(act: Transaction["act"]) {
    this.act = act;
  }

  check(model: Readonly<Model>): boolean {
    return (model.pending === undefined) === (this.act === "begin");
  }

  async run(model: Model, { session }: Real): Promise<void> {
    await session.query(this.act);
    if (this.act === "commit") {
      model.log = [...model.log, ...(model.pending ?? [])].sort((x, y) =>
        x.position < y.position ? -1 : 1,
      );
    }
    model.pending = this.act === "begin" ? [] : undefined;
  }

  toString(): string {
    return this.act;
  }
}

const shown = (events: readonly PersistedEvent[]) =>
  events.map(({ stream, streamVersion, data, position, id, type }) => ({
    stream: stream.id,
    version: Number(streamVersion),
    tag: (data as { tag: number }).tag,
    position,
    id,
    type,
  }));

const asShown = (events: readonly Stored[]) =>
  events.map((event) => ({ ...event, id: idOf(event.tag), type: "Done" }));

class ReadStream implements fc.AsyncCommand<Model, Real> {
  readonly stream: string;
  readonly from: number;
  readonly to: number | undefined;
  readonly limit: number | undefined;

  constructor(
    stream: string,
    range: { from: number; to: number | undefined; limit: number | undefined },
  ) {
    this.stream = stream;
    this.from = range.from;
    this.to = range.to;
    this.limit = range.limit;
  }

  check(): boolean {
    return true;
  }

  async run(model: Model, { mill }: Real): Promise<void> {
    const { stream, from, to, limit } = this;
    const found = await mill.readStream(refOf(stream), {
      fromVersion: from,
      ...(to === undefined ? {} : { toVersion: BigInt(to) }),
      ...(limit === undefined ? {} : { limit }),
    });
    const expected = model.log
      .filter((event) => event.stream === stream)
      .filter(({ version }) => version >= from && version <= (to ?? version))
      .slice(0, limit);
    expect(shown(found)).toEqual(asShown(expected));
  }

  toString(): string {
    return `read ${this.stream} ${this.from}..${this.to ?? ""}, at most ${this.limit}`;
  }
}

class ReadAll implements fc.AsyncCommand<Model, Real> {
  readonly after: number;
  readonly limit: number;

  constructor(after: number, limit: number) {
    this.after = after;
    this.limit = limit;
  }

  check(): boolean {
    return true;
  }

  async run(model: Model, { mill }: Real): Promise<void> {
    const found = await mill.readAll({ after: this.after, limit: this.limit });
    const above = model.log.filter(({ position }) => position > BigInt(this.after));
    expect(shown(found)).toEqual(asShown(above.slice(0, this.limit)));
    expect(await mill.latestPosition()).toBe(model.log.at(-1)?.position ?? 0n);
  }

  toString(): string {
    return `read all after ${this.after}, at most ${this.limit}`;
  }
}

const stream = fc.constantFrom(...STREAMS);
const limit = fc.option(fc.nat(5), { nil: undefined });
const commands = fc.commands(
  [
    fc
      .tuple(
        stream,
        fc.integer({ min: 1, max: 3 }),
        fc.constantFrom<Append["rule"]>("any", "no-stream", "exact", "exact", "stale"),
        fc.boolean(),
      )
      .map((given) => new Append(...given)),
    fc
      .tuple(stream, fc.integer({ min: 1, max: 3 }), fc.constant("any" as const), fc.boolean())
      .map((given) => new Append(...given)),
    fc.nat(20).map((pick) => new AppendAgain(pick)),
    fc
      .constantFrom<Transaction["act"]>("begin", "begin", "commit", "rollback")
      .map((act) => new Transaction(act)),
    fc
      .record({
        stream,
        from: fc.integer({ min: 0, max: 6 }),
        to: fc.option(fc.nat(8), { nil: undefined }),
        limit,
      })
      .map(({ stream, ...range }) => new ReadStream(stream, range)),
    fc.tuple(fc.nat(20), fc.nat(30)).map(([after, most]) => new ReadAll(after, most)),
  ],
  { maxCommands: 60, size: "max" },
);

const TEST: ModelTest = { file: "event-store.test.ts", runs: 30, seconds: 8 };

it("is a list of events with a version for each stream", { timeout: timeoutOf(TEST) }, async () => {
  const database = await testDatabase();
  const mill = await database.connect();
  const session = await database.session();
  const property = fc.asyncProperty(commands, async (all) => {
    await session.query("ROLLBACK");
    await database.pool.query("TRUNCATE tidemill.events, tidemill.stream_heads RESTART IDENTITY");
    const model: Model = { log: [], pending: undefined, highest: 0n, tags: 0 };
    await fc.asyncModelRun(() => ({ model, real: { mill, session } }), all);
  });
  await assertModel(property, TEST);
});
