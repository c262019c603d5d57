import { describe, expect, it } from "vitest";
import { queue } from "../../../src/index.ts";
import { MISSED_COUNTED_MAX } from "../../../src/schedules/cron.ts";
import { fireSchedule } from "../../../src/schedules/firing.ts";
import { eventually } from "../../support/eventually.ts";
import {
  newScene,
  readTaskIds,
  readTicks,
  type Scene,
  setBack,
  setNextAt,
  startScheduler,
} from "./scene.ts";

const reports = queue("reports");
const YEAR = new Date().getUTCFullYear();
const newYear = (year: number): string => `${year}-01-01T00:00:00.000Z`;
const years = (from: number, to: number): string[] =>
  Array.from({ length: to - from + 1 }, (_, index) => newYear(from + index));

/** A yearly schedule that nobody was there to fire since nine years before this one. */
async function newAbsence(
  policy: { catchUp: "skip" | "once" | "all"; catchUpMax?: number },
  since = YEAR - 9,
): Promise<Scene> {
  const scene = await newScene();
  await scene.admin.put("yearly", { cron: "@yearly", queue: reports, ...policy });
  await setNextAt(scene, "yearly", newYear(since));
  return scene;
}

async function firedYears(scene: Scene): Promise<string[]> {
  return (await readTicks(scene, "yearly")).map(({ tick }) => tick);
}

/** Runs a scheduler until nothing is due. */
async function runUntilCaughtUp(scene: Scene): Promise<void> {
  const { stop } = startScheduler(scene);
  await eventually(async () => {
    expect((await scene.admin.get("yearly")).nextAt?.toISOString()).toBe(newYear(YEAR + 1));
  });
  await stop();
}

describe("after an absence", () => {
  it('"skip" fires nothing that is old and counts what it left out', async () => {
    const scene = await newAbsence({ catchUp: "skip" });
    await runUntilCaughtUp(scene);
    expect(await firedYears(scene)).toEqual([]);
    expect(await readTaskIds(scene)).toEqual([]);
    expect(await scene.admin.get("yearly")).toMatchObject({ missed: 10, lastAt: undefined });
  });

  it('"skip" fires a tick that is just due', async () => {
    const scene = await newScene();
    await scene.admin.put("often", { cron: "* * * * * *", queue: reports, catchUp: "skip" });
    const nextAt = await setBack(scene, "often", 3_600);
    const fired = await fireSchedule(scene.tasks, { tenant: "default", name: "often", nextAt });
    expect(fired?.ticks).toHaveLength(1);
    expect(fired?.missed).toBe(MISSED_COUNTED_MAX);
    expect(fired?.ticks[0]?.getTime()).toBeGreaterThanOrEqual(nextAt.getTime() + 3_600_000);
  });

  it('"once" fires the latest tick only', async () => {
    const scene = await newAbsence({ catchUp: "once" });
    await runUntilCaughtUp(scene);
    expect(await firedYears(scene)).toEqual([newYear(YEAR)]);
    expect(await readTaskIds(scene)).toHaveLength(1);
    const { missed, lastAt } = await scene.admin.get("yearly");
    expect([missed, lastAt?.toISOString()]).toEqual([9, newYear(YEAR)]);
  });

  it('"all" fires every tick, oldest first, so many in one transaction', async () => {
    const scene = await newAbsence({ catchUp: "all", catchUpMax: 4 });
    const due = { tenant: "default", name: "yearly", nextAt: new Date(newYear(YEAR - 9)) };
    const first = await fireSchedule(scene.tasks, due);
    expect(first?.ticks.map((tick) => tick.toISOString())).toEqual(years(YEAR - 9, YEAR - 6));
    expect((await scene.admin.get("yearly")).nextAt?.toISOString()).toBe(newYear(YEAR - 5));
    await runUntilCaughtUp(scene);
    expect(await firedYears(scene)).toEqual(years(YEAR - 9, YEAR));
    const fired = await readTicks(scene, "yearly");
    expect(await readTaskIds(scene)).toEqual(fired.map(({ taskId }) => taskId));
    expect((await scene.admin.get("yearly")).missed).toBe(0);
  });

  it("large payloads are made up for in smaller portions", async () => {
    const scene = await newScene();
    const payload = "x".repeat(1_000_000);
    const often = { cron: "* * * * * *", queue: reports, payload, catchUp: "all" as const };
    await scene.admin.put("often", often);
    const nextAt = await setBack(scene, "often", 60);
    const fired = await fireSchedule(scene.tasks, { tenant: "default", name: "often", nextAt });
    expect(fired?.ticks).toHaveLength(8);
  });
});

describe("where the clock is changed", () => {
  it.each([
    // 02:30 does not exist on 31 March 2024: it fires when the clock jumps over it.
    [
      "spring",
      ["2024-03-30T01:30:00.000Z", "2024-03-31T01:00:00.000Z", "2024-04-01T00:30:00.000Z"],
    ],
    // 02:30 comes twice on 27 October 2024: it fires the first time.
    [
      "autumn",
      ["2024-10-26T00:30:00.000Z", "2024-10-27T00:30:00.000Z", "2024-10-28T01:30:00.000Z"],
    ],
  ])("a time of day fires once a day in %s", async (_, ticks) => {
    const scene = await newScene();
    await scene.admin.put("nightly", {
      cron: "30 2 * * *",
      timeZone: "Europe/Berlin",
      queue: reports,
      catchUp: "all",
      catchUpMax: ticks.length,
    });
    const [first = ""] = ticks;
    await setNextAt(scene, "nightly", first);
    await fireSchedule(scene.tasks, {
      tenant: "default",
      name: "nightly",
      nextAt: new Date(first),
    });
    expect((await readTicks(scene, "nightly")).map(({ tick }) => tick)).toEqual(ticks);
    expect(await readTaskIds(scene)).toHaveLength(ticks.length);
  });
});
