import { beforeAll, describe, expect, it } from "vitest";
import { UnavailableError } from "../../../src/base/errors.ts";
import { ManualClock } from "../../support/manual-clock.ts";
import { type CallOptions, openScene, type Reply, type Scene } from "./http-scene.ts";

let scene: Scene;

beforeAll(async () => {
  scene = await openScene();
  await scene.mill.queues.ensure("mails");
});

const post = (options: CallOptions, path = "/v1/tasks"): Promise<Reply> =>
  scene.call("POST", path, options);

describe("a body", () => {
  const deep = (depth: number): string => `${"[".repeat(depth)}${"]".repeat(depth)}`;

  it.each<[what: string, text: string, status: number, says: RegExp]>([
    ["nothing", "", 400, /no body/],
    ["no JSON", "queue=mails", 400, /not JSON/],
    ["half of it", '{"queue":"mails"', 400, /not JSON/],
    ["a text", '"mails"', 400, /body: Invalid input/],
    ["a list", "[]", 400, /body: Invalid input/],
    ["null", "null", 400, /body: Invalid input/],
    ["no queue", "{}", 400, /body.queue: Invalid input/],
    ["a queue of nothing", '{"queue":""}', 400, /body.queue/],
    ["a queue that is no text", '{"queue":{"$ne":1}}', 400, /body.queue/],
    ["a zero byte in a queue", '{"queue":"a\\u0000"}', 400, /cannot be stored/],
    ["a zero byte in a name", '{"queue":"mails","kind":"a\\u0000"}', 400, /kind must not hold/],
    ["half a character", '{"queue":"mails","kind":"\\ud800"}', 400, /kind must not hold half/],
    ["an unknown member", '{"queue":"mails","paylaod":1}', 400, /Unrecognized key: "paylaod"/],
    ["somebody else's tenant", '{"queue":"mails","tenant":"globex"}', 400, /key: "tenant"/],
    ["__proto__", '{"queue":"mails","__proto__":{}}', 400, /"__proto__", which is refused/],
    ["__proto__ inside", '{"queue":"mails","payload":{"__proto__":1}}', 400, /is refused/],
    ["constructor", '{"queue":"mails","constructor":{}}', 400, /key: "constructor"/],
    ["too deep", `{"queue":"mails","payload":${deep(64)}}`, 400, /nested deeper than 64/],
    ["both payloads", '{"queue":"mails","payload":1,"payloadBase64":""}', 400, /not both/],
    ["no base64", '{"queue":"mails","payloadBase64":"%%"}', 400, /is not base64/],
    ["base64 cut short", '{"queue":"mails","payloadBase64":"YQ"}', 400, /is not base64/],
    ["a type of JSON", '{"queue":"mails","contentType":"a/b"}', 400, /contentType is for/],
    ["priority 10", '{"queue":"mails","priority":10}', 400, /body.priority/],
    ["priority 1.5", '{"queue":"mails","priority":1.5}', 400, /body.priority/],
    ["a delay of less than nothing", '{"queue":"mails","delaySeconds":-1}', 400, /delaySeconds/],
    ["a delay of for ever", '{"queue":"mails","delaySeconds":1e300}', 400, /delaySeconds/],
    ["a date that is none", '{"queue":"mails","runAt":"tomorrow"}', 400, /body.runAt/],
    ["two times", '{"queue":"mails","runAt":"2030-01-01T00:00:00Z","delaySeconds":1}', 400, /both/],
    ["no attempt", '{"queue":"mails","maxAttempts":0}', 400, /maxAttempts/],
    ["attempts beyond all", '{"queue":"mails","maxAttempts":1e15}', 400, /maxAttempts/],
    ["a webhook elsewhere", '{"queue":"mails","webhook":"file:///x"}', 400, /webhook must be/],
    ["a backoff of another kind", '{"queue":"mails","backoff":{"kind":"x"}}', 400, /backoff/],
    ["a backoff with more", '{"queue":"mails","backoff":{"x":1}}', 400, /Unrecognized key/],
    ["a large payload", `{"queue":"mails","payload":"${"x".repeat(1_048_577)}"}`, 400, /bytes/],
    ["a separator", '{"queue":"mails","partitionKey":"a\\u001eb"}', 400, /partitionKey must not/],
  ])("with %s is refused", async (_, text, status, says) => {
    const reply = await post({ text });
    expect(reply.status, reply.text).toBe(status);
    expect(reply.headers.get("content-type")).toBe("application/problem+json");
    expect(reply.body["detail"]).toMatch(says);
    expect(reply.body["code"]).toMatch(/^TM_(INVALID_INPUT|CONFIG)$/);
  });

  it("of more bytes than allowed is refused, declared or not", async () => {
    const { call } = scene.another({ bodyBytesMax: 100 });
    const text = JSON.stringify({ queue: "mails", payload: "x".repeat(100) });
    const declared = await call("POST", "/v1/tasks", {
      text,
      headers: { "content-length": String(text.length) },
    });
    expect([declared.status, declared.body["code"]]).toEqual([413, "TM_TOO_LARGE"]);
    expect((await call("POST", "/v1/tasks", { text })).status).toBe(413);
  });

  it("with more members than allowed is refused", async () => {
    const { call } = scene.another({ jsonKeysMax: 3 });
    const many = { queue: "mails", payload: { a: 1, b: 2 } };
    expect((await call("POST", "/v1/tasks", { json: many })).body["detail"]).toMatch(/3 members/);
  });

  it("that is not JSON by its own word is refused", async () => {
    const headers = { "content-type": "text/plain" };
    const reply = await post({ text: '{"queue":"mails"}', headers });
    expect([reply.status, reply.body["code"]]).toEqual([415, "TM_UNSUPPORTED_MEDIA_TYPE"]);
    const fine = { "content-type": "application/vnd.tidemill+json; charset=utf-8" };
    expect((await post({ text: '{"queue":"mails"}', headers: fine })).status).toBe(201);
  });

  it("that is not UTF-8 is refused", async () => {
    const request = new Request("http://tidemill.test/v1/tasks", {
      method: "POST",
      headers: {
        authorization: (await import("./http-scene.ts")).bearer("producer"),
        "content-type": "application/json",
      },
      body: Buffer.from([0x22, 0xff, 0x22]),
    });
    const response = await scene.api.fetch(request);
    expect(response.status).toBe(400);
    expect(await response.json()).toMatchObject({ detail: "the body is not UTF-8" });
  });
});

describe("a query or a path", () => {
  it.each([
    ["/v1/tasks?limit=0", /query.limit: must be from 1 to 1000/],
    ["/v1/tasks?limit=1e3", /query.limit: must be a whole number/],
    ["/v1/tasks?limit=", /query.limit/],
    ["/v1/tasks?state=lost", /query.state/],
    ["/v1/tasks?cursor=abc", /query.cursor: a task id is a number/],
    ["/v1/tasks?unknown=1", /Unrecognized key/],
    ["/v1/tasks?__proto__=1", /Unrecognized key/],
    ["/v1/tasks?limit=1&limit=2", /limit is given twice/],
    ["/v1/tasks/0", /path.id: a task id is a number/],
    ["/v1/tasks/1'--", /path.id/],
    ["/v1/tasks/99999999999999999999", /path.id/],
    ["/v1/tasks/1/result?waitSeconds=61", /waitSeconds: must be from 0 to 60/],
    ["/v1/tasks/%ff", /path.id/],
  ])("%s is refused", async (path, says) => {
    const reply = await scene.call("GET", path);
    expect(reply.status, reply.text).toBe(400);
    expect(reply.body["detail"]).toMatch(says);
  });

  it("that leads nowhere says so", async () => {
    const reply = await scene.call("GET", "/v2/anything");
    expect(reply.status).toBe(404);
    expect(reply.body).toMatchObject({ code: "TM_NOT_FOUND", type: "/docs#tm_not_found" });
    const method = await scene.call("PATCH", "/v1/tasks");
    expect(method.status).toBe(405);
    expect(method.headers.get("allow")).toBe("POST, GET");
    expect(method.body["code"]).toBe("TM_METHOD_NOT_ALLOWED");
  });
});

describe("a caller", () => {
  it("without a good token learns nothing else", async () => {
    for (const authorization of ["", "Bearer", "Bearer nonsense", "Basic YTpi", "bearer a b"]) {
      const reply = await scene.call("GET", "/v1/tasks/999999", { headers: { authorization } });
      expect(reply.status).toBe(401);
      expect(reply.headers.get("www-authenticate")).toBe('Bearer realm="tidemill"');
      expect(reply.body["code"]).toBe("TM_UNAUTHENTICATED");
    }
    expect(scene.log.lines).toContainEqual(
      expect.objectContaining({ level: "info", message: "a caller was refused" }),
    );
  });

  it("whose token cannot be checked now is told to come back", async () => {
    const authenticator = {
      authenticate: () => Promise.reject(new UnavailableError("no route to 10.0.0.7")),
    };
    const { call } = scene.another({}, { authenticator });
    const reply = await call("GET", "/v1/tasks");
    expect(reply.status).toBe(503);
    expect(reply.headers.get("retry-after")).toBe("1");
  });

  it.each([
    ["reader", "POST", "/v1/tasks", '"producer"'],
    ["worker", "POST", "/v1/tasks/1/cancel", '"producer"'],
    ["reader", "POST", "/v1/dead-letters/redrive", '"producer"'],
    ["reader", "DELETE", "/v1/schedules/nightly", '"producer"'],
    ["producer", "POST", "/v1/queues/mails/pause", '"admin"'],
    ["producer", "PUT", "/v1/queues/mails/limits", '"admin"'],
    ["producer", "GET", "/v1/events", '"admin"'],
    ["producer", "POST", "/v1/streams/Order/1/events", '"admin"'],
    ["reader", "GET", "/v1/consumers", '"admin"'],
    ["reader", "GET", "/v1/workers", '"admin"'],
    ["reader", "GET", "/v1/ring", '"admin"'],
    ["reader", "GET", "/v1/gaps", '"admin"'],
    ["worker", "GET", "/v1/schedules", '"producer"'],
    ["producer", "GET", "/v1/codeq/admin/queues", '"admin"'],
  ] as const)("as %s may not %s %s", async (as, method, path, missing) => {
    const reply = await scene.call(method, path, { as, ...(method === "GET" ? {} : { json: {} }) });
    expect(reply.status).toBe(403);
    expect(reply.text).toContain(JSON.stringify(`lacks scope ${missing}`).slice(1, -1));
  });

  it("that is for some queues sees and touches those only", async () => {
    const { mill, call } = scene;
    await mill.queues.ensure("orders");
    const [mail, order] = await Promise.all(
      ["mails", "orders"].map((name) => mill.enqueue(name, 1, { tenant: "acme" })),
    );
    const as = "mailer";
    expect((await call("GET", `/v1/tasks/${mail?.id}`, { as })).status).toBe(200);
    for (const path of ["", "/why", "/failures", "/result", "/result?waitSeconds=1"]) {
      expect((await call("GET", `/v1/tasks/${order?.id}${path}`, { as })).status).toBe(404);
    }
    for (const act of ["cancel", "retry"]) {
      expect((await call("POST", `/v1/tasks/${order?.id}/${act}`, { as })).status).toBe(404);
    }
    const { body } = await call("GET", "/v1/tasks?limit=1000", { as });
    expect(new Set(body.tasks.map((one) => one.queue))).toEqual(new Set(["mails"]));
    const named = await call("GET", "/v1/tasks?queue=orders", { as });
    expect(named.status).toBe(403);
    expect((await call("POST", "/v1/tasks", { as, json: { queue: "orders" } })).status).toBe(403);
    const queues = await call("GET", "/v1/queues", { as });
    expect(queues.body.queues.map((one) => one.name)).toEqual(["mails"]);
    expect((await call("GET", "/v1/queues/orders", { as })).status).toBe(404);
    expect((await call("GET", `/v1/tasks/${order?.id}`, { as: "producer" })).status).toBe(200);
    const schedule = { cron: "@daily", queue: "orders" };
    await call("PUT", "/v1/schedules/hers", { json: schedule });
    expect((await call("GET", "/v1/schedules/hers", { as })).status).toBe(404);
    expect((await call("GET", "/v1/schedules", { as })).body["schedules"]).toEqual([]);
    const taking = { as, json: { cron: "@daily", queue: "mails" } } as const;
    expect((await call("PUT", "/v1/schedules/hers", taking)).status).toBe(409);
    expect((await call("DELETE", "/v1/schedules/hers", { as })).status).toBe(404);
    expect((await call("GET", "/v1/schedules/hers")).body["queue"]).toBe("orders");
  });

  it("that calls too often is told when to come back", async () => {
    const clock = new ManualClock();
    const { call, api } = scene.another({ callsPerSecond: 0.5, callsBurst: 2 }, { clock });
    const statuses = async (as: "producer" | "reader" | "other"): Promise<number> =>
      (await call("GET", "/v1/tasks/999999", { as })).status;
    expect([await statuses("producer"), await statuses("reader")]).toEqual([404, 404]);
    const refused = await call("GET", "/v1/tasks/999999");
    expect(refused.status).toBe(429);
    expect(refused.headers.get("retry-after")).toBe("2");
    expect(refused.body["code"]).toBe("TM_LIMIT");
    expect(await statuses("other")).toBe(404);
    clock.advance(2_000);
    expect(await statuses("producer")).toBe(404);
    expect(api.metrics.limited.value()).toBe(1);
  });
});

describe("an answer", () => {
  it("has an id that the caller gave, or a new one, and headers that protect", async () => {
    const own = await scene.call("GET", "/v1/tasks/999999", {
      headers: { "x-request-id": "abc-1" },
    });
    expect(own.headers.get("x-request-id")).toBe("abc-1");
    expect(own.body["requestId"]).toBe("abc-1");
    const bad = await scene.call("GET", "/v1/tasks/999999", {
      headers: { "x-request-id": "a b\tc" },
    });
    expect(bad.headers.get("x-request-id")).toMatch(/^[0-9a-f-]{36}$/);
    for (const path of ["/v1/tasks/999999", "/healthz", "/docs", "/nowhere"]) {
      const { headers } = await scene.call("GET", path);
      expect(headers.get("x-content-type-options")).toBe("nosniff");
      expect(headers.get("x-frame-options")).toBe("DENY");
      expect(headers.get("content-security-policy")).toContain("default-src 'none'");
      expect(headers.get("access-control-allow-origin")).toBeNull();
    }
  });

  it("tells nothing of the database, and the log does", async () => {
    const { database, log } = scene;
    await database.pool.query("ALTER TABLE tidemill.tasks RENAME COLUMN payload TO hidden");
    try {
      const reply = await scene.call("GET", "/v1/tasks/999999");
      expect(reply.status).toBe(503);
      expect(reply.body["code"]).toBe("TM_SCHEMA");
      expect(reply.text).not.toMatch(/payload|column|tidemill\./);
      const requestId = reply.headers.get("x-request-id");
      expect(
        log.lines.find(({ fields }) => Reflect.get(fields, "requestId") === requestId),
      ).toMatchObject({ fields: { error: expect.stringContaining('"payload"') } });
    } finally {
      await database.pool.query("ALTER TABLE tidemill.tasks RENAME COLUMN hidden TO payload");
    }
    await database.pool.query(
      `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
       $$ BEGIN RAISE EXCEPTION 'secret words of a trigger'; END $$;
       CREATE TRIGGER refuse BEFORE INSERT ON tidemill.task_tally EXECUTE FUNCTION refuse()`,
    );
    try {
      const reply = await post({ json: { queue: "mails" } });
      expect([reply.status, reply.body["code"]]).toEqual([500, "TM_INTERNAL"]);
      expect(reply.text).not.toContain("secret words");
      expect(reply.body).not.toHaveProperty("detail");
      expect(log.lines).toContainEqual(
        expect.objectContaining({
          level: "error",
          fields: expect.objectContaining({ error: expect.stringContaining("secret words") }),
        }),
      );
    } finally {
      await database.pool.query("DROP TRIGGER refuse ON tidemill.task_tally");
    }
  });
});
