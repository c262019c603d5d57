import { describe, expect, it } from "vitest";
import { queue, TidemillError } from "../../../src/index.ts";
import { ScheduleAdmin } from "../../../src/schedules/admin.ts";
import { fireSchedule } from "../../../src/schedules/firing.ts";
import { QueueDirectory } from "../../../src/tasks/directory.ts";
import type { StandardSchema } from "../../../src/tasks/schema.ts";
import { readServerTime } from "../../support/cluster.ts";
import { eventually } from "../../support/eventually.ts";
import {
  CHANGES,
  newScene,
  openTasks,
  readTaskIds,
  readTicks,
  type Scene,
  setBack,
  startScheduler,
} from "./scene.ts";

const reports = queue<{ name: string }>("reports");
const SALES = { cron: "@daily", queue: reports, payload: { name: "sales" } };

async function readVersion(scene: Scene): Promise<number> {
  const { rows } = await scene.database.pool.query<{ version: number }>(
    "SELECT version::int FROM tidemill.cluster_changes",
  );
  return rows[0]?.version ?? NaN;
}

describe("put", () => {
  it("creates a schedule that waits for its next tick by the database's clock", async () => {
    const scene = await newScene();
    const now = await readServerTime(scene.database.pool);
    const made = await scene.admin.put("sales", {
      ...SALES,
      priority: "high",
      kind: "report",
      partitionKey: "sales",
      maxAttempts: 2,
    });
    expect(made).toMatchObject({
      name: "sales",
      cron: "@daily",
      timeZone: "UTC",
      queue: "reports",
      payload: { name: "sales" },
      options: { priority: "high", kind: "report", partitionKey: "sales", maxAttempts: 2 },
      catchUp: "once",
      catchUpMax: 100,
      lastAt: undefined,
      missed: 0,
    });
    const midnight = Date.UTC(now.getUTCFullYear(), now.getUTCMonth(), now.getUTCDate() + 1);
    expect(made.nextAt).toEqual(new Date(midnight));
    expect(await scene.admin.list()).toEqual([made]);
    expect(await scene.admin.get("sales")).toEqual(made);
  });

  it("of the same definition changes nothing, from many processes at once", async () => {
    const scene = await newScene();
    const admins = [1, 2, 3].map(
      () => new ScheduleAdmin(openTasks(scene.database, 8), "other_changes"),
    );
    await scene.tasks.directory.find(reports);
    const before = await readVersion(scene);
    const options = { ...SALES, backoff: { kind: "fixed", baseSeconds: 3 }, tenant: "a" } as const;
    const puts = admins.flatMap((admin) =>
      Array.from({ length: 8 }, () => admin.put("sales", options)),
    );
    const made = await Promise.all(puts);
    for (const one of made) expect(one).toEqual(made[0]);
    await setBack(scene, "sales", 60);
    const past = await scene.admin.get("sales", { tenant: "a" });
    expect(await scene.admin.put("sales", { ...options, catchUp: "once" })).toEqual(past);
    expect(await readVersion(scene)).toBe(before + 1);
  });

  it("keeps what was and what is next when only the task changes", async () => {
    const scene = await newScene();
    await scene.admin.put("sales", SALES);
    const nextAt = await setBack(scene, "sales", 30);
    await fireSchedule(scene.tasks, { tenant: "default", name: "sales", nextAt });
    const before = await scene.admin.get("sales");
    const after = await scene.admin.put("sales", { ...SALES, payload: { name: "all" } });
    expect(after.payload).toEqual({ name: "all" });
    expect([after.nextAt, after.lastAt]).toEqual([before.nextAt, nextAt]);
    expect(after.lastTaskId).toBe(before.lastTaskId);
    expect(after.createdAt).toEqual(before.createdAt);
  });

  it("waits for the next tick from now when the times change", async () => {
    const scene = await newScene();
    await scene.admin.put("sales", { ...SALES, timeZone: "Asia/Tokyo" });
    await scene.admin.pause("sales");
    await setBack(scene, "sales", 3_600);
    const now = await readServerTime(scene.database.pool);
    const after = await scene.admin.put("sales", { ...SALES, timeZone: "America/New_York" });
    expect(after.nextAt?.getTime()).toBeGreaterThan(now.getTime());
    expect(after.pausedAt).toBeInstanceOf(Date);
    const hourly = await scene.admin.put("sales", { ...SALES, cron: "0 * * * *" });
    expect(hourly.nextAt?.getTime()).toBeLessThanOrEqual(now.getTime() + 3_660_000);
  });

  it("takes the name of a queue that is registered", async () => {
    const scene = await newScene();
    await scene.tasks.directory.find(reports);
    const made = await scene.admin.put("sales", { cron: "@daily", queue: "reports" });
    expect([made.queue, made.payload]).toEqual(["reports", null]);
  });

  it("announces changes", async () => {
    const scene = await newScene();
    const listener = await scene.database.session();
    const heard: string[] = [];
    listener.on("notification", ({ channel }) => void heard.push(channel));
    await listener.query(`LISTEN ${CHANGES}`);
    await scene.admin.put("sales", SALES);
    await scene.admin.pause("sales");
    await scene.admin.resume("sales");
    await scene.admin.remove("sales");
    await eventually(() => expect(heard).toEqual([CHANGES, CHANGES, CHANGES, CHANGES]));
  });
});

const TEXT: StandardSchema<string> = {
  "~standard": {
    version: 1,
    vendor: "test",
    validate: (value) =>
      typeof value === "string" ? { value } : { issues: [{ message: "not a text" }] },
  },
};
const CYCLE: { self?: object } = {};
CYCLE.self = CYCLE;

interface Refusal {
  readonly name?: string;
  readonly given: object;
  readonly code: "TM_INVALID_INPUT" | "TM_CONFIG";
  readonly says: string;
}

const invalid = (given: object, says: string): Refusal => ({
  given,
  code: "TM_INVALID_INPUT",
  says,
});
const misused = (given: object, says: string): Refusal => ({ given, code: "TM_CONFIG", says });
const misnamed = (name: string, says: string): Refusal => ({ ...misused({}, says), name });

const REFUSED = [
  invalid({ cron: "61 * * * *" }, "minutes go from 0 to 59"),
  invalid({ cron: "0 0 30 2 *" }, "it never fires"),
  invalid({ cron: undefined }, "a schedule needs cron"),
  invalid({ timeZone: "Mars/Olympus" }, "not a known time zone"),
  invalid({ queue: "nowhere" }, 'there is no queue "nowhere"'),
  invalid({ queue: undefined }, "a schedule needs a queue"),
  invalid({ priority: 12 }, "priority must be"),
  invalid({ payload: new Uint8Array(2) }, "must be JSON, not bytes"),
  invalid({ payload: CYCLE }, "cannot be written as JSON"),
  invalid({ queue: queue("texts", { schema: TEXT }), payload: 1 }, "not a text"),
  misused({ catchup: "all" }, 'did you mean "catchUp"?'),
  misused({ runAt: "2030-01-01T00:00:00Z" }, 'unknown schedule option "runAt"'),
  misused({ delaySeconds: 1 }, 'unknown schedule option "delaySeconds"'),
  misused({ idempotencyKey: "k" }, 'unknown schedule option "idempotencyKey"'),
  misused({ catchUp: "some" }, 'catchUp must be "skip"'),
  misused({ catchUpMax: 0 }, "catchUpMax must be a whole number"),
  misused({ catchUpMax: 10_001 }, "at most 10000"),
  misused({ timeoutSeconds: 0 }, "timeoutSeconds"),
  misnamed(" ", "a name that is not empty"),
  misnamed("ü".repeat(101), "at most 200 bytes"),
  misnamed("\ud800", "half a character"),
];

describe("a definition that cannot work", () => {
  it("is refused, and nothing is stored", async () => {
    const { admin } = await newScene();
    for (const { name = "sales", given, code, says } of REFUSED) {
      const error = await admin.put(name, { ...SALES, ...given }).catch((caught) => caught);
      expect(error, says).toBeInstanceOf(TidemillError);
      expect(error).toMatchObject({ code, message: expect.stringContaining(says) });
    }
    expect(await admin.list()).toEqual([]);
  });

  it("leaves the one that it would replace as it was", async () => {
    const { admin } = await newScene();
    const before = await admin.put("sales", SALES);
    await expect(admin.put("sales", { ...SALES, cron: "nonsense" })).rejects.toThrow("nonsense");
    expect(await admin.get("sales")).toEqual(before);
  });
});

it("acts on a schedule that does not exist are refused", async () => {
  const { admin } = await newScene();
  const acts: (() => Promise<unknown>)[] = [
    () => admin.get("sales"),
    () => admin.firings("sales"),
    () => admin.remove("sales"),
    () => admin.pause("sales"),
    () => admin.resume("sales"),
    () => admin.runNow("sales"),
  ];
  for (const act of acts) {
    await expect(act()).rejects.toMatchObject({
      code: "TM_NOT_FOUND",
      message: expect.stringContaining('there is no schedule "sales"'),
    });
  }
});

describe("pause", () => {
  it("keeps ticks from firing until it is resumed", async () => {
    const scene = await newScene();
    await scene.admin.put("paused", SALES);
    await scene.admin.put("running", SALES);
    await scene.admin.pause("paused");
    const { pausedAt } = await scene.admin.get("paused");
    await scene.admin.pause("paused");
    expect((await scene.admin.get("paused")).pausedAt).toEqual(pausedAt);
    const nextAt = await setBack(scene, "paused", 60); // Due first.
    await setBack(scene, "running", 10);
    const { stop } = startScheduler(scene);
    await eventually(async () => expect(await readTicks(scene, "running")).toHaveLength(1));
    await stop();
    expect(await readTicks(scene, "paused")).toEqual([]);
    expect(
      await fireSchedule(scene.tasks, { tenant: "default", name: "paused", nextAt }),
    ).toBeUndefined();
  });

  it("drops what passed meanwhile when it ends", async () => {
    const scene = await newScene();
    await scene.admin.put("sales", SALES);
    await scene.admin.pause("sales");
    await setBack(scene, "sales", 60);
    const now = await readServerTime(scene.database.pool);
    await scene.admin.resume("sales");
    const { nextAt, pausedAt } = await scene.admin.get("sales");
    expect(pausedAt).toBeUndefined();
    expect(nextAt?.getTime()).toBeGreaterThan(now.getTime());
  });

  it("leaves it to the policy when it ends with catchUp", async () => {
    const scene = await newScene();
    await scene.admin.put("sales", SALES);
    await scene.admin.pause("sales");
    const nextAt = await setBack(scene, "sales", 60);
    await scene.admin.resume("sales", { catchUp: true });
    expect((await scene.admin.get("sales")).nextAt).toEqual(nextAt);
    const fired = await fireSchedule(scene.tasks, { tenant: "default", name: "sales", nextAt });
    expect(fired?.ticks).toHaveLength(1);
  });

  it("that never was is not ended: a tick that is due stays due", async () => {
    const scene = await newScene();
    await scene.admin.put("sales", SALES);
    const nextAt = await setBack(scene, "sales", 60);
    await scene.admin.resume("sales");
    expect((await scene.admin.get("sales")).nextAt).toEqual(nextAt);
  });
});

describe("the task of a schedule", () => {
  it("is handled with the payload and the options of its schedule", async () => {
    const scene = await newScene();
    const mill = await scene.database.connect();
    const seen: object[] = [];
    const handler = reports.handle((task) => {
      const { id, payload, priority, kind, tenant, maxAttempts, partitionKey, traceParent } = task;
      seen.push({ id, payload, priority, kind, tenant, maxAttempts, partitionKey, traceParent });
    });
    const traceParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    const options = { kind: "report", tenant: "acme", maxAttempts: 2, traceParent };
    await scene.admin.put("sales", { ...SALES, ...options, priority: 7 });
    const nextAt = await setBack(scene, "sales", 5);
    const fired = await fireSchedule(scene.tasks, { tenant: "acme", name: "sales", nextAt });
    await mill.startWorker({ handlers: [handler] });
    const [id = ""] = fired?.taskIds ?? [];
    await eventually(() =>
      expect(seen).toEqual([
        { id, payload: { name: "sales" }, priority: 7, partitionKey: undefined, ...options },
      ]),
    );
    expect(await scene.admin.firingOf(id)).toMatchObject({
      schedule: "sales",
      kind: "tick",
      tick: nextAt,
      taskId: id,
    });
    expect(await scene.admin.firingOf("1234567")).toBeUndefined();
  });

  it("is enqueued at once by runNow, which touches no tick", async () => {
    const scene = await newScene();
    const told: string[] = [];
    const admin = new ScheduleAdmin(scene.tasks, CHANGES, (name) => void told.push(name));
    await admin.put("sales", SALES);
    await admin.pause("sales");
    const before = await admin.get("sales");
    const [first, second] = [await admin.runNow("sales"), await admin.runNow("sales")];
    expect(await readTaskIds(scene)).toEqual([first.id, second.id]);
    expect(first.queue).toBe("reports");
    expect(told).toEqual(["reports", "reports"]);
    expect(await admin.get("sales")).toEqual(before);
    const firings = await admin.firings("sales");
    expect(firings.map(({ kind, taskId }) => [kind, taskId])).toEqual([
      ["run-now", second.id],
      ["run-now", first.id],
    ]);
  });

  it("is enqueued by many calls at once over a single connection", async () => {
    const scene = await newScene();
    await scene.admin.put("sales", { ...SALES, priority: 3 });
    const single = openTasks(scene.database, 1);
    const tasks = { ...single, directory: new QueueDirectory(single.db) };
    const admin = new ScheduleAdmin(tasks, CHANGES);
    const made = await Promise.all(Array.from({ length: 5 }, () => admin.runNow("sales")));
    expect(await readTaskIds(scene)).toEqual(made.map(({ id }) => id));
  });

  it("stays when the schedule is removed", async () => {
    const scene = await newScene();
    await scene.admin.put("sales", SALES);
    const nextAt = await setBack(scene, "sales", 5);
    await fireSchedule(scene.tasks, { tenant: "default", name: "sales", nextAt });
    await scene.admin.remove("sales");
    expect(await scene.admin.list()).toEqual([]);
    expect(await readTicks(scene, "sales")).toEqual([]);
    expect(await readTaskIds(scene)).toHaveLength(1);
    expect(
      await fireSchedule(scene.tasks, { tenant: "default", name: "sales", nextAt }),
    ).toBeUndefined();
  });
});
