import { expect, it } from "vitest";
import type { ReadStreamOptions, Tidemill } from "../../../src/index.ts";
import { testDatabase } from "../../support/database.ts";

const order = { type: "Order", id: "1" };
const refund = { type: "Refund", id: "1" };

/** Five events of the order at positions 1 to 5, then two of the refund. */
async function filled(): Promise<Tidemill> {
  const mill = await (await testDatabase()).connect();
  const steps = Array.from({ length: 5 }, (_, index) => ({ type: "Step", data: index + 1 }));
  await mill.append(order, steps);
  await mill.append(refund, [{ type: "Asked" }, { type: "Granted" }]);
  return mill;
}

it("reads a stream within bounds that belong to it", async () => {
  const mill = await filled();
  const read = async (options: ReadStreamOptions): Promise<unknown[]> =>
    (await mill.readStream(order, options)).map((event) => event.data);
  expect(await read({})).toEqual([1, 2, 3, 4, 5]);
  expect(await read({ fromVersion: 2 })).toEqual([2, 3, 4, 5]);
  expect(await read({ toVersion: 2n })).toEqual([1, 2]);
  expect(await read({ fromVersion: 2n, toVersion: 4 })).toEqual([2, 3, 4]);
  expect(await read({ fromVersion: 3, toVersion: 3 })).toEqual([3]);
  expect(await read({ fromVersion: 0, limit: 2 })).toEqual([1, 2]);
  expect(await read({ fromVersion: 4, toVersion: 99 })).toEqual([4, 5]);
});

it("finds nothing between bounds that are inverted or beyond the stream", async () => {
  const mill = await filled();
  expect(await mill.readStream(order, { fromVersion: 4, toVersion: 2 })).toEqual([]);
  expect(await mill.readStream(order, { fromVersion: 6 })).toEqual([]);
  expect(await mill.readStream(order, { toVersion: -1 })).toEqual([]);
  expect(await mill.readStream(order, { limit: 0 })).toEqual([]);
  expect(await mill.readStream({ type: "Order", id: "2" })).toEqual([]);
  expect(await mill.readStream({ type: "order", id: "1" })).toEqual([]);
});

it("reads 1000 events at most unless told", async () => {
  const mill = await (await testDatabase()).connect();
  const events = Array.from({ length: 1001 }, () => ({ type: "Step" }));
  await mill.append(order, events);
  expect(await mill.readAll()).toHaveLength(1000);
  expect(await mill.readAll({ limit: 1001 })).toHaveLength(1001);
  expect(await mill.readStream(order)).toHaveLength(1001);
});

it.each([
  [{ fromVersion: 1.5 }, "TM_INVALID_INPUT"],
  [{ toVersion: Number.NaN }, "TM_INVALID_INPUT"],
  [{ limit: -1 }, "TM_CONFIG"],
  [{ from: 1 }, "TM_CONFIG"],
])("refuses bounds that mean nothing: %o", async (options, code) => {
  const mill = await (await testDatabase()).connect();
  await expect(mill.readStream(order, options as ReadStreamOptions)).rejects.toMatchObject({
    code,
  });
});

it("refuses a version that PostgreSQL cannot hold", async () => {
  const mill = await (await testDatabase()).connect();
  await expect(mill.readStream(order, { toVersion: 2n ** 63n })).rejects.toMatchObject({
    code: "TM_INVALID_INPUT",
  });
});
