import { expect, it } from "vitest";
import { beginTerm } from "../../../src/cluster/sql/leader.ts";
import { queue } from "../../../src/index.ts";
import { fireSchedule } from "../../../src/schedules/firing.ts";
import { eventually } from "../../support/eventually.ts";
import {
  newScene,
  openTasks,
  readTaskIds,
  readTicks,
  type Scene,
  setBack,
  startScheduler,
} from "./scene.ts";

const reports = queue<{ name: string }>("reports");
const EVERY_SECOND = "* * * * * *";

/** Every tick since then fired once, and every task is that of one tick. */
async function expectOncePerTick(scene: Scene, name: string, first: Date): Promise<string[]> {
  const fired = await readTicks(scene, name);
  const { lastAt } = await scene.admin.get(name);
  const count = ((lastAt?.getTime() ?? 0) - first.getTime()) / 1000 + 1;
  const expected = Array.from({ length: count }, (_, index) =>
    new Date(first.getTime() + index * 1000).toISOString(),
  );
  expect(fired.map(({ tick }) => tick)).toEqual(expected);
  expect(await readTaskIds(scene)).toEqual(fired.map(({ taskId }) => taskId));
  return expected;
}

it("three schedulers that all take themselves for the leader fire every tick once", async () => {
  const scene = await newScene();
  const warnings: object[] = [];
  const logger = {
    debug: () => {},
    info: () => {},
    warn: (fields: object) => void warnings.push(fields),
    error: (fields: object) => void warnings.push(fields),
  };
  await scene.admin.put("report", {
    cron: EVERY_SECOND,
    queue: reports,
    payload: { name: "sales" },
    catchUp: "all",
    catchUpMax: 1, // Each tick is a race of its own.
  });
  const first = await setBack(scene, "report", 40);
  const running = [1, 2, 3].map(() => startScheduler(scene, { logger }));
  await eventually(async () => {
    expect((await scene.admin.get("report")).nextAt?.getTime()).toBeGreaterThan(
      first.getTime() + 41_000,
    );
  });
  for (const { stop } of running) await stop();
  const expected = await expectOncePerTick(scene, "report", first);
  expect(expected.length).toBeGreaterThan(40);
  expect(warnings).toEqual([]);
});

it("of many firings of the same tick at the same time exactly one happens", async () => {
  const scene = await newScene();
  await scene.admin.put("report", { cron: EVERY_SECOND, queue: reports, catchUp: "all" });
  const contexts = [1, 2, 3].map(() => openTasks(scene.database, 8));
  for (let round = 0; round < 20; round += 1) {
    await scene.database.pool.query("DELETE FROM tidemill.schedule_firings");
    await scene.database.pool.query("DELETE FROM tidemill.tasks");
    const nextAt = await setBack(scene, "report", 0);
    const attempts = Array.from({ length: 24 }, (_, index) => {
      const context = contexts[index % contexts.length];
      if (context === undefined) throw new Error("no context");
      return fireSchedule(context, { tenant: "default", name: "report", nextAt });
    });
    const fired = (await Promise.all(attempts)).filter((one) => one !== undefined);
    expect(fired).toHaveLength(1);
    await expectOncePerTick(scene, "report", nextAt);
  }
});

it("a tick that somebody sets next_at back to does not fire again", async () => {
  const scene = await newScene();
  await scene.admin.put("report", { cron: EVERY_SECOND, queue: reports, catchUp: "all" });
  const first = await setBack(scene, "report", 10);
  const due = { tenant: "default", name: "report", nextAt: first };
  const before = await fireSchedule(scene.tasks, due);
  await scene.database.pool.query("UPDATE tidemill.schedules SET next_at = $1", [first]);
  const again = await fireSchedule(scene.tasks, due);
  expect(before?.ticks.length).toBeGreaterThanOrEqual(10);
  const old = new Set(before?.ticks.map((tick) => tick.getTime()));
  expect(again?.ticks.filter((tick) => old.has(tick.getTime()))).toEqual([]);
  await expectOncePerTick(scene, "report", first);
});

it("a second record of a fired tick is refused by the table", async () => {
  const scene = await newScene();
  await scene.admin.put("report", { cron: "@daily", queue: reports });
  const nextAt = await setBack(scene, "report", 0);
  await fireSchedule(scene.tasks, { tenant: "default", name: "report", nextAt });
  await expect(
    scene.database.pool.query(
      `INSERT INTO tidemill.schedule_firings (tenant, name, kind, tick, task_id)
       SELECT tenant, name, kind, tick, task_id + 1 FROM tidemill.schedule_firings`,
    ),
  ).rejects.toThrow("schedule_firings_tick_idx");
});

// Each makes a firing wait at another place of its transaction until its session is cut.
const CUTS = [
  ["before its task is enqueued", "LOCK TABLE tidemill.tasks IN SHARE MODE", ""],
  ["between enqueue and record", "LOCK TABLE tidemill.schedule_firings IN SHARE MODE", ""],
  [
    "in its commit",
    "SELECT pg_advisory_lock(4711)",
    `CREATE FUNCTION public.hold() RETURNS trigger LANGUAGE plpgsql AS
       $$ BEGIN PERFORM pg_advisory_xact_lock(4711); RETURN NULL; END $$;
     CREATE CONSTRAINT TRIGGER hold AFTER INSERT ON tidemill.schedule_firings
       DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.hold()`,
  ],
] as const;

it.each(CUTS)("a firing that is cut %s fires once after all", async (_, hold, prepare) => {
  const scene = await newScene();
  const { pool } = scene.database;
  await scene.admin.put("report", { cron: "@yearly", queue: reports });
  if (prepare !== "") await pool.query(prepare);
  const holder = await scene.database.session();
  await holder.query("BEGIN");
  await holder.query(hold);
  const nextAt = await setBack(scene, "report", 5);
  const { stop } = startScheduler(scene);
  const cut = await eventually(async () => {
    const { rows } = await pool.query<{ pid: number }>(
      `SELECT pid FROM pg_stat_activity
        WHERE datname = current_database() AND application_name = 'schedules'
          AND wait_event_type = 'Lock'`,
    );
    expect(rows).toHaveLength(1);
    return rows[0]?.pid;
  });
  await pool.query("SELECT pg_terminate_backend($1)", [cut]);
  await eventually(async () => {
    const { lastError, nextAt: waitsFor } = await scene.admin.get("report");
    expect(lastError).toBeDefined();
    expect(waitsFor).toEqual(nextAt);
  });
  expect(await readTicks(scene, "report")).toEqual([]);
  await holder.query("ROLLBACK");
  await holder.query("SELECT pg_advisory_unlock_all()");
  const [firing] = await eventually(async () => {
    const fired = await readTicks(scene, "report");
    expect(fired).toHaveLength(1);
    return fired;
  });
  await stop();
  expect(firing?.tick).toBe(nextAt.toISOString());
  expect(await readTaskIds(scene)).toEqual([firing?.taskId]);
  expect(await scene.admin.get("report")).toMatchObject({
    lastAt: nextAt,
    lastError: undefined,
    retryAt: undefined,
  });
});

it("a leader that was replaced fires nothing", async () => {
  const scene = await newScene();
  await scene.admin.put("report", { cron: "@yearly", queue: reports });
  const nextAt = await setBack(scene, "report", 5);
  let asked = 0;
  const term = (): bigint => {
    asked += 1;
    return scene.term;
  };
  await beginTerm(scene.tasks.db, "00000000-0000-0000-0000-000000000001");
  const { stop } = startScheduler(scene, { term });
  await eventually(() => expect(asked).toBeGreaterThan(4)); // Two whole turns.
  await stop();
  expect(await readTaskIds(scene)).toEqual([]);
  expect((await scene.admin.get("report")).nextAt).toEqual(nextAt);
});

it("a worker that does not lead asks the database nothing", async () => {
  const scene = await newScene();
  await scene.admin.put("report", { cron: "@yearly", queue: reports });
  await setBack(scene, "report", 5);
  let asked = 0;
  const term = (): undefined => {
    asked += 1;
    return undefined;
  };
  const { scheduler, stop } = startScheduler(scene, { term });
  await eventually(() => {
    scheduler.bell.ring();
    expect(asked).toBeGreaterThan(3);
  });
  const { rows } = await scene.database.pool.query(
    `SELECT pid FROM pg_stat_activity
      WHERE datname = current_database() AND query LIKE '%schedules%GREATEST%'
        AND pid <> pg_backend_pid()`,
  );
  await stop();
  expect(rows).toEqual([]);
});
