import { beforeAll, describe, expect, it } from "vitest";
import { completed, failed, queue } from "../../../src/index.ts";
import { eventually } from "../../support/eventually.ts";
import { BRISK, gate } from "../tasks/scene.ts";
import { openScene, type Reply, type Scene } from "./http-scene.ts";

const hold = gate();
let scene: Scene;

beforeAll(async () => {
  scene = await openScene();
  const { mill } = scene;
  for (const name of ["mails", "orders"]) await mill.queues.ensure(name);
  await mill.startWorker({
    ...BRISK,
    handlers: [
      queue<{ n: number }>("sums").handle(async ({ payload }) => {
        if (payload.n === 0) return failed("nothing to add", { retry: false });
        if (payload.n < 0) await hold.opened;
        return completed({ sum: payload.n + 1 });
      }),
    ],
  });
});

const create = async (json: object, headers = {}): Promise<string> => {
  const reply = await scene.call("POST", "/v1/tasks", { json, headers });
  expect(reply.status, reply.text).toBe(201);
  return reply.body.id;
};

describe("a task", () => {
  it("is created, found and listed with everything it was given", async () => {
    const json = {
      queue: "mails",
      payload: { to: "ada@example.org" },
      kind: "welcome",
      priority: "high",
      partitionKey: "ada",
      delaySeconds: 3_600,
      maxAttempts: 7,
      timeoutSeconds: 5,
      webhook: "https://example.org/hook",
    };
    const reply = await scene.call("POST", "/v1/tasks", {
      json,
      headers: { traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01" },
    });
    expect(reply.status).toBe(201);
    const { id } = reply.body;
    expect(reply.body).toEqual({ id, queue: "mails" });
    expect(reply.headers.get("location")).toBe(`/v1/tasks/${id}`);
    const found = await scene.call("GET", `/v1/tasks/${id}`, { as: "reader" });
    expect(found.status).toBe(200);
    expect(found.body).toMatchObject({
      id,
      state: "scheduled",
      queue: "mails",
      tenant: "acme",
      kind: "welcome",
      priority: 8,
      partitionKey: "ada",
      payload: { to: "ada@example.org" },
      contentType: "application/json",
      attempt: 0,
      maxAttempts: 7,
      webhook: "https://example.org/hook",
      traceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    });
    const listed = await scene.call("GET", "/v1/tasks?queue=mails&state=scheduled");
    expect(listed.body.tasks).toContainEqual(found.body);
    const why = await scene.call("GET", `/v1/tasks/${id}/why`);
    expect(why.body["why"]).toMatch(/^it is scheduled for 2/);
  });

  it.each([
    '{"n": 12345678901234567890, "f": 1.0, "e": 1e400}',
    '"\\u0000 \\ud800 \u{1f600} \\/"',
    "[ ]",
    "null",
    "  -0.0",
  ])("keeps its payload letter by letter: %s", async (payload) => {
    const text = `{"payload":${payload},"queue":"mails"}`;
    const made = await scene.call("POST", "/v1/tasks", { text });
    expect(made.status, made.text).toBe(201);
    const { text: found } = await scene.call("GET", `/v1/tasks/${made.body.id}`);
    expect(found).toContain(`"payload":${payload.trim()},"contentType"`);
    const many = await scene.call("POST", "/v1/tasks/batch", {
      text: `{"queue":"mails","tasks":[{"payload":${payload}},{"payload":1},{}]}`,
    });
    const [first, , third] = many.body.ids;
    expect((await scene.call("GET", `/v1/tasks/${first}`)).text).toContain(payload.trim());
    expect((await scene.call("GET", `/v1/tasks/${third}`)).body["payload"]).toBeNull();
  });

  it("keeps bytes, whatever they are", async () => {
    const bytes = Buffer.from(Array.from({ length: 256 }, (_, n) => n));
    const payloadBase64 = bytes.toString("base64");
    const id = await create({ queue: "mails", payloadBase64, contentType: "image/x-nothing" });
    const { body } = await scene.call("GET", `/v1/tasks/${id}`);
    expect(body).toMatchObject({ payloadBase64, contentType: "image/x-nothing" });
    expect(body).not.toHaveProperty("payload");
    const empty = await create({ queue: "mails", payloadBase64: "" });
    expect((await scene.call("GET", `/v1/tasks/${empty}`)).body).toMatchObject({
      payloadBase64: "",
      contentType: "application/octet-stream",
    });
  });

  it("is made once under one idempotency key, of each tenant", async () => {
    const json = { queue: "mails", payload: 1 };
    const headers = { "idempotency-key": "order-1" };
    const id = await create(json, headers);
    expect(await create(json, headers)).toBe(id);
    expect(await create({ ...json, idempotencyKey: "order-1" })).toBe(id);
    const other = await scene.call("POST", "/v1/tasks", {
      json: { ...json, payload: 2 },
      headers,
    });
    expect(other.status).toBe(409);
    expect(other.body["code"]).toBe("TM_IDEMPOTENCY_CONFLICT");
    const theirs = await scene.call("POST", "/v1/tasks", { as: "other", json, headers });
    expect(theirs.status).toBe(201);
    expect(theirs.body.id).not.toBe(id);
    const both = { json: { ...json, idempotencyKey: "a" }, headers };
    expect((await scene.call("POST", "/v1/tasks", both)).status).toBe(400);
  });

  it("is made once under one idempotency key of many", async () => {
    const headers = { "idempotency-key": "orders-1" };
    const json = { queue: "mails", tasks: [{ payload: 1 }, { payload: 2 }] };
    const send = (more: object = json, how: object = { headers }): Promise<Reply> =>
      scene.call("POST", "/v1/tasks/batch", { json: more, ...how });
    const first = await send();
    expect(first.status, first.text).toBe(201);
    expect((await send()).body).toEqual(first.body);
    expect(await create({ queue: "mails", payload: 2, idempotencyKey: "orders-1/1" })).toBe(
      (first.body["ids"] as string[])[1],
    );
    const changed = await send({ ...json, tasks: [{ payload: 1 }, { payload: 3 }] });
    expect([changed.status, changed.body["code"]]).toEqual([409, "TM_IDEMPOTENCY_CONFLICT"]);
    const both = await send({ ...json, tasks: [{ payload: 1, idempotencyKey: "own" }] });
    expect([both.status, both.text]).toEqual([400, expect.stringContaining("not both")]);
    const long = await send(json, { headers: { "idempotency-key": "x".repeat(1_024) } });
    expect([long.status, long.text]).toEqual([400, expect.stringContaining("too long")]);
  });

  it("is listed in pages, newest first, each task once", async () => {
    const tasks = Array.from({ length: 25 }, (_, n) => ({ payload: n, partitionKey: "page" }));
    const made = await scene.call("POST", "/v1/tasks/batch", { json: { queue: "mails", tasks } });
    expect(made.status).toBe(201);
    const seen: string[] = [];
    let cursor: string | undefined = "";
    while (cursor !== undefined) {
      const at: string = cursor === "" ? "" : `&cursor=${cursor}`;
      const { body } = await scene.call("GET", `/v1/tasks?partitionKey=page&limit=10${at}`);
      seen.push(...body.tasks.map(({ id }) => id));
      cursor = body.cursor;
    }
    expect(seen).toEqual(made.body.ids.toReversed());
  });

  it("is cancelled, and retried", async () => {
    const id = await create({ queue: "orders", payload: 1 });
    const cancelled = await scene.call("POST", `/v1/tasks/${id}/cancel`, {
      json: { reason: "changed my mind" },
    });
    expect(cancelled.body).toEqual({ id, state: "cancelled" });
    const again = await scene.call("POST", `/v1/tasks/${id}/cancel`);
    expect(again.status).toBe(409);
    expect(again.body["detail"]).toContain("nothing to cancel");
    const result = await scene.call("GET", `/v1/tasks/${id}/result`);
    expect(result.status).toBe(200);
    expect(result.body).toEqual({ id, state: "cancelled", reason: "changed my mind" });
    expect((await scene.call("POST", `/v1/tasks/${id}/retry`)).body).toEqual({ id });
    expect((await scene.call("GET", `/v1/tasks/${id}`)).body["state"]).toBe("pending");
  });
});

describe("the result of a task", () => {
  it("is there when the task has completed", async () => {
    const id = await create({ queue: "sums", payload: { n: 1 } });
    const reply = await scene.call("GET", `/v1/tasks/${id}/result?waitSeconds=20`);
    expect(reply.status).toBe(200);
    expect(reply.body).toEqual({ id, state: "completed", result: { sum: 2 } });
    expect((await scene.call("GET", `/v1/tasks/${id}/result`)).body).toEqual(reply.body);
  });

  it("says why there is none", async () => {
    const id = await create({ queue: "sums", payload: { n: 0 } });
    const reply = await scene.call("GET", `/v1/tasks/${id}/result?waitSeconds=20`);
    expect(reply.body).toEqual({ id, state: "failed", reason: "nothing to add" });
    const { body } = await scene.call("GET", `/v1/tasks/${id}/failures`);
    expect(body["failures"]).toMatchObject([{ attempt: 1, reason: "nothing to add" }]);
  });

  it("is waited for as long as the caller does, and no longer", async () => {
    const id = await create({ queue: "sums", payload: { n: -1 } });
    expect((await scene.call("GET", `/v1/tasks/${id}/result`)).status).toBe(202);
    const short = await scene.call("GET", `/v1/tasks/${id}/result?waitSeconds=1`);
    expect(short.status).toBe(202);
    expect(short.body["state"]).toMatch(/pending|running/);
    const gone = new AbortController();
    const left = scene.call("GET", `/v1/tasks/${id}/result?waitSeconds=60`, {
      signal: gone.signal,
    });
    const { waits } = scene.api.metrics;
    await eventually(() => expect(waits.value()).toBe(1));
    // It has been looked at once, so that there is something to answer.
    await eventually(async () => {
      expect((await scene.call("GET", `/v1/tasks/${id}`)).body["state"]).toBe("running");
    });
    const long = scene.call("GET", `/v1/tasks/${id}/result?waitSeconds=60`);
    await eventually(() => expect(waits.value()).toBe(2));
    gone.abort();
    await left.catch(() => {}); // Nobody reads it.
    await eventually(() => expect(waits.value()).toBe(1));
    hold.open();
    expect((await long).body).toEqual({ id, state: "completed", result: { sum: 0 } });
  });

  it("is waited for by so many at once, and no more", async () => {
    const { call, api } = scene.another({ waitsMax: 1 });
    const id = await create({ queue: "orders", payload: 1 });
    const stop = new AbortController();
    const path = `/v1/tasks/${id}/result?waitSeconds=60`;
    const first = call("GET", path, { signal: stop.signal });
    await eventually(() => expect(api.metrics.waits.value()).toBe(1));
    const second = await call("GET", path);
    expect(second.status).toBe(429);
    expect(second.body["code"]).toBe("TM_LIMIT");
    stop.abort();
    await first.catch(() => {});
  });
});
