import { beforeAll, describe, expect, it } from "vitest";
import { failed, queue } from "../../../src/index.ts";
import { ApiKeyAdmin } from "../../../src/server/auth/api-key-admin.ts";
import { eventually } from "../../support/eventually.ts";
import { BRISK } from "../tasks/scene.ts";
import { openScene, type Scene } from "./http-scene.ts";

let scene: Scene;

beforeAll(async () => {
  scene = await openScene();
  await scene.mill.startWorker({
    ...BRISK,
    concurrency: 10,
    handlers: [
      queue<number>("doomed", { maxAttempts: 1 }).handle((task) =>
        failed(task.payload < 10 ? `order ${task.payload} is unknown` : "the bank is closed"),
      ),
    ],
  });
});

describe("who calls", () => {
  it("is told what its token allows", async () => {
    const reader = await scene.call("GET", "/v1/me", { as: "reader" });
    expect(reader.body).toMatchObject({ tenant: "acme", scopes: ["read"], queues: "all" });
    expect(reader.body["acts"]).toContain("feed.read");
    expect(reader.body["acts"]).not.toContain("dead.redrive");
    expect(reader.body).not.toHaveProperty("expiresAt");
    const admin = await scene.call("GET", "/v1/me", { as: "admin" });
    expect(admin.body["acts"]).toContain("cluster.change");
    const mailer = await scene.call("GET", "/v1/me", { as: "mailer" });
    expect(mailer.body).toMatchObject({ queues: ["mails"], scopes: ["producer", "read"] });
    expect(mailer.body["acts"]).not.toContain("cluster.read");
    expect((await scene.call("GET", "/v1/me", { headers: { authorization: "" } })).status).toBe(
      401,
    );
  });
});

describe("the state of the cluster", () => {
  it("is told at once, to admins", async () => {
    const { status, body } = await scene.call("GET", "/v1/status", { as: "admin" });
    expect(status).toBe(200);
    expect(body["workers"]).toMatchObject([{ status: "active" }]);
    expect(body.queues.map(({ name }) => name)).toContain("doomed");
    expect((await scene.call("GET", "/v1/status", { as: "producer" })).status).toBe(403);
  });

  it("has what workers run, and schedules that cannot fire", async () => {
    const { mill, database } = scene;
    for (const name of ["nightly", "daily"]) {
      await mill.schedules.put(name, { cron: "0 3 * * *", queue: "doomed" });
    }
    const fail = "UPDATE tidemill.schedules SET last_error = 'no' WHERE name = 'nightly'";
    await database.pool.query(fail);
    await eventually(async () => {
      const { body } = await scene.call("GET", "/v1/status", { as: "admin" });
      expect(body["workers"]).toMatchObject([{ load: { running: 0, slots: 10 } }]);
      expect(body["failingSchedules"]).toEqual([
        { tenant: "default", name: "nightly", error: "no" },
      ]);
    });
  });
});

describe("what dead letters died of", () => {
  it("is grouped without the numbers in it, for the tenant alone", async () => {
    const tasks = [1, 2, 3, 50].map((payload) => ({ payload }));
    const made = await scene.call("POST", "/v1/tasks/batch", { json: { queue: "doomed", tasks } });
    const path = "/v1/dead-letters/groups";
    const { ids } = made.body;
    await eventually(async () => {
      const { body } = await scene.call("GET", path, { as: "reader" });
      expect(body).toMatchObject({
        isCut: false,
        groups: [
          { queue: "doomed", reason: "order # is unknown", count: 3, ids: ids.slice(0, 3) },
          { queue: "doomed", reason: "the bank is closed", count: 1, ids: ids.slice(3) },
        ],
      });
    });
    const none = { groups: [], isCut: false };
    expect((await scene.call("GET", path, { as: "other" })).body).toEqual(none);
    expect((await scene.call("GET", path, { as: "mailer" })).body).toEqual(none);
    expect((await scene.call("GET", `${path}?queue=mails`, { as: "reader" })).body).toEqual(none);
    const refused = await scene.call("GET", `${path}?queue=doomed`, { as: "mailer" });
    expect(refused.status).toBe(403);
  });

  it("can be counted, and redriven without those that die again meanwhile", async () => {
    const json = { queue: "doomed", tasks: [1, 2].map((payload) => ({ payload, kind: "again" })) };
    await scene.call("POST", "/v1/tasks/batch", { json });
    const count = (query: string, as: "reader" | "other" = "reader") =>
      scene.call("GET", `/v1/dead-letters/count${query}`, { as });
    await eventually(async () => {
      expect((await count("?kind=again")).body).toMatchObject({ count: 2, isCut: false });
    });
    expect((await count("?kind=nothing")).body["count"]).toBe(0);
    expect((await count("", "other")).body["count"]).toBe(0);
    const diedBefore = (await count("?kind=again")).body["at"];
    const redrive = () =>
      scene.call("POST", "/v1/dead-letters/redrive", { json: { kind: "again", diedBefore } });
    expect((await redrive()).body).toMatchObject({ redriven: 2, hasMore: false });
    await eventually(async () => {
      expect((await count("?kind=again")).body["count"]).toBe(2);
    });
    expect((await redrive()).body).toMatchObject({ redriven: 0 });
    const nothingSaid = await scene.call("POST", "/v1/dead-letters/redrive", {
      json: { diedBefore },
    });
    expect(nothingSaid.status).toBe(400);
    const grouped = await scene.call("GET", "/v1/dead-letters/groups?kind=again", { as: "reader" });
    expect(grouped.body["groups"]).toMatchObject([{ count: 2 }]);
  });
});

describe("what people do", () => {
  it("is written down: who, what, to what, and why", async () => {
    const lines = (): object[] =>
      scene.log.lines
        .filter(({ message }) => message === "somebody acted")
        .map((one) => one.fields);
    const before = lines().length;
    await scene.mill.queues.ensure("mails");
    await scene.call("POST", "/v1/queues/mails/pause", { as: "admin", json: { reason: "a fire" } });
    await scene.call("POST", "/v1/tasks", { json: { queue: "mails", payload: { secret: 1 } } });
    await scene.call("GET", "/v1/queues", { as: "admin" });
    await scene.call("POST", "/v1/queues/mails/resume", { as: "reader" });
    expect(lines().slice(before)).toMatchObject([
      {
        audit: "queue.change",
        call: "POST /v1/queues/:name/pause",
        target: { name: "mails" },
        reason: "a fire",
        tenant: "acme",
        status: 200,
      },
    ]);
    expect(JSON.stringify(lines())).not.toContain("secret");
  });

  it("is kept, also what was refused, and shown to admins", async () => {
    const limits = { concurrency: 3, rate: null };
    await scene.mill.queues.ensure("letters");
    await scene.call("POST", "/v1/queues/letters/pause", { as: "reader" });
    await scene.call("POST", "/v1/streams/order/1/events", {
      as: "admin",
      json: { events: [{ type: "OrderPlaced", data: {} }] },
    });
    for (let count = 0; count < 10; count += 1) {
      await scene.call("POST", "/v1/tasks/1/cancel", { json: { reason: "older" } });
    }
    await scene.call("PUT", "/v1/queues/letters/limits", { as: "admin", json: limits });
    await scene.call("POST", "/v1/tasks/424242/cancel", { json: { reason: "a guess" } });
    const { body } = await scene.call("GET", "/v1/audit?limit=2", { as: "admin" });
    expect(body["acts"]).toMatchObject([
      {
        act: "task.cancel",
        call: "POST /v1/tasks/:id/cancel",
        target: { id: "424242" },
        reason: "a guess",
        status: 404,
      },
      { act: "queue.change", target: { name: "letters", ...limits }, tenant: "acme", status: 200 },
    ]);
    const older = await scene.call("GET", `/v1/audit?limit=1&cursor=${body.cursor}`, {
      as: "admin",
    });
    expect(older.body["acts"]).toHaveLength(1);
    expect((await scene.call("GET", "/v1/audit", { as: "producer" })).status).toBe(403);
  });

  it("is not done when it cannot be written down", async () => {
    const { pool } = scene.database;
    await pool.query("ALTER TABLE tidemill.audit_log RENAME TO audit_log_away");
    try {
      const json = { reason: "unseen" };
      const reply = await scene.call("POST", "/v1/queues/letters/pause", { as: "admin", json });
      expect(reply.status).toBeGreaterThanOrEqual(500);
    } finally {
      await pool.query("ALTER TABLE tidemill.audit_log_away RENAME TO audit_log");
    }
    const [letters] = (await scene.mill.queues.list()).filter(({ name }) => name === "letters");
    expect(letters?.isPaused).toBe(false);
  });
});

describe("API keys", () => {
  it("are listed without their text and revoked, by admins", async () => {
    const keys = new ApiKeyAdmin(scene.mill.engine.db);
    const { apiKey, key } = await keys.create({ tenant: "globex", scopes: ["read"], name: "ci" });
    const listed = await scene.call("GET", "/v1/keys?tenant=globex", { as: "admin" });
    expect(listed.body["keys"]).toMatchObject([{ id: apiKey.id, name: "ci", state: "active" }]);
    expect(listed.text).not.toContain(key.reveal());
    expect((await scene.call("GET", "/v1/keys", { as: "producer" })).status).toBe(403);
    const path = `/v1/keys/${apiKey.id}/revoke`;
    expect((await scene.call("POST", path, { as: "producer" })).status).toBe(403);
    const revoked = await scene.call("POST", path, { as: "admin" });
    expect(revoked.body).toMatchObject({ id: apiKey.id, state: "revoked" });
    expect((await scene.call("POST", path, { as: "admin" })).status).toBe(409);
    const unknown = "0".repeat(16);
    expect((await scene.call("POST", `/v1/keys/${unknown}/revoke`, { as: "admin" })).status).toBe(
      404,
    );
  });
});
