import { describe, expect, it } from "vitest";
import { silentLogger } from "../base/log.ts";
import type { Connection, Database } from "../db/database.ts";
import { Notifier } from "./notifier.ts";

/** Work that ends when the test says so. */
interface Pending {
  readonly on: string;
  readonly promise: Promise<unknown[]>;
  readonly end: (error?: Error) => void;
}

function pending(on: string): Pending {
  let end: (error?: Error) => void = () => {};
  const promise = new Promise<unknown[]>((resolve, reject) => {
    end = (error) => (error === undefined ? resolve([]) : reject(error));
  });
  return { on, promise, end };
}

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

function setup() {
  const told: Pending[] = [];
  const warnings: string[] = [];
  const queryable = (on: string) => ({
    query: () => {
      const one = pending(on);
      told.push(one);
      return one.promise;
    },
  });
  const logger = { ...silentLogger, warn: (_: object, text: string) => void warnings.push(text) };
  const notifier = new Notifier(queryable("pool") as unknown as Database, "channel", logger);
  const connection = queryable("append's own") as unknown as Connection;
  const begin = () => {
    const append = pending("append");
    const announced = notifier.announce(connection, () => append.promise);
    announced.catch(() => {});
    return { append, announced };
  };
  return { told, warnings, notifier, begin };
}

describe("Notifier", () => {
  it("sends the notification right behind a lone append, on its connection", async () => {
    const { told, begin } = setup();
    const { append, announced } = begin();
    expect(told.map((one) => one.on)).toEqual(["append's own"]);
    append.end();
    told[0]?.end();
    expect(await announced).toEqual([]);
  });

  it("lets appends that end while one is on its way share the next", async () => {
    const { told, notifier, begin } = setup();
    const first = begin();
    const others = [begin(), begin(), begin()];
    first.append.end();
    for (const { append, announced } of others) {
      append.end();
      await announced; // None of them waits for the notification.
    }
    expect(told).toHaveLength(1);
    told[0]?.end();
    await turn();
    expect(told.map((one) => one.on)).toEqual(["append's own", "pool"]);
    told[1]?.end();
    await notifier.settled();
    expect(told).toHaveLength(2);
  });

  it("does not tell an append before it has ended", async () => {
    const { told, begin } = setup();
    const first = begin();
    const second = begin();
    first.append.end();
    told[0]?.end();
    await first.announced;
    expect(told).toHaveLength(1);
    second.append.end();
    await second.announced;
    expect(told).toHaveLength(2);
  });

  it("forgets no append that ends in the moment the last one has been told", async () => {
    for (let delay = 0; delay < 12; delay += 1) {
      const { told, begin } = setup();
      const first = begin();
      const second = begin();
      first.append.end();
      told[0]?.end();
      for (let step = 0; step < delay; step += 1) await Promise.resolve();
      second.append.end();
      await turn();
      expect(told, `after ${delay} microtasks`).toHaveLength(2);
    }
  });

  it("says why an append failed, and goes on", async () => {
    const { told, notifier, begin } = setup();
    const { append, announced } = begin();
    append.end(new Error("duplicate"));
    await expect(announced).rejects.toThrow("duplicate");
    told[0]?.end();
    await notifier.settled();
    begin();
    expect(told).toHaveLength(2);
  });

  it("does not fail an append that could not be told", async () => {
    const { told, warnings, begin } = setup();
    const { append, announced } = begin();
    append.end();
    told[0]?.end(new Error("connection lost"));
    expect(await announced).toEqual([]);
    expect(warnings).toEqual(["could not notify of appended events"]);
  });

  it("is settled when everything that ended before has been told", async () => {
    const { told, notifier, begin } = setup();
    await notifier.settled();
    const first = begin();
    const second = begin();
    first.append.end();
    second.append.end();
    let isSettled = false;
    await second.announced;
    const settled = notifier.settled().then(() => {
      isSettled = true;
    });
    told[0]?.end();
    await turn();
    expect(isSettled).toBe(false);
    told[1]?.end();
    await settled;
  });
});
