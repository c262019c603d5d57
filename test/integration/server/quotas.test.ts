import { expect, it } from "vitest";
import { queue } from "../../../src/index.ts";
import { TidemillServer } from "../../../src/server/index.ts";
import { onCleanup } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { tidemillStream } from "../../support/stream-client.ts";
import { ACME, acks, create, GLOBEX, hello, refusals, type Scene, scene } from "./scene.ts";

const STATIC = [
  { token: ACME, tenant: "acme", scopes: ["producer"] },
  { token: GLOBEX, tenant: "globex", scopes: ["producer"] },
  { token: "token-of-the-operator-0123456789", tenant: "ops", scopes: ["admin"] },
] as const;
const OPERATOR = STATIC[2].token;

interface Reply {
  readonly status: number;
  readonly body: Record<string, unknown>;
  readonly headers: Headers;
}

/** Two servers over one database, so that what is counted is what both of them store. */
async function servers(): Promise<Scene & { another: TidemillServer }> {
  const options = { http: { port: 0 }, auth: { staticTokens: STATIC } };
  const first = await scene({ server: options });
  const another = new TidemillServer(first.mill, {
    host: "127.0.0.1",
    producer: { port: 0 },
    worker: false,
    metrics: false,
    deliverWebhooks: false,
    drainSeconds: 2,
    ...options,
  });
  await another.start();
  onCleanup(() => another.stop());
  return { ...first, another };
}

async function call(
  server: TidemillServer,
  [method, path]: readonly [method: string, path: string],
  json?: object,
  token: string = ACME,
): Promise<Reply> {
  const { host, port } = server.address("http");
  const answer = await fetch(`http://${host}:${port}${path}`, {
    method,
    headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
    ...(json === undefined ? {} : { body: JSON.stringify(json) }),
  });
  const text = await answer.text();
  const body = (text === "" ? {} : JSON.parse(text)) as Record<string, unknown>;
  return { status: answer.status, body, headers: answer.headers };
}

/** Until both servers know of it: they look every two seconds. */
async function setQuota(on: readonly TidemillServer[], quota: object): Promise<void> {
  const [first] = on;
  if (first === undefined) return;
  const put = await call(first, ["PUT", "/v1/tenants/acme/quota"], quota, OPERATOR);
  expect(put.status).toBe(200);
  for (const server of on) {
    await eventually(async () => {
      const batch = Array.from({ length: 20 }, () => ({ payload: 1 }));
      const reply = await call(server, ["POST", "/v1/tasks/batch"], {
        queue: "mails",
        tasks: batch,
      });
      expect(reply.status).toBe(429);
    });
  }
}

const mails = queue<number>("mails");

it("is never passed by two servers, and is free again when tasks end", async () => {
  const { server, another, database, mill } = await servers();
  const both = [server, another];
  await setQuota(both, { pendingTasks: 10 });
  await database.pool.query("DELETE FROM tidemill.tasks; DELETE FROM tidemill.task_packs");

  const post = (at: TidemillServer): Promise<Reply> =>
    call(at, ["POST", "/v1/tasks"], { queue: "mails", payload: 1 });
  const grpc = await Promise.all(
    both.map(async (at) => {
      const stream = tidemillStream(`127.0.0.1:${at.address("producer").port}`);
      onCleanup(() => Promise.resolve(stream.close()));
      return await hello(stream);
    }),
  );
  const stored = async (): Promise<number> => {
    const { rows } = await database.pool.query<{ n: number }>(
      "SELECT count(*)::int AS n FROM tidemill.live_tasks WHERE tenant = 'acme'",
    );
    return rows[0]?.n ?? 0;
  };
  let seq = 0n;
  // As fast as they can, by every way, until there is no more room: then there are exactly ten.
  await eventually(async () => {
    for (const stream of grpc) create(stream, (seq += 1n), [{}, {}]);
    await Promise.all(both.flatMap((at) => [post(at), post(at)]));
    expect(await stored()).toBeLessThanOrEqual(10);
    expect(await stored()).toBe(10);
  });
  for (let round = 0; round < 5; round += 1) {
    const replies = await Promise.all(both.map(post));
    for (const { status, body, headers } of replies) {
      expect({ status, code: body["code"] }).toEqual({ status: 429, code: "TM_QUOTA" });
      expect(Number(headers.get("retry-after"))).toBeGreaterThan(0);
    }
  }
  for (const stream of grpc) {
    await eventually(() => {
      const told = [...refusals(stream).values(), ...[...acks(stream).values()].flat()];
      expect(told).toContain("TM_QUOTA");
    });
  }
  expect(await stored()).toBe(10);

  const { body: use } = await call(server, ["GET", "/v1/quota"]);
  expect(use).toEqual({
    tenant: "acme",
    pendingTasks: 10,
    pendingBytes: null,
    rate: null,
    used: { tasks: 10, bytes: expect.any(Number) },
  });
  // Somebody else has no quota, and is not kept back.
  const other = await call(server, ["POST", "/v1/tasks"], { queue: "mails" }, GLOBEX);
  expect(other.status).toBe(201);

  await using _worker = await mill.startWorker({ handlers: [mails.handle(() => undefined)] });
  await eventually(async () => {
    expect(await stored()).toBe(0);
    expect((await post(another)).status).toBe(201);
  });
});

it("counts bytes and holds a rate, and is lifted again", async () => {
  const { server, another } = await servers();
  await setQuota([server, another], { pendingBytes: 15 });
  const post = (payload: unknown): Promise<Reply> =>
    call(server, ["POST", "/v1/tasks"], { queue: "mails", payload });
  await eventually(async () => {
    expect((await post("1234567890")).status).toBe(201);
  });
  const full = await post("1234567890");
  expect(full).toMatchObject({ status: 429, body: { code: "TM_QUOTA", title: "Too many calls" } });

  await call(server, ["DELETE", "/v1/tenants/acme/quota"], undefined, OPERATOR);
  await eventually(async () => {
    expect((await post("x".repeat(100))).status).toBe(201);
  });
  const changes = { rate: { count: 1, seconds: 3_600 } };
  await call(server, ["PUT", "/v1/tenants/acme/quota"], changes, OPERATOR);
  const slow = await eventually(async () => {
    const reply = await post(1);
    expect(reply.status).toBe(429);
    return reply;
  });
  expect(slow.body["detail"]).toMatch(/may create 1 tasks in 3600 s/);
  expect(Number(slow.headers.get("retry-after"))).toBeGreaterThan(1_000);
  const { body } = await call(server, ["GET", "/v1/tenants"], undefined, OPERATOR);
  expect(body["tenants"]).toEqual([
    { tenant: "acme", pendingTasks: null, pendingBytes: null, ...changes },
  ]);
  expect((await call(server, ["GET", "/v1/tenants"])).status).toBe(403);
  const ours = ["PUT", "/v1/tenants/acme/quota"] as const;
  expect((await call(server, ours, { rate: null })).status).toBe(403);
});

it("tells a stream when to come back, also when that is far away", async () => {
  const { server } = await servers();
  const stream = await hello(tidemillStream(`127.0.0.1:${server.address("producer").port}`));
  onCleanup(() => Promise.resolve(stream.close()));
  const rate = { count: 1, seconds: 86_400 };
  await call(server, ["PUT", "/v1/tenants/acme/quota"], { rate }, OPERATOR);
  let seq = 0n;
  // Once the server knows of the rate, one create of so many uses up a hundred days of it.
  await eventually(async () => {
    create(
      stream,
      (seq += 1n),
      Array.from({ length: 100 }, () => ({})),
    );
    await stream.until(Number(seq) + 1);
    expect(refusals(stream).get(seq)).toBe("TM_QUOTA");
  });
  const [refused] = stream.received.flatMap(({ message }) =>
    message?.$case === "refused" ? [message.value.failure] : [],
  );
  expect(refused?.retryAfterMs).toBe(86_400_000);
  create(stream, (seq += 1n));
  await stream.until(Number(seq) + 1);
  expect(refusals(stream).get(seq)).toBe("TM_QUOTA"); // It goes on.
});

it("a repetition under the same key finds its task though the quota came between", async () => {
  const { server, another } = await servers();
  const post = (): Promise<Reply> =>
    call(server, ["POST", "/v1/tasks"], { queue: "bills", payload: 1, idempotencyKey: "k" });
  const first = await post();
  await setQuota([server, another], { pendingTasks: 10 });
  const again = await eventually(async () => {
    const reply = await post();
    expect(reply.status).toBe(201);
    return reply;
  });
  expect(again.body["id"]).toBe(first.body["id"]);
});

it("a repetition at the quota finds its task, and what is new is refused", async () => {
  const { server, another, database } = await servers();
  await setQuota([server, another], { pendingTasks: 2 });
  await database.pool.query("DELETE FROM tidemill.tasks; DELETE FROM tidemill.task_packs");
  const post = (key: string, payload = 1): Promise<Reply> =>
    call(server, ["POST", "/v1/tasks"], { queue: "bills", payload, idempotencyKey: key });
  const stream = await hello(tidemillStream(`127.0.0.1:${server.address("producer").port}`));
  onCleanup(() => Promise.resolve(stream.close()));
  let seq = 0n;
  const send = async (...keys: string[]): Promise<string[]> => {
    create(
      stream,
      (seq += 1n),
      keys.map((idempotencyKey) => ({ idempotencyKey })),
    );
    return await eventually(() => {
      const refused = refusals(stream).get(seq);
      const told = acks(stream).get(seq) ?? (refused === undefined ? undefined : [refused]);
      expect(told).toBeDefined();
      return told ?? [];
    });
  };
  const first = await eventually(async () => {
    const reply = await post("http");
    expect(reply.status).toBe(201);
    return reply.body["id"];
  });
  const [second] = await eventually(async () => {
    const told = await send("grpc");
    expect(told).not.toEqual(["TM_QUOTA"]);
    return told;
  });
  await database.pool.query(
    `INSERT INTO tidemill.task_idempotency (tenant, key, hash, task_id, expires_at)
     SELECT tenant, 'expired', hash, task_id, NOW() - interval '1 s'
       FROM tidemill.task_idempotency WHERE key = 'grpc'`,
  );
  expect((await post("new")).status).toBe(429);
  const again = await post("http");
  expect([again.status, again.body["id"]]).toEqual([201, first]);
  expect((await post("http", 2)).status).toBe(429);
  expect(await send("grpc")).toEqual([second]);
  expect(await send("grpc", "new")).toEqual(["TM_QUOTA"]);
  expect(await send("expired")).toEqual(["TM_QUOTA"]);
});

it("holds for what a tenant runs again, and for its schedules that it runs by hand", async () => {
  const { server, another, database, mill } = await servers();
  await setQuota([server, another], { pendingTasks: 3 });
  await database.pool.query("DELETE FROM tidemill.tasks; DELETE FROM tidemill.task_packs");
  const post = (path: string, json: object = {}): Promise<Reply> =>
    call(server, ["POST", path], json);
  const ids: unknown[] = [];
  await eventually(async () => {
    const task = { queue: "mails", payload: ids.length, maxAttempts: 1 };
    const { body } = await post("/v1/tasks", task);
    if (body["id"] !== undefined) ids.push(body["id"]);
    expect(ids).toHaveLength(3);
  });
  const fail = mails.handle(() => Promise.reject(new Error("as told")));
  const worker = await mill.startWorker({ handlers: [fail] });
  await eventually(async () => expect(await mill.deadLetters.list()).toHaveLength(3));
  await worker.stop();

  const operate = (pendingTasks: number): Promise<Reply> =>
    call(server, ["PUT", "/v1/tenants/acme/quota"], { pendingTasks }, OPERATOR);
  await operate(2);
  const schedule = { cron: "0 0 1 1 *", queue: "mails", payload: 1 };
  const put = await call(server, ["PUT", "/v1/schedules/yearly"], schedule);
  expect(put.status, JSON.stringify(put.body)).toBeLessThan(300);
  await eventually(async () => {
    const whole = await post("/v1/dead-letters/redrive", { queue: "mails" });
    expect(whole).toMatchObject({ status: 429, body: { code: "TM_QUOTA" } });
  });
  expect(await mill.deadLetters.list()).toHaveLength(3);
  await eventually(async () => {
    const some = await post("/v1/dead-letters/redrive", { queue: "mails", limit: 2 });
    expect(some.status).toBe(200);
  });
  const [left] = await mill.deadLetters.list();
  for (const path of [`/v1/tasks/${left?.id}/retry`, "/v1/schedules/yearly/run"]) {
    const refused = await post(path);
    expect([path, refused.status, refused.body["code"]]).toEqual([path, 429, "TM_QUOTA"]);
  }
  expect(await mill.deadLetters.list()).toHaveLength(1);
  // One that waits is there already, and may be hurried.
  const [waiting] = await mill.tasks.list({ tenant: "acme", state: "pending" });
  expect((await post(`/v1/tasks/${waiting?.id}/retry`)).status).toBe(200);
  await operate(10);
  await eventually(async () => {
    expect((await post("/v1/schedules/yearly/run")).status).toBe(201);
  });
  expect((await post(`/v1/tasks/${left?.id}/retry`)).status).toBe(200);
  expect(await mill.deadLetters.list()).toEqual([]);
});
