import { createHash, randomBytes } from "node:crypto";
import { expect, it } from "vitest";
import type { NewEvent, PersistedEvent } from "../../../src/index.ts";
import { testDatabase } from "../../support/database.ts";

const order = { type: "Order", id: "1" };

/** Of megabytes, a difference is shown by a digest more readably, and much sooner. */
const digest = (bytes: Uint8Array): string =>
  `${bytes.length} bytes ${createHash("sha256").update(bytes).digest("hex")}`;

async function storedAll(events: readonly NewEvent[]): Promise<PersistedEvent[]> {
  const mill = await (await testDatabase()).connect();
  for (const event of events) await mill.append(order, [event]);
  await mill.append({ type: "Together", id: "1" }, events);
  const together = await mill.readStream({ type: "Together", id: "1" });
  expect(together.map((event) => digest(event.payload))).toEqual(
    (await mill.readStream(order)).map((event) => digest(event.payload)),
  );
  return together;
}

it("stores bytes as given", async () => {
  const payloads = [
    Uint8Array.from({ length: 256 }, (_, value) => value),
    Uint8Array.of(0x00, 0xff, 0x00),
    Uint8Array.from(randomBytes(64 * 1024)),
    new Uint8Array(),
    Buffer.from("xxpartxx").subarray(2, 6),
  ];
  const stored = await storedAll(payloads.map((bytes) => ({ type: "Blob", bytes })));
  expect(stored.map((event) => digest(event.payload))).toEqual(payloads.map(digest));
});

it("stores data as JSON, whatever the text in it", async () => {
  const values = [
    { total: 42, lines: [1, null, "é 漢 🜁"] },
    { zero: "a\u0000b" },
    { half: "\ud800", "\udc00": 1 },
    { escaped: '\\u0000 \\ "' },
    null,
    false,
    "",
    { long: "x".repeat(64 * 1024) },
  ];
  const stored = await storedAll(values.map((data) => ({ type: "Fact", data })));
  expect(stored.map((event) => event.data)).toEqual(values);
  const texts = stored.map((event) => event.payload.toString("utf8"));
  expect(texts).toEqual(values.map((data) => JSON.stringify(data)));
});

it("stores an event without payload as an empty object", async () => {
  const [event] = await storedAll([{ type: "OrderPaid" }]);
  expect(event?.data).toEqual({});
});

it("says that bytes are not JSON only when they are read as such", async () => {
  const [event] = await storedAll([{ type: "Blob", bytes: Uint8Array.of(0xff) }]);
  expect(event?.payload).toHaveLength(1);
  expect(() => event?.data).toThrow(SyntaxError);
});

it("gives back everything that came with the event", async () => {
  const database = await testDatabase();
  const mill = await database.connect();
  const given = {
    type: "OrderPaid",
    version: 3,
    id: "0197a3f0-0000-7000-8000-000000000001",
    metadata: { user: "ann", nested: { list: [1, 2] }, text: "é 漢 🜁" },
    traceId: "4bf92f3577b34da6a3ce929d0e0e4736",
    correlationId: "order 1 · 'quoted' \"twice\"",
    causationId: "-",
    stream: order,
  };
  const { rows } = await database.pool.query<{ now: Date }>("SELECT clock_timestamp() AS now");
  const { position } = await mill.append(order, [given]);
  const [event] = await mill.readStream(order);
  expect(event).toMatchObject({
    position,
    stream: order,
    streamType: "Order",
    streamId: "1",
    streamVersion: 1n,
    version: 3,
    id: given.id,
    type: given.type,
    metadata: given.metadata,
    traceId: given.traceId,
    correlationId: given.correlationId,
    causationId: given.causationId,
  });
  expect(event?.createdAt.getTime()).toBeGreaterThanOrEqual(rows[0]?.now.getTime() ?? Infinity);
});

it("stores ids that are empty, and metadata that is not given, as NULL", async () => {
  const database = await testDatabase();
  const mill = await database.connect();
  await mill.append(order, [
    { type: "OrderPaid", traceId: "", correlationId: "", causationId: "" },
    { type: "OrderPaid" },
    { type: "OrderPaid", metadata: {} },
  ]);
  const { rows } = await database.pool.query(
    "SELECT trace_id, correlation_id, causation_id, metadata FROM tidemill.events ORDER BY 1, 4",
  );
  const nothing = { trace_id: null, correlation_id: null, causation_id: null, metadata: null };
  expect(rows).toEqual(expect.arrayContaining([nothing, nothing, { ...nothing, metadata: {} }]));
  const [event] = await mill.readStream(order);
  expect(event?.traceId).toBeUndefined();
  expect(event?.metadata).toBeUndefined();
});

it("keeps the order given, in versions and in positions, for 1000 events", async () => {
  const mill = await (await testDatabase()).connect();
  const events = Array.from({ length: 1000 }, (_, index) => ({ type: "Step", data: index }));
  const { positions, toVersion } = await mill.append(order, events);
  expect(toVersion).toBe(1000n);
  expect(positions).toEqual(Array.from({ length: 1000 }, (_, index) => BigInt(index + 1)));
  const byPosition = await mill.readAll({ limit: 2000 });
  expect(byPosition.map((event) => event.data)).toEqual(events.map((event) => event.data));
  expect(byPosition.map((event) => event.position)).toEqual(positions);
});
