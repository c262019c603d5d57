import { describe, expect, it } from "vitest";
import type { AppendOptions, NewEvent, StreamRef } from "../../../src/index.ts";
import { testDatabase } from "../../support/database.ts";

const order: StreamRef = { type: "Order", id: "1" };
const paid: NewEvent = { type: "OrderPaid" };
const circular: Record<string, unknown> = {};
circular["self"] = circular;

interface Refusal {
  readonly what: string;
  readonly stream?: StreamRef;
  readonly events?: readonly NewEvent[];
  readonly options?: AppendOptions;
  readonly message: RegExp;
  readonly code?: string;
}

const bad = (value: object): NewEvent => ({ ...paid, ...value });
const as = <T>(value: unknown): T => value as T;

const REFUSALS: readonly Refusal[] = [
  { what: "no events", events: [], message: /at least one event/ },
  { what: "a stream without id", stream: { type: "Order", id: "" }, message: /type and an id/ },
  { what: "a stream without type", stream: { type: "", id: "1" }, message: /type and an id/ },
  { what: "no stream", stream: as(undefined), message: /type and an id/ },
  { what: "no event type", events: [paid, { type: "" }], message: /^event 1: type/ },
  {
    what: "an event of another stream type",
    events: [paid, bad({ stream: { type: "Refund", id: "1" } })],
    message: /^event 1: stream type mismatch: Refund, not Order/,
  },
  {
    what: "an event of another stream id",
    events: [bad({ stream: order }), bad({ stream: { type: "Order", id: "2" } })],
    message: /^event 1: stream id mismatch: 2, not 1/,
  },
  { what: "an id that is no UUID", events: [bad({ id: "7" })], message: /UUID, not "7"/ },
  { what: "an empty id", events: [bad({ id: "" })], message: /UUID, not ""/ },
  { what: "payload version 0", events: [bad({ version: 0 })], message: /at least 1, not 0/ },
  { what: "half a payload version", events: [bad({ version: 1.5 })], message: /not 1\.5/ },
  { what: "too high a payload version", events: [bad({ version: 2 ** 31 })], message: /version/ },
  {
    what: "data and bytes",
    events: [bad({ data: 1, bytes: new Uint8Array(1) })],
    message: /data or bytes, not both/,
  },
  { what: "data that JSON cannot hold", events: [bad({ data: () => 1 })], message: /as JSON/ },
  { what: "data with a bigint", events: [bad({ data: { n: 1n } })], message: /BigInt/ },
  { what: "circular data", events: [bad({ data: circular })], message: /circular/i },
  { what: "metadata with a bigint", events: [bad({ metadata: { n: 1n } })], message: /BigInt/ },
  { what: "circular metadata", events: [bad({ metadata: circular })], message: /circular/i },
  {
    what: "an event option that does not exist",
    events: [as({ type: "OrderPaid", dta: 1 })],
    message: /unknown event option "dta"; did you mean "data"/,
  },
  {
    what: "a negative expected version",
    options: { expectedVersion: -1 },
    message: /at least 0, not -1/,
  },
  { what: "half an expected version", options: { expectedVersion: 0.5 }, message: /not 0\.5/ },
  {
    what: "an expected version in words",
    options: { expectedVersion: as("latest") },
    message: /not latest/,
  },
  {
    what: "an append option that does not exist",
    options: as({ expectVersion: 1 }),
    message: /did you mean "expectedVersion"/,
    code: "TM_CONFIG",
  },
  // PostgreSQL refuses these, in the middle of the statement.
  { what: "a zero byte in a stream id", stream: { type: "A", id: "\u0000" }, message: /0x00/ },
  { what: "a zero byte in an event type", events: [paid, { type: "a\u0000" }], message: /Unicode/ },
  {
    what: "a zero byte in metadata",
    events: [paid, bad({ metadata: { a: "\u0000" } })],
    message: /Unicode/,
  },
  {
    what: "a zero byte in a trace id",
    events: [paid, bad({ traceId: "a\u0000" })],
    message: /Unicode/,
  },
  {
    what: "half a character in metadata",
    events: [paid, bad({ metadata: { a: "\ud800" } })],
    message: /json/,
  },
  { what: "half a character in a stream id", stream: { type: "A", id: "\ud800" }, message: /id/ },
];

it("refuses what can never be stored, says why, and writes nothing", async () => {
  const database = await testDatabase();
  const mill = await database.connect();
  for (const { what, message, code, ...given } of REFUSALS) {
    const { stream, events, options } = { stream: order, events: [paid], options: {}, ...given };
    const refused = mill.append(stream, events, options);
    const expected = { code: code ?? "TM_INVALID_INPUT", message: expect.stringMatching(message) };
    await expect.soft(refused, what).rejects.toMatchObject(expected);
    const { rows } = await database.pool.query(
      "SELECT FROM tidemill.events UNION ALL SELECT FROM tidemill.stream_heads",
    );
    expect(rows, what).toEqual([]);
  }
});

it("refuses a transaction that cannot run statements", async () => {
  const mill = await (await testDatabase()).connect();
  const tx = {} as never;
  await expect(mill.append(order, [paid], { tx })).rejects.toMatchObject({ code: "TM_CONFIG" });
});

describe("an event id", () => {
  const id = "0197a3f0-0000-7000-8000-000000000001";

  it("may stand in the log once, so a repeated append is noticed", async () => {
    const mill = await (await testDatabase()).connect();
    await mill.append(order, [{ ...paid, id }]);
    const repeated = mill.append(order, [{ ...paid, id }]);
    await expect(repeated).rejects.toMatchObject({ code: "TM_DUPLICATE_EVENT", retryable: false });
    await expect(repeated).rejects.toThrow("an event with this id is already in the log");
    const elsewhere = mill.append({ type: "Refund", id: "9" }, [{ ...paid, id: id.toUpperCase() }]);
    await expect(elsewhere).rejects.toMatchObject({ code: "TM_DUPLICATE_EVENT" });
    expect((await mill.append(order, [paid])).toVersion).toBe(2n);
  });

  it("may not stand twice in one append, of which nothing is written", async () => {
    const mill = await (await testDatabase()).connect();
    const twice = mill.append(order, [paid, { ...paid, id }, { ...paid, id }]);
    await expect(twice).rejects.toMatchObject({ code: "TM_DUPLICATE_EVENT" });
    expect(await mill.readAll()).toEqual([]);
    expect((await mill.append(order, [paid])).toVersion).toBe(1n);
  });

  it("is made when none is given, later ones being higher", async () => {
    const mill = await (await testDatabase()).connect();
    await mill.append(
      order,
      Array.from({ length: 50 }, () => paid),
    );
    const ids = (await mill.readStream(order)).map((event) => event.id);
    expect(new Set(ids).size).toBe(50);
    expect(ids).toEqual(ids.toSorted());
  });
});

it("names a version of the stream that a foreign writer took", async () => {
  const database = await testDatabase();
  const mill = await database.connect();
  await database.pool.query(
    `INSERT INTO tidemill.events
            (stream_type, stream_id, stream_version, event_id, event_type, payload)
     VALUES ('Order', '1', 1, gen_random_uuid(), 'Foreign', '')`,
  );
  await expect(mill.append(order, [paid])).rejects.toThrow("an event with this version is already");
});
