import { expect, it } from "vitest";
import { bootstrapSql, loadMigrations, resolvePartitioning } from "../../../src/db/migrations.ts";
import { resolveNames } from "../../../src/db/names.ts";
import { Tidemill } from "../../../src/index.ts";
import { fireSchedule } from "../../../src/schedules/firing.ts";
import { testDatabase } from "../../support/database.ts";
import { newScene, readTaskIds, setBack } from "./scene.ts";

const DAILY = { cron: "@daily", queue: "reports" } as const;

it("schedules of one name of two tenants know nothing of each other", async () => {
  const scene = await newScene();
  const { admin } = scene;
  const mill = await scene.database.connect();
  await mill.queues.ensure("reports");
  const [acme, globex] = [{ tenant: "acme" }, { tenant: "globex" }];
  await admin.put("nightly", { ...DAILY, ...acme, payload: 1 });
  await admin.put("nightly", { ...DAILY, ...globex, payload: 2, cron: "@hourly" });
  expect(await admin.list()).toHaveLength(2);
  expect(await admin.list(acme)).toMatchObject([{ tenant: "acme", cron: "@daily" }]);
  await expect(admin.get("nightly")).rejects.toThrow(/there is no schedule/);
  await admin.pause("nightly", acme);
  expect((await admin.get("nightly", globex)).pausedAt).toBeUndefined();
  const hers = await admin.runNow("nightly", globex);
  expect(await mill.tasks.get(hers.id)).toMatchObject({ tenant: "globex", payload: 2 });
  expect(await admin.firings("nightly", acme)).toEqual([]);
  expect(await admin.firings("nightly", globex)).toMatchObject([{ tenant: "globex" }]);
  expect(await admin.firingOf(hers.id, acme)).toBeUndefined();
  expect(await admin.firingOf(hers.id)).toMatchObject({ tenant: "globex" });
  await admin.resume("nightly", acme);
  const nextAt = await setBack(scene, "nightly", 0); // Of both.
  const fired = await fireSchedule(scene.tasks, { ...acme, name: "nightly", nextAt });
  expect(await mill.tasks.get(fired?.taskIds[0] ?? "")).toMatchObject({ tenant: "acme" });
  expect((await admin.get("nightly", globex)).nextAt).toEqual(nextAt);
  await admin.remove("nightly", acme);
  expect(await admin.list()).toMatchObject([{ tenant: "globex" }]);
  expect(await readTaskIds(scene)).toHaveLength(2);
});

it("schedules of other queues are not found, and not taken over", async () => {
  const scene = await newScene();
  const mill = await scene.database.connect();
  for (const name of ["reports", "mails"]) await mill.queues.ensure(name);
  const { admin } = scene;
  await admin.put("nightly", DAILY);
  const scope = { queues: ["mails"] };
  expect(await admin.list(scope)).toEqual([]);
  for (const act of [
    () => admin.get("nightly", scope),
    () => admin.pause("nightly", scope),
    () => admin.resume("nightly", scope),
    () => admin.remove("nightly", scope),
    () => admin.runNow("nightly", scope),
    () => admin.firings("nightly", scope),
  ]) {
    await expect(act()).rejects.toThrow(/there is no schedule/);
  }
  await expect(admin.put("nightly", { ...DAILY, queue: "mails" }, scope)).rejects.toThrow(
    /a schedule of another queue has the name/,
  );
  expect(await admin.get("nightly", { queues: ["reports"] })).toMatchObject({ queue: "reports" });
});

it("schedules that were put before they had a tenant keep theirs, and their firings", async () => {
  const database = await testDatabase({ migrated: false });
  const names = resolveNames();
  const before = loadMigrations(names, resolvePartitioning()).filter((one) => one.version < 10);
  await database.pool.query(bootstrapSql(names));
  for (const { version, name, checksum, sql } of before) {
    await database.pool.query(sql);
    await database.pool.query(
      "INSERT INTO tidemill.migrations (version, name, checksum) VALUES ($1, $2, $3)",
      [version, name, checksum],
    );
  }
  await database.pool.query(
    `INSERT INTO tidemill.key_spaces (name) VALUES ('reports');
     INSERT INTO tidemill.queues (name, key_space_id, settings) VALUES ('reports', 0, '{}');
     INSERT INTO tidemill.schedules
            (name, cron, time_zone, queue, payload, options, catch_up, catch_up_max)
     VALUES ('mine', '@daily', 'UTC', 'reports', '1', '{"kind": "a"}', 'once', 1),
            ('hers', '@daily', 'UTC', 'reports', '1', '{"kind": "b", "tenant": "acme"}', 'once', 1);
     INSERT INTO tidemill.schedule_firings (name, kind, tick, task_id)
     VALUES ('mine', 'tick', '2020-01-01', 1), ('hers', 'tick', '2020-01-01', 2)`,
  );
  await Tidemill.migrate(database.url);
  const mill = await database.connect();
  expect(await mill.schedules.list()).toMatchObject([
    { name: "hers", tenant: "acme", options: { kind: "b" } },
    { name: "mine", tenant: "default", options: { kind: "a" } },
  ]);
  expect(await mill.schedules.firings("hers", { tenant: "acme" })).toMatchObject([
    { tenant: "acme", taskId: "2" },
  ]);
  expect(await mill.schedules.firings("mine")).toMatchObject([{ taskId: "1" }]);
});
