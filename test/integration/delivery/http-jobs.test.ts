import { expect, it } from "vitest";
import { httpQueue, queue } from "../../../src/index.ts";
import { eventually } from "../../support/eventually.ts";
import { serveRaw } from "../../support/http-server.ts";
import { BRISK, gate } from "../tasks/scene.ts";
import { AT_ONCE, answering, calls, newJobScene, startCaller, taskIn } from "./http-jobs-scene.ts";
import { expectCallSigned, receiver } from "./webhook-scene.ts";

it("posts the payload byte by byte, signed, and keeps a bounded answer as the result", async () => {
  const scene = await newJobScene();
  const body = "x".repeat(40_000);
  const target = await receiver(
    answering(201, { "content-type": "text/plain", "x-request-id": "r-1", "x-other": "no" }, body),
  );
  const kept = httpQueue("kept", {
    http: { resultHeaders: ["X-Request-Id", "content-type"], headers: { "X-Shop": "12" } },
  });
  await startCaller(scene, [target.port], { queues: [kept] });
  const traceParent = `00-${"a".repeat(32)}-${"b".repeat(16)}-01`;
  const handle = await scene.mill.enqueue(
    kept,
    { n: 12345678901234567890n.toString(), ä: "ö" },
    {
      http: { targetUrl: target.url("/in?a=1"), headers: { Authorization: "Bearer t" } },
      traceParent,
      traceState: "a=b",
    },
  );
  expect(await handle.result()).toEqual({
    status: 201,
    headers: { "x-request-id": "r-1", "content-type": "text/plain" },
    body: "x".repeat(16 * 1_024),
    isTruncated: true,
  });
  const [call] = target.received;
  expect(call).toMatchObject({
    path: "/in?a=1",
    body: '{"n":"12345678901234567890","ä":"ö"}',
    headers: {
      "content-type": "application/json",
      authorization: "Bearer t",
      "x-shop": "12",
      traceparent: traceParent,
      tracestate: "a=b",
      "tidemill-task-id": handle.id,
      "tidemill-attempt": "1",
    },
  });
  expect(call?.headers["idempotency-key"]).toBe(call?.headers["webhook-id"]);
  await expectCallSigned(scene, call, "default");
  expect(await scene.mill.tasks.get(handle.id)).toMatchObject({ targetUrl: target.url("/in?a=1") });
});

it("sends bytes as they are, signed by the named endpoint, and no body with GET", async () => {
  const scene = await newJobScene();
  const target = await receiver(answering(200, {}, "\u0000\u0001"));
  await startCaller(scene, [target.port]);
  await scene.mill.webhooks.put("default", "partner", { url: "https://example.com/" });
  const targetUrl = target.url();
  const bytes = await scene.mill.enqueue(calls, Uint8Array.from([1, 2, 255]), {
    contentType: "image/png",
    http: { targetUrl, method: "PUT", endpoint: "partner" },
  });
  expect(await bytes.result()).toMatchObject({ status: 200, bodyBase64: "AAE=" });
  expect(target.received[0]?.headers).toMatchObject({
    "content-type": "image/png",
    "content-length": "3",
  });
  const get = await scene.mill.enqueue(calls, { n: 1 }, { http: { targetUrl, method: "GET" } });
  await get.result();
  expect(target.received[1]?.body).toBe("");
  await expectCallSigned(scene, target.received[1], "default");
});

it("tries what may pass again, with one Idempotency-Key, and ends what will not", async () => {
  const scene = await newJobScene();
  const target = await receiver((response, { path }, count) => {
    const status = path === "/flaky" && count > 2 ? 200 : Number(path.slice(1)) || 503;
    response.writeHead(status).end();
  });
  const dead = await serveRaw((socket) => socket.destroy());
  await startCaller(scene, [target.port, dead.port], { breakerFailures: 100 });
  const enqueue = async (targetUrl: string, expectedStatus?: number[]): Promise<string> => {
    const http = { targetUrl, ...(expectedStatus === undefined ? {} : { expectedStatus }) };
    return (await scene.mill.enqueue(calls, 1, { http })).id;
  };
  const flaky = await enqueue(target.url("/flaky"));
  expect(await taskIn(scene, flaky, "completed")).toMatchObject({ attempt: 3 });
  const keys = target.received.map(({ headers }) => headers["idempotency-key"]);
  expect(new Set(keys).size).toBe(1);
  expect(target.received.map(({ headers }) => headers["tidemill-attempt"])).toEqual([
    "1",
    "2",
    "3",
  ]);

  const ends = {
    "/404": ["failed", "the target answered 404"],
    "/422": ["failed", "the target answered 422"],
    "/408": ["dead", "the target answered 408"],
    "/429": ["dead", "the target answered 429"],
    "/500": ["dead", "the target answered 500"],
  } as const;
  const all = Object.entries(ends).map(async ([path, [state, reason]]) => {
    const id = await enqueue(target.url(path));
    expect(await taskIn(scene, id, state)).toMatchObject({
      reason,
      attempt: state === "dead" ? 3 : 1,
    });
  });
  await Promise.all(all);
  const broken = await taskIn(scene, await enqueue(`http://hooks.test:${dead.port}/`), "dead");
  expect(broken.reason).toMatch(/closed the connection/);
  const missing = await enqueue(target.url("/404"), [404, 204]);
  expect(await taskIn(scene, missing, "completed")).toMatchObject({ result: { status: 404 } });
  const odd = await taskIn(scene, await enqueue(target.url("/200"), [204]), "failed");
  expect(odd.reason).toBe("the target answered 200, which is not an expected status");
});

it("comes back no sooner than the target asks, and leaves its host alone meanwhile", async () => {
  const scene = await newJobScene();
  const target = await receiver(answering(429, { "retry-after": "3600" }));
  const other = await receiver();
  await startCaller(scene, [target.port, other.port]);
  const http = { targetUrl: target.url() };
  const { id } = await scene.mill.enqueue(calls, 1, { http });
  const waiting = await taskIn(scene, id, "scheduled");
  const inSeconds = (waiting.runAt.getTime() - Date.now()) / 1_000;
  expect(inSeconds).toBeGreaterThan(3_500);
  expect(waiting.attempt).toBe(1);
  // Another task of the same host is not even tried, which costs it no attempt.
  const next = await scene.mill.enqueue(calls, 2, { http });
  const sentAway = await taskIn(scene, next.id, "scheduled");
  expect(sentAway.attempt).toBe(0);
  expect(sentAway.runAt.getTime() - Date.now()).toBeGreaterThan(30_000);
  const elsewhere = await scene.mill.enqueue(calls, 3, { http: { targetUrl: other.url() } });
  await elsewhere.result();
  expect(target.received).toHaveLength(1);
});

it("fails an attempt that outlives its time, and ends the call", async () => {
  const scene = await newJobScene();
  const target = await receiver(() => {}); // Never answers.
  await startCaller(scene, [target.port]);
  const { id } = await scene.mill.enqueue(calls, 1, {
    http: { targetUrl: target.url() },
    timeoutSeconds: 1, // Enough to reach the target on a busy machine.
    maxAttempts: 2,
  });
  expect(await taskIn(scene, id, "dead")).toMatchObject({ attempt: 2 });
  expect(await scene.mill.tasks.failures(id)).toMatchObject([
    { outcome: "timeout" },
    { outcome: "timeout" },
  ]);
  expect(target.received).toHaveLength(2);
});

it("follows no redirect, and so none to a private host", async () => {
  const scene = await newJobScene();
  const secret = await receiver();
  const target = await receiver((response) => {
    response.writeHead(307, { location: `http://127.0.0.1:${secret.port}/` }).end();
  });
  await startCaller(scene, [target.port, secret.port]);
  const first = await scene.mill.enqueue(calls, 1, { http: { targetUrl: target.url() } });
  const refused = await taskIn(scene, first.id, "failed");
  expect(refused.reason).toMatch(/redirects are refused/);
  expect(secret.received).toHaveLength(0);
});

it("stops a call whose task is cancelled", async () => {
  const scene = await newJobScene();
  const hungUp = gate();
  const target = await receiver((response) => void response.once("close", () => hungUp.open()));
  await startCaller(scene, [target.port]);
  const { id } = await scene.mill.enqueue(calls, 1, { http: { targetUrl: target.url() } });
  await eventually(() => expect(target.received).toHaveLength(1));
  expect(await scene.mill.tasks.cancel(id)).toBe("cancelling");
  await hungUp.opened;
  await taskIn(scene, id, "cancelled");
});

it("runs queues that others define, also while it runs, and as they are defined now", async () => {
  const scene = await newJobScene();
  const target = await receiver();
  await scene.mill.queues.define(httpQueue("early", { http: { targetUrl: target.url("/early") } }));
  const worker = await scene.mill.startWorker({
    dispatcherStrategy: "notify",
    httpJobs: {
      egress: {
        allowHttp: true,
        ports: [target.port],
        allowHosts: ["hooks.test"],
        resolve: async () => ["127.0.0.1"],
      },
    },
  });
  try {
    const early = await scene.mill.enqueue("early", 1);
    await early.result();
    await scene.mill.queues.define(httpQueue("late", { backoff: AT_ONCE }));
    const late = await scene.mill.enqueue("late", 2, {
      partitionKey: "one",
      http: { targetUrl: target.url("/late") },
    });
    await late.result();
    await scene.mill.queues.define(httpQueue("early", { http: { targetUrl: target.url("/new") } }));
    await eventually(async () => {
      const { id } = await scene.mill.enqueue("early", 3);
      await taskIn(scene, id, "completed");
      expect(target.received.at(-1)?.path).toBe("/new");
    });
    expect(target.received.map(({ path }) => path).slice(0, 2)).toEqual(["/early", "/late"]);
    expect((await scene.mill.queues.list()).map(({ kind }) => kind)).toEqual(["http", "http"]);
  } finally {
    await worker.stop();
  }
});

it("leaves a queue that is not of kind http any more, at no cost to its tasks", async () => {
  const scene = await newJobScene();
  const { mill } = scene;
  const target = await receiver();
  const asCalls = httpQueue("moved", { http: { targetUrl: target.url() } });
  await mill.queues.define(asCalls);
  await startCaller(scene, [target.port], { queues: ["moved"] });
  await (await mill.enqueue("moved", 1)).result();
  const isWorked = async (): Promise<boolean> => {
    const workers = await scene.database.pool.query("SELECT queues FROM tidemill.worker_info");
    return JSON.stringify(workers.rows).includes("moved");
  };
  expect(await isWorked()).toBe(true);

  const asWork = queue<number>("moved", { maxAttempts: 1 });
  await mill.queues.define(asWork);
  const tasks = await mill.enqueueMany("moved", [
    { payload: 2 },
    { payload: 3, partitionKey: "one" },
    { payload: 4, partitionKey: "one" },
  ]);
  await eventually(async () => expect(await isWorked()).toBe(false));
  const handled: number[] = [];
  const worker = await mill.startWorker({
    ...BRISK,
    handlers: [asWork.handle(({ payload }) => void handled.push(payload))],
  });
  await Promise.all(tasks.map((task) => task.result()));
  await worker.stop();
  // The caller may have begun one before it heard of the change; no task is run by both.
  const called = target.received.map(({ body }) => Number(body)).filter((number) => number > 1);
  expect([...called, ...handled].sort((a, b) => a - b)).toEqual([2, 3, 4]);
  for (const { id } of tasks) {
    expect(await mill.tasks.get(id)).toMatchObject({ attempt: 1 });
    expect(await mill.tasks.failures(id)).toEqual([]);
  }

  await mill.queues.define(asCalls);
  await (await mill.enqueue("moved", 5)).result();
  expect(target.received.map(({ body }) => Number(body))).toEqual([1, ...called, 5]);
});

it("packs the calls of a bulk that has one target, and makes each of them once", async () => {
  const scene = await newJobScene();
  const target = await receiver();
  const http = { targetUrl: target.url() };
  const tasks = Array.from({ length: 300 }, (_, payload) => ({ payload, http }));
  const handles = await scene.mill.enqueueMany(calls, tasks);
  const { rows } = await scene.database.pool.query<{ count: number }>(
    "SELECT count(*)::int AS count FROM tidemill.task_packs",
  );
  expect(rows[0]?.count).toBeGreaterThan(0);
  await startCaller(scene, [target.port]);
  await Promise.all(handles.map((handle) => handle.result()));
  const bodies = target.received.map(({ body }) => Number(body)).sort((a, b) => a - b);
  expect(bodies).toEqual(Array.from({ length: 300 }, (_, n) => n));
});
