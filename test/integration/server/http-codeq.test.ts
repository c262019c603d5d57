import { beforeAll, describe, expect, it } from "vitest";
import { completed, failed, queue } from "../../../src/index.ts";
import { eventually } from "../../support/eventually.ts";
import { BRISK } from "../tasks/scene.ts";
import { type CallOptions, openScene, type Reply, type Scene } from "./http-scene.ts";

let scene: Scene;

beforeAll(async () => {
  scene = await openScene();
  const handlers = [
    queue("RENDER").handle(() => completed({ url: "x" })),
    queue("REFUSED").handle(() => failed("never", { retry: false })),
  ];
  await scene.mill.startWorker({ ...BRISK, handlers });
});

const call = (method: string, path: string, options?: CallOptions): Promise<Reply> =>
  scene.call(method, `/v1/codeq${path}`, options);
const create = (json: object, options: CallOptions = {}): Promise<Reply> =>
  call("POST", "/tasks", { json, ...options });

describe("tasks", () => {
  it("that are too many are refused as its clients know it", async () => {
    const few = scene.another({ callsPerSecond: 0.1, callsBurst: 1 });
    const json = { command: "GENERATE", payload: 1 };
    const send = (path: string, how: CallOptions): Promise<Reply> =>
      few.call("POST", `/v1/codeq${path}`, how);
    expect((await send("/tasks", { json })).status).toBe(202);
    const refused = await send("/tasks", { json });
    expect(refused.status).toBe(429);
    const retryAfterSeconds = Number(refused.headers.get("retry-after"));
    expect(retryAfterSeconds).toBeGreaterThan(5);
    const error = "more than 0.1 calls a second; come back later";
    const scopes = { scope: "producer", operation: "create_task" };
    expect(refused.body).toEqual({ error, ...scopes, retryAfterSeconds });
  });

  it("are created and found in the fields that its clients know", async () => {
    const made = await call("POST", "/tasks", {
      text: '{"command":"GENERATE","payload":{"n":1.0},"priority":12,"maxAttempts":3,"extra":1}',
    });
    expect(made.status, made.text).toBe(202);
    expect(made.body).toMatchObject({
      command: "GENERATE",
      payload: '{"n":1.0}',
      priority: 9,
      status: "PENDING",
      lastKnownLocation: "PENDING_LIST",
      attempts: 0,
      maxAttempts: 3,
      tenantId: "acme",
    });
    const found = await call("GET", `/tasks/${made.body.id}`, { as: "worker" });
    expect(found.body).toEqual(made.body);
    const later = await create({ command: "GENERATE", payload: {}, delaySeconds: 60 });
    expect(later.body).toMatchObject({ status: "PENDING", lastKnownLocation: "DELAYED_ZSET" });
    const once = { command: "GENERATE", payload: 1, idempotencyKey: "k" };
    expect((await create(once)).body.id).toBe((await create(once)).body.id);
    expect((await create({ ...once, payload: 2 })).status).toBe(409);
  });

  it.each([
    [{ payload: {} }, 400, "invalid body"],
    [{ command: " ", payload: {} }, 400, "command is required"],
    [{ command: "GENERATE" }, 400, "invalid body"],
    [{ command: "GENERATE", payload: 1, delaySeconds: -1 }, 400, "delaySeconds must be >= 0"],
    [{ command: "GENERATE", payload: 1, runAt: "soon" }, 400, "invalid body"],
    [{ command: "GENERATE", payload: 1, taskId: "mine" }, 400, /^task_id is not taken/],
    [{ command: "GENERATE", payload: 1, deduplicationKey: "k" }, 400, /^deduplication_key is not/],
    [[], 400, "invalid body"],
  ])("that cannot be are refused: %j", async (json, status, error) => {
    const reply = await create(json);
    const said = typeof error === "string" ? error : expect.stringMatching(error);
    expect([reply.status, reply.body]).toEqual([status, { error: said }]);
    expect(reply.headers.get("content-type")).toBe("application/json");
  });

  it("are refused to whoever may not, in the same words", async () => {
    const reply = await create({ command: "x", payload: 1 }, { as: "mailer" });
    expect([reply.status, reply.body]).toEqual([403, { error: 'this token is not for queue "x"' }]);
    const nobody = await call("GET", "/tasks/999999", { headers: { authorization: "" } });
    expect([nobody.status, nobody.body]).toEqual([401, { error: "no token was given" }]);
    for (const id of ["999999", "no-number"]) {
      const missing = await call("GET", `/tasks/${id}`);
      expect([missing.status, missing.body]).toEqual([404, { error: "task not found" }]);
    }
    expect((await call("PATCH", "/tasks")).body).toEqual({ error: "here is POST" });
  });

  it("that ended without a result have failed, whatever the way", async () => {
    const { mill } = scene;
    const { body } = await create({ command: "GENERATE", payload: 1 });
    expect(body.id).toMatch(/^[1-9]\d*$/);
    await mill.tasks.cancel(body.id, { reason: "sold out" });
    const end = { status: "FAILED", lastKnownLocation: "NONE", error: "sold out" };
    expect((await call("GET", `/tasks/${body.id}`)).body).toMatchObject(end);
    const { body: result } = await call("GET", `/tasks/${body.id}/result`);
    expect(result).toMatchObject({ result: { status: "FAILED", error: "sold out" } });
    const refused = await create({ command: "REFUSED", payload: 1 });
    const { task } = (await call("GET", `/tasks/${refused.body.id}/result?waitSeconds=60`)).body;
    expect(task).toMatchObject({ status: "FAILED", lastKnownLocation: "NONE", error: "never" });
  });

  it("of a command have a queue of that name, to the letter", async () => {
    for (const command of ["Letter", "letter"]) await create({ command, payload: 1 });
    const { body } = await call("GET", "/admin/queues", { as: "admin" });
    expect(body).toMatchObject({ "Letter:ready": 1, "letter:ready": 1 });
  });

  it("of a batch are made each for itself", async () => {
    const tasks = [
      { command: "GENERATE", payload: 1 },
      { command: "", payload: 2 },
      { command: "GENERATE", payload: 3 },
    ];
    const reply = await call("POST", "/tasks/batch", { json: { tasks } });
    expect(reply.status).toBe(200);
    expect(reply.body["results"]).toMatchObject([
      { task: { payload: "1" } },
      { error: "command is required" },
      { task: { payload: "3" } },
    ]);
    const many = { tasks: Array.from({ length: 101 }, () => tasks[0]) };
    expect((await call("POST", "/tasks/batch", { json: many })).body).toEqual({
      error: "invalid body",
    });
    expect((await call("POST", "/tasks/batch", { json: { tasks: [] } })).status).toBe(400);
  });

  it("are waited for with their result", async () => {
    const { body } = await create({ command: "RENDER", payload: 1 });
    const reply = await call("GET", `/tasks/${body.id}/result?waitSeconds=500`);
    expect(reply.status, reply.text).toBe(200);
    expect(reply.body).toMatchObject({
      task: { id: body.id, status: "COMPLETED", lastKnownLocation: "NONE", attempts: 1 },
      result: { taskId: body.id, status: "COMPLETED", result: { url: "x" }, artifacts: [] },
    });
    const waiting = await create({ command: "GENERATE", payload: 1 });
    for (const query of ["", "?waitSeconds=0", "?waitSeconds=1", "?waitSeconds=x"]) {
      const none = await call("GET", `/tasks/${waiting.body.id}/result${query}`);
      expect([none.status, none.body]).toEqual([404, { error: "result not found" }]);
    }
    const missing = await call("GET", "/tasks/999999/result?waitSeconds=60");
    expect([missing.status, missing.body]).toEqual([404, { error: "task not found" }]);
  });
});

describe("administration", () => {
  it("counts what is where", async () => {
    await create({ command: "counted", payload: 1 });
    await create({ command: "counted", payload: 1 });
    await create({ command: "counted", payload: 1, delaySeconds: 60 });
    const counts = { ready: 2, delayed: 1, inProgress: 0, dlq: 0 };
    const one = await call("GET", "/admin/queues/counted", { as: "admin" });
    expect(one.body).toEqual({ command: "counted", ...counts });
    const all = await call("GET", "/admin/queues", { as: "admin" });
    expect(all.body).toMatchObject({ "counted:ready": 2, "counted:delayed": 1 });
    const none = await call("GET", "/admin/queues/nobody", { as: "admin" });
    expect(none.body).toMatchObject({ command: "nobody", ready: 0 });
    for (const path of ["/raft/status", "/metrics"]) {
      expect((await call("GET", path, { as: "admin" })).status).toBe(404);
    }
  });

  it("cleans up tasks that ended, of the tenant, as many as it may", async () => {
    const { mill } = scene;
    const ends = await Promise.all(
      ["acme", "acme", "acme", "globex"].map(async (tenant) => {
        const { id } = await mill.enqueue("counted", 1, { tenant });
        await mill.tasks.cancel(id);
        return id;
      }),
    );
    const young = await call("POST", "/admin/tasks/cleanup", { as: "admin" });
    expect(young.body).toMatchObject({ deleted: 0, limit: 1_000 });
    const { pool } = scene.database;
    const age = "UPDATE tidemill.task_history SET finished_at = NOW() - $2::interval WHERE id = $1";
    await pool.query(age, [ends[0], "23 hours"]);
    await pool.query(age, [ends[1], "25 hours"]);
    const old = await call("POST", "/admin/tasks/cleanup", { as: "admin" });
    expect(old.body).toMatchObject({ deleted: 1 });
    await expect(mill.tasks.get(ends[1] ?? "")).rejects.toThrow(/there is no task/);
    const json = { before: "2999-01-01T00:00:00Z", limit: 2 };
    const some = await call("POST", "/admin/tasks/cleanup", { as: "admin", json });
    expect(some.body).toEqual({ deleted: 2, before: "2999-01-01T00:00:00.000Z", limit: 2 });
    await eventually(async () => {
      const rest = await call("POST", "/admin/tasks/cleanup", { as: "admin", json });
      expect(rest.body["deleted"]).toBe(0);
    });
    expect(await mill.tasks.get(ends[3] ?? "")).toMatchObject({ state: "cancelled" });
  });

  it("keeps policies of topics, whose attempts hold for creates without a number", async () => {
    const path = "/admin/topics/video-render";
    const as = "admin";
    const policy = { priorityTiers: [1, 5], maxAttempts: 9, maxConsumers: 3 };
    const first = await call("PUT", path, { as, json: policy });
    expect([first.status, first.body]).toEqual([201, { name: "video-render", version: 1, policy }]);
    expect((await call("PUT", path, { as, json: policy })).body).toMatchObject({ version: 1 });
    const changed = await call("PUT", path, { as, json: { ...policy, maxAttempts: 8 } });
    expect([changed.status, changed.body["version"]]).toEqual([200, 2]);
    expect((await call("GET", path, { as })).body).toMatchObject({ version: 2 });
    expect((await call("GET", path, { as: "otherAdmin" })).status).toBe(404);
    const once = { command: "video-render", payload: 1, idempotencyKey: "under-a-policy" };
    const before = await create(once);
    expect((await call("PUT", path, { as, json: { maxAttempts: 7 } })).status).toBe(200);
    expect((await create(once)).body).toMatchObject({ id: before.body.id, maxAttempts: 8 });
    expect((await create({ ...once, maxAttempts: 7 })).status).toBe(409);
    expect((await call("PUT", path, { as, json: policy })).status).toBe(200);
    const made = await create({ command: "video-render", payload: 1 });
    expect(made.body["maxAttempts"]).toBe(9);
    const theirs = await create({ command: "video-render", payload: 1 }, { as: "other" });
    expect(theirs.body["maxAttempts"]).toBe(5);
    expect((await call("DELETE", path, { as })).status).toBe(400);
    expect((await call("DELETE", `${path}?deletionPolicy=Delete`, { as })).status).toBe(204);
    expect((await call("DELETE", `${path}?deletionPolicy=Delete`, { as })).status).toBe(404);
    expect((await call("PUT", path, { as: "producer", json: policy })).status).toBe(403);
  });

  it.each([
    [{ priorityTiers: [] }, "priorityTiers"],
    [{ priorityTiers: [11] }, "priorityTiers"],
    [{ maxAttempts: 0 }, "maxAttempts"],
    [{ deadLetterTopicRef: "topic-1" }, "deadLetterTopicRef"],
    [{ deadLetterTopicRef: "No Label" }, "deadLetterTopicRef"],
    [{ retentionSeconds: -1 }, "retentionSeconds"],
    [{ maxConsumers: 10_001 }, "maxConsumers"],
  ])("refuses a policy with %j", async (json, field) => {
    const reply = await call("PUT", "/admin/topics/topic-1", { as: "admin", json });
    expect([reply.status, reply.body]).toEqual([422, { error: `invalid ${field}`, field }]);
    const unknown = { as: "admin", json: { ...json, more: 1 } } as const;
    expect((await call("PUT", "/admin/topics/topic-1", unknown)).status).toBe(400);
  });
});
