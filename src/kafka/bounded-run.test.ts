import { describe, expect, it } from "vitest";
import { systemClock } from "../base/clock.ts";
import type { Service } from "../base/supervisor.ts";
import { BoundedRun } from "./bounded-run.ts";

const obedient = (name: string, ended: string[]): Service => ({
  name,
  run: async (signal) => {
    await new Promise((resolve) => signal.addEventListener("abort", resolve));
    ended.push(name);
  },
});

describe("BoundedRun", () => {
  it("stops services in reverse, and says that all have ended", async () => {
    const ended: string[] = [];
    const run = new BoundedRun([obedient("first", ended), obedient("second", ended)]);
    expect(await run.stop(10_000, systemClock)).toBe(true);
    expect(ended).toEqual(["second", "first"]);
    await run.finished;
  });

  it("leaves behind what does not end in time, and finishes without it", async () => {
    const hanging = { name: "hanging", run: () => new Promise<void>(() => {}) };
    const run = new BoundedRun([hanging]);
    expect(await run.stop(1, systemClock)).toBe(false);
    await run.finished;
  });

  it("tells why a service could not go on", async () => {
    const failing = { name: "failing", run: () => Promise.reject(new Error("no more")) };
    const run = new BoundedRun([failing]);
    await expect(run.finished).rejects.toThrow("no more");
    expect(await run.stop(10_000, systemClock)).toBe(true);
  });
});
