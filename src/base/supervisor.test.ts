import { setImmediate as nextTick } from "node:timers/promises";
import { describe, expect, it } from "vitest";
import { type Service, Supervisor } from "./supervisor.ts";

const aborted = (signal: AbortSignal): Promise<void> =>
  new Promise((resolve) => {
    if (signal.aborted) resolve();
    signal.addEventListener("abort", () => resolve(), { once: true });
  });

function recorded(name: string, log: string[], ticksToStop = 0): Service {
  return {
    name,
    async run(signal) {
      log.push(`${name} started`);
      await aborted(signal);
      log.push(`${name} stopping`);
      for (let tick = 0; tick < ticksToStop; tick += 1) await nextTick();
      log.push(`${name} stopped`);
    },
  };
}

const failing = (error: Error, ticks = 0): Service => ({
  name: "failing",
  async run() {
    for (let tick = 0; tick < ticks; tick += 1) await nextTick();
    throw error;
  },
});

describe("Supervisor", () => {
  it("starts in order and stops in reverse, each fully before the next", async () => {
    const log: string[] = [];
    const supervisor = new Supervisor([recorded("a", log, 3), recorded("b", log, 3)]);
    await supervisor.stop();
    expect(log).toEqual([
      "a started",
      "b started",
      "b stopping",
      "b stopped",
      "a stopping",
      "a stopped",
    ]);
  });

  it("stops the others when one ends", async () => {
    const log: string[] = [];
    const brief: Service = { name: "brief", run: async () => {} };
    const supervisor = new Supervisor([recorded("a", log), brief]);
    await supervisor.finished;
    expect(log.at(-1)).toBe("a stopped");
  });

  it("reports why it ended, from finished and from stop", async () => {
    const error = new Error("broken");
    const supervisor = new Supervisor([recorded("a", []), failing(error)]);
    await expect(supervisor.finished).rejects.toBe(error);
    await expect(supervisor.stop()).rejects.toBe(error);
  });

  it("reports every failure when several services fail", async () => {
    const [one, other] = [new Error("one"), new Error("other")];
    const supervisor = new Supervisor([failing(one, 1), failing(other, 1)]);
    await expect(supervisor.finished).rejects.toMatchObject({ errors: [one, other] });
  });

  it("reports a failure of the stop itself", async () => {
    const error = new Error("could not give back");
    const clumsy: Service = {
      name: "clumsy",
      async run(signal) {
        await aborted(signal);
        throw error;
      },
    };
    const supervisor = new Supervisor([clumsy]);
    await expect(supervisor.stop()).rejects.toBe(error);
  });

  it("is disposable", async () => {
    const log: string[] = [];
    {
      await using supervisor = new Supervisor([recorded("a", log)]);
      void supervisor;
    }
    expect(log.at(-1)).toBe("a stopped");
  });

  it("survives many starts and stops at any moment, from many callers at once", async () => {
    for (let round = 0; round < 200; round += 1) {
      const log: string[] = [];
      const services = ["a", "b", "c"].map((name, at) => recorded(name, log, (round + at) % 3));
      if (round % 5 === 0) services.push({ name: "brief", run: () => nextTick() });
      const supervisor = new Supervisor(services);
      for (let tick = 0; tick < round % 4; tick += 1) await nextTick();
      const stops = Array.from({ length: 10 }, () => supervisor.stop());
      expect(new Set(stops).size).toBe(1);
      await Promise.all([...stops, supervisor.finished]);
      expect(log.slice(3)).toEqual(
        ["c", "b", "a"].flatMap((name) => [`${name} stopping`, `${name} stopped`]),
      );
    }
  });
});
