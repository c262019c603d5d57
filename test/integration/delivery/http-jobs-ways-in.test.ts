import { expect, it } from "vitest";
import { RestClient } from "../../../src/client/index.ts";
import { httpQueue, type NewTask, queue } from "../../../src/index.ts";
import { testDatabase } from "../../support/database.ts";
import { MUST_REFUSE, resolveNames } from "../../support/egress-targets.ts";
import { eventually } from "../../support/eventually.ts";
import { cli, runCli } from "../cli/cli.ts";
import { ADMIN, PRODUCER, scene, startServer } from "../client/scene.ts";
import { range } from "../tasks/scene.ts";
import { calls, egressTo, newJobScene, startCaller, taskIn } from "./http-jobs-scene.ts";
import { receiver } from "./webhook-scene.ts";

/** Why the guard does not let a call out. */
const REFUSED =
  /allowHosts|allowCidrs|nothing can allow|must not|must be|is not called|is no address/;

it("reaches no address of the table, whoever names it", async () => {
  const job = await newJobScene();
  await job.mill.queues.define(calls);
  const server = await startServer(job.mill, {
    httpJobs: { egress: { allowHttp: true, resolve: resolveNames } },
    egress: { allowHttp: true, resolve: resolveNames },
  });
  const http = new RestClient({ url: server.http, token: PRODUCER });
  const stored: string[] = [];
  let refused = 0;
  for (const [targetUrl] of MUST_REFUSE) {
    const asked = http.tasks.create("calls", 1, { http: { targetUrl } });
    await asked.then(
      ({ id }) => stored.push(id),
      (error: unknown) => {
        expect(error, targetUrl).toMatchObject({ code: "TM_INVALID_INPUT" });
        refused += 1;
      },
    );
    // The library checks the text alone: the rest is found out when it is called.
    const own = job.mill.enqueue(calls, 1, { http: { targetUrl } });
    await own.then(
      ({ id }) => stored.push(id),
      (error: Error) => expect(error.message, targetUrl).toMatch(/http\.targetUrl/),
    );
  }
  expect(refused).toBeGreaterThan(150);
  expect(stored.length).toBeGreaterThan(100);
  for (const id of stored) {
    const task = await taskIn(job, id, "failed");
    expect(task.reason, task.targetUrl).toMatch(REFUSED);
    expect(task.attempt).toBe(1);
  }
});

it("takes calls by REST, by the command line, by SQL and from schedules", async () => {
  const target = await receiver();
  const { mill, database, http } = await scene({
    httpJobs: { egress: egressTo([target.port]) },
    egress: egressTo([target.port]),
  });
  const rest = async (token: string, method: string, path: string, body: object) => {
    const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
    const init = { method, headers, body: JSON.stringify(body) };
    const response = await fetch(`${http}${path}`, init);
    return { status: response.status, body: (await response.json()) as { id: string } };
  };
  // Defined by REST and by the command line, with the same words.
  const defined = await rest(ADMIN, "PUT", "/v1/queues/shop-calls", {
    http: { headers: { "x-queue": "yes" }, expectedStatus: 204 },
    maxAttempts: 2,
  });
  expect(defined).toMatchObject({ status: 201, body: { name: "shop-calls", kind: "http" } });
  const { url } = database;
  const fixed = ["queue", "define-http", "cli-calls", "--target-url", target.url("/fixed")];
  expect(await cli(url, ...fixed, "--header", "X-A: 1", "--header", "x-b: two words")).toBe(
    "Queue cli-calls is defined. Workers with httpJobs run it.\n",
  );
  const made = await rest(PRODUCER, "POST", "/v1/tasks", {
    queue: "shop-calls",
    payload: { n: 1 },
    http: { targetUrl: target.url("/rest"), method: "PUT" },
  });
  expect(made.status).toBe(201);
  const batch = await rest(PRODUCER, "POST", "/v1/tasks/batch", {
    queue: "shop-calls",
    tasks: [{ payload: 1, http: { targetUrl: target.url("/batch") } }],
  });
  expect(batch.status).toBe(201);
  await cli(url, "task", "enqueue", "cli-calls", "2", "--wait");
  await cli(url, "task", "enqueue", "cli-calls", "3", "--target-url", target.url("/cli"), "--wait");
  const options = JSON.stringify({ http: { targetUrl: target.url("/sql") } });
  await database.pool.query("SELECT tidemill.enqueue('shop-calls', '4', options => $1)", [options]);
  await mill.schedules.put("nightly", {
    cron: "0 3 * * *",
    queue: "shop-calls",
    http: { targetUrl: target.url("/schedule"), headers: { authorization: "Bearer canary-7" } },
  });
  await mill.schedules.runNow("nightly");
  await eventually(() => {
    const paths = target.received.map(({ path }) => path).sort();
    expect(paths).toEqual(["/batch", "/cli", "/fixed", "/rest", "/schedule", "/sql"]);
  });
  const byPath = new Map(target.received.map((call) => [call.path, call]));
  expect(byPath.get("/fixed")?.headers).toMatchObject({ "x-a": "1", "x-b": "two words" });
  expect(byPath.get("/rest")).toMatchObject({ body: '{"n":1}', headers: { "x-queue": "yes" } });
  const shown = await fetch(`${http}/v1/tasks/${made.body.id}`, {
    headers: { authorization: `Bearer ${PRODUCER}` },
  });
  const task = (await shown.json()) as object;
  expect(task).toMatchObject({ targetUrl: target.url("/rest") });
  expect(JSON.stringify(task)).not.toMatch(/x-queue/);
  // The headers of a schedule are sent, and nobody is shown more than their names.
  expect(byPath.get("/schedule")?.headers).toMatchObject({ authorization: "Bearer canary-7" });
  const views = [
    JSON.stringify(await mill.schedules.get("nightly")),
    JSON.stringify(await mill.schedules.list()),
    await cli(url, "schedule", "list", "--json"),
  ];
  const put = await rest(ADMIN, "PUT", "/v1/schedules/yearly", {
    cron: "0 3 1 1 *",
    queue: "shop-calls",
    http: { targetUrl: target.url("/"), headers: { authorization: "Bearer canary-7" } },
  });
  expect(put.status).toBe(200);
  views.push(JSON.stringify(put.body));
  for (const path of ["/v1/schedules", "/v1/schedules/yearly"]) {
    const answer = await fetch(`${http}${path}`, { headers: { authorization: `Bearer ${ADMIN}` } });
    expect(answer.status).toBe(200);
    views.push(await answer.text());
  }
  for (const view of views) expect(view).not.toContain("canary-7");
  for (const view of views) expect(view).toMatch(/"headers":\s*\[\s*"authorization"\s*\]/);
});

it("refuses what could never be called, and says what to do", async () => {
  const { mill, database, http } = await scene({ httpJobs: true });
  await mill.queues.define(httpQueue("calls"));
  await mill.queues.define(httpQueue("ours", { http: { targetUrl: "https://example.com/" } }));
  const post = async (task: object): Promise<[number, string]> => {
    const response = await fetch(`${http}/v1/tasks`, {
      method: "POST",
      headers: { authorization: `Bearer ${PRODUCER}`, "content-type": "application/json" },
      body: JSON.stringify({ payload: 1, ...task }),
    });
    return [response.status, await response.text()];
  };
  const table: readonly (readonly [object, RegExp])[] = [
    [{ queue: "calls" }, /names no target.*http\.targetUrl/],
    [{ queue: "mails", http: { targetUrl: "https://example.com/" } }, /not of kind http/],
    [{ queue: "calls", http: { targetUrl: "http://example.com/" } }, /cannot be called.*use https/],
    [{ queue: "calls", http: { targetUrl: "https://10.0.0.1/" } }, /cannot be called.*private/],
    [{ queue: "calls", http: { targetUrl: "https://u:p@example.com/" } }, /password/],
    [{ queue: "calls", http: { targetUrl: "https://e.com/", target: 1 } }, /target/],
    [{ queue: "ours", http: { headers: { Host: "evil" } } }, /host.*belongs to the connection/],
    [{ queue: "ours", http: { headers: { "Idempotency-Key": "x" } } }, /receivers rely on it/],
  ];
  for (const [task, why] of table) {
    const [status, text] = await post(task);
    expect([status, text], JSON.stringify(task)).toEqual([400, expect.stringMatching(why)]);
  }
  expect((await post({ queue: "ours" }))[0]).toBe(201);
  const wrong = await runCli(["queue", "define-http", "x", "--target-url", "ftp://example.com/"], {
    env: { DATABASE_URL: database.url },
  });
  expect(wrong).toMatchObject({ code: 2 });
  expect(wrong.stderr).toMatch(/queue "x": http\.targetUrl must be a whole URL/);
  const handler = queue("handled").handle(() => {});
  expect(() => mill.worker({ httpJobs: true, handlers: [handler] })).toThrow(/has no handlers/);
  const plain = { queues: [queue("plain")] };
  expect(() => mill.worker({ httpJobs: plain })).toThrow(/is not of kind http/);
});

it("checks again what SQL wrote, and runs no handler's queue", async () => {
  const job = await newJobScene();
  const target = await receiver();
  await startCaller(job, [target.port]);
  const enqueue = async (http: unknown): Promise<string> => {
    const { rows } = await job.database.pool.query<{ id: string }>(
      "SELECT tidemill.enqueue('calls', '1', options => $1)::text AS id",
      [JSON.stringify({ http })],
    );
    return rows[0]?.id ?? "";
  };
  const evil = { targetUrl: target.url(), headers: { "transfer-encoding": "chunked" } };
  for (const http of [evil, {}, "https://example.com/", { targetUrl: 12 }]) {
    const task = await taskIn(job, await enqueue(http), "failed");
    expect(task).toMatchObject({ attempt: 1, reason: expect.stringMatching(/http/) });
  }
  expect(target.received).toHaveLength(0);
});

it("is one worker of many: three share a queue and call each target once", async () => {
  const database = await testDatabase();
  const mill = await database.connect();
  const job = { database, mill };
  const target = await receiver();
  for (const _ of range(3)) await startCaller(job, [target.port], { concurrency: 8 });
  const tasks = range(200).map((payload): NewTask => {
    return { payload, http: { targetUrl: target.url(`/${payload}`) } };
  });
  const handles = await mill.enqueueMany(calls, tasks);
  await Promise.all(handles.map((handle) => handle.result()));
  expect(new Set(target.received.map(({ path }) => path)).size).toBe(200);
  expect(target.received).toHaveLength(200);
});
