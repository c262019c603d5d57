import { expect, it } from "vitest";
import { queue } from "../../../src/index.ts";
import { FIRINGS_KEPT, fireSchedule } from "../../../src/schedules/firing.ts";
import { eventually } from "../../support/eventually.ts";
import { ManualClock } from "../../support/manual-clock.ts";
import { newScene, readTaskIds, readTicks, setBack, setNextAt, startScheduler } from "./scene.ts";

const reports = queue("reports");

it("a schedule that cannot fire keeps its tick, says why and holds up nobody", async () => {
  const scene = await newScene();
  const { pool } = scene.database;
  await scene.admin.put("broken", { cron: "@yearly", queue: reports });
  await scene.admin.put("sound", { cron: "@yearly", queue: reports });
  await pool.query("UPDATE tidemill.schedules SET cron = 'nonsense' WHERE name = 'broken'");
  const nextAt = await setBack(scene, "broken", 60);
  await setBack(scene, "sound", 10);
  startScheduler(scene);
  await eventually(async () => {
    expect(await readTicks(scene, "sound")).toHaveLength(1);
    const { lastError, retryAt } = await scene.admin.get("broken");
    expect(lastError).toContain('"nonsense" is not a usable cron expression');
    expect(retryAt).toBeInstanceOf(Date);
  });
  expect((await scene.admin.get("broken")).nextAt).toEqual(nextAt);
  await pool.query("UPDATE tidemill.schedules SET cron = '@yearly' WHERE name = 'broken'");
  await eventually(async () => expect(await readTicks(scene, "broken")).toHaveLength(1));
  expect(await scene.admin.get("broken")).toMatchObject({
    lastError: undefined,
    retryAt: undefined,
  });
});

it("one without a next tick is at its end, and fires no more", async () => {
  const scene = await newScene();
  await scene.admin.put("ended", { cron: "@yearly", queue: reports });
  await scene.admin.put("alive", { cron: "@yearly", queue: reports });
  await scene.database.pool.query(
    "UPDATE tidemill.schedules SET next_at = NULL WHERE name = 'ended'",
  );
  await setBack(scene, "alive", 1);
  const { stop } = startScheduler(scene);
  await eventually(async () => expect(await readTicks(scene, "alive")).toHaveLength(1));
  await stop();
  expect(await readTicks(scene, "ended")).toEqual([]);
  expect((await scene.admin.get("ended")).nextAt).toBeUndefined();
});

it("rests for long without a schedule, at most a second with one, and is rung awake", async () => {
  const scene = await newScene();
  const clock = new ManualClock();
  const { scheduler, stop } = startScheduler(scene, { clock });
  await eventually(() => expect(clock.nextMs).toBe(30_000));
  await scene.admin.put("yearly", { cron: "@yearly", queue: reports });
  scheduler.bell.ring();
  await eventually(() => expect(clock.nextMs).toBe(1_000));
  await setNextAt(scene, "yearly", "2020-01-01T00:00:00Z");
  clock.advance(1_000);
  await eventually(async () => expect(await readTicks(scene, "yearly")).toHaveLength(1));
  await eventually(() => expect(clock.nextMs).toBe(1_000));
  await stop();
  expect(clock.pending).toBe(0);
});

it("wakes for a tick that is less than a second away", async () => {
  const scene = await newScene();
  const clock = new ManualClock();
  await scene.admin.put("soon", { cron: "@yearly", queue: reports });
  const { rows } = await scene.database.pool.query<{ next_at: Date }>(
    "UPDATE tidemill.schedules SET next_at = NOW() + INTERVAL '900 ms' RETURNING next_at",
  );
  const { stop } = startScheduler(scene, { clock });
  await eventually(() => expect(clock.nextMs).toBeGreaterThan(0));
  expect(clock.nextMs).toBeLessThanOrEqual(900);
  await eventually(async () => {
    clock.advance(100); // However fast this clock runs, only the database's decides.
    expect(await readTicks(scene, "soon")).toHaveLength(1);
  });
  await stop();
  const { rows: fired } = await scene.database.pool.query<{ fired_at: Date }>(
    "SELECT fired_at FROM tidemill.schedule_firings",
  );
  expect(fired[0]?.fired_at.getTime()).toBeGreaterThanOrEqual(rows[0]?.next_at.getTime() ?? NaN);
});

it("a hundred schedules that are due at once fire once each", async () => {
  const scene = await newScene();
  const names = Array.from({ length: 120 }, (_, index) => `s${index}`);
  await scene.admin.put("s0", { cron: "@yearly", queue: reports });
  await scene.database.pool.query(
    `INSERT INTO tidemill.schedules
            (tenant, name, cron, time_zone, queue, payload, catch_up, catch_up_max, next_at)
     SELECT 'default', 's' || n, '@yearly', 'UTC', 'reports', 'null', 'once', 1,
            NOW() - n * INTERVAL '1 s'
       FROM generate_series(1, 119) AS n`,
  );
  await setBack(scene, "s0", 1);
  for (let count = 0; count < 2; count += 1) startScheduler(scene);
  await eventually(async () => expect(await readTaskIds(scene)).toHaveLength(names.length));
  const all = await Promise.all(names.map((name) => readTicks(scene, name)));
  expect(all.map((fired) => fired.length)).toEqual(names.map(() => 1));
});

it("a firing removes the oldest ones of its schedule", async () => {
  const scene = await newScene();
  await scene.admin.put("often", { cron: "* * * * * *", queue: reports });
  await scene.admin.put("other", { cron: "@daily", queue: reports });
  await scene.database.pool.query(
    `INSERT INTO tidemill.schedule_firings (tenant, name, kind, tick, task_id)
     SELECT 'default', name, 'tick', '2020-01-01'::timestamptz + n * INTERVAL '1 s', n
       FROM generate_series(1, $1) AS n, (VALUES ('often'), ('other')) AS given(name)
      ORDER BY n`,
    [FIRINGS_KEPT + 200],
  );
  const nextAt = await setBack(scene, "often", 0);
  await fireSchedule(scene.tasks, { tenant: "default", name: "often", nextAt });
  expect(await readTicks(scene, "often")).toHaveLength(FIRINGS_KEPT + 1);
  expect(await readTicks(scene, "other")).toHaveLength(FIRINGS_KEPT + 200);
  const [last] = await scene.admin.firings("often", { limit: 1 });
  expect(last?.tick.getTime()).toBeGreaterThanOrEqual(nextAt.getTime());
});

it("next_at that was set by hand to a fraction of a second fires", async () => {
  const scene = await newScene();
  await scene.admin.put("yearly", { cron: "@yearly", queue: reports });
  await scene.database.pool.query(
    "UPDATE tidemill.schedules SET next_at = '2024-05-05 05:05:05.123456Z'",
  );
  const { stop } = startScheduler(scene);
  await eventually(async () => expect(await readTaskIds(scene)).toHaveLength(1));
  await stop();
});
