import { beforeAll, describe, expect, it } from "vitest";
import { consumer, failed, queue } from "../../../src/index.ts";
import { eventually } from "../../support/eventually.ts";
import { BRISK, gate } from "../tasks/scene.ts";
import { type CallOptions, openScene, type Reply, type Scene } from "./http-scene.ts";

const hold = gate();
let isPoisonous = true;
let scene: Scene;

beforeAll(async () => {
  scene = await openScene();
  const { mill } = scene;
  await mill.queues.ensure("mails");
  await mill.startWorker({
    ...BRISK,
    pollInterval: 20,
    maxPollInterval: 50,
    maxConsecutiveFailures: 1,
    consumers: [
      consumer("audit_v1", { handle: () => {} }),
      consumer("slow_v1", { handle: () => hold.opened }),
      consumer("picky_v1", {
        handle: ({ type }) => {
          if (type === "Poison" && isPoisonous) throw new Error("cannot digest this");
        },
      }),
    ],
    handlers: [queue("doomed", { maxAttempts: 1 }).handle(() => failed("no"))],
  });
});

const asAdmin = (method: string, path: string, options: CallOptions = {}): Promise<Reply> =>
  scene.call(method, path, { as: "admin", ...options });

describe("queues", () => {
  it("are made, shown, paused, resumed and limited", async () => {
    expect((await asAdmin("PUT", "/v1/queues/new%20ones")).status).toBe(201);
    expect((await asAdmin("PUT", "/v1/queues/new%20ones")).status).toBe(200);
    const paused = await asAdmin("POST", "/v1/queues/new%20ones/pause", {
      json: { reason: "a fire" },
    });
    expect(paused.body).toMatchObject({ name: "new ones", isPaused: true, pauseReason: "a fire" });
    const resumed = await asAdmin("POST", "/v1/queues/new%20ones/resume");
    expect(resumed.body).toMatchObject({ isPaused: false, depths: {}, running: 0, dead: 0 });
    const limited = await asAdmin("PUT", "/v1/queues/new%20ones/limits", {
      json: { concurrency: 3, rate: { count: 10, seconds: 2 } },
    });
    const rate = { count: 10, seconds: 2 };
    expect(limited.body["limits"]).toEqual({ concurrency: 3, rate, keyRate: null });
    const lifted = await asAdmin("PUT", "/v1/queues/new%20ones/limits", { json: { rate: null } });
    expect(lifted.body["limits"]).toMatchObject({ concurrency: 3, rate: null });
    const reset = await asAdmin("DELETE", "/v1/queues/new%20ones/limits");
    expect(reset.body["limits"]).toMatchObject({ concurrency: null });
    expect((await asAdmin("POST", "/v1/queues/nobody/pause")).status).toBe(404);
    expect((await asAdmin("PUT", "/v1/queues/%00")).status).toBe(400);
  });

  it("do not show a tenant how much others have in them", async () => {
    const { body } = await scene.call("GET", "/v1/queues/mails");
    expect(Object.keys(body).sort()).toEqual(["isPaused", "limits", "name"]);
    const all = await scene.call("GET", "/v1/queues");
    for (const one of all.body.queues) expect(one).not.toHaveProperty("depths");
  });
});

describe("dead letters", () => {
  it("are listed, edited, redriven and purged", async () => {
    const made = await scene.call("POST", "/v1/tasks/batch", {
      json: { queue: "doomed", tasks: [{ payload: 1 }, { payload: 2 }, { payload: 3 }] },
    });
    const [first = "", second, third] = made.body.ids;
    const listed = async (query = ""): Promise<string[]> => {
      const { body } = await scene.call("GET", `/v1/dead-letters?queue=doomed${query}`);
      return body.deadLetters.map(({ id }) => id);
    };
    await eventually(async () => expect(await listed()).toEqual([third, second, first]));
    expect(await listed(`&limit=1&cursor=${third}`)).toEqual([second]);
    await asAdmin("POST", "/v1/queues/doomed/pause");
    const text = '{"payload": {"n": 1.00}}';
    expect((await scene.call("PUT", `/v1/dead-letters/${first}/payload`, { text })).status).toBe(
      200,
    );
    expect((await scene.call("GET", `/v1/tasks/${first}`)).text).toContain('"payload":{"n": 1.00}');
    const bytes = { payloadBase64: "/wA=", contentType: "a/b" };
    await scene.call("PUT", `/v1/dead-letters/${second}/payload`, { json: bytes });
    expect((await scene.call("GET", `/v1/tasks/${second}`)).body).toMatchObject(bytes);
    const nothing = await scene.call("PUT", `/v1/dead-letters/${first}/payload`, { json: {} });
    expect(nothing.status).toBe(400);
    expect((await scene.call("PUT", "/v1/dead-letters/1/payload", { text })).status).toBe(404);

    const redrive = await scene.call("POST", "/v1/dead-letters/redrive", {
      json: { ids: [first] },
    });
    expect(redrive.body).toEqual({ redriven: 1, hasMore: false });
    expect((await scene.call("GET", `/v1/tasks/${first}`)).body["state"]).toBe("pending");
    expect((await scene.call("POST", "/v1/dead-letters/purge", { json: {} })).status).toBe(400);
    const one = await scene.call("POST", "/v1/dead-letters/purge", {
      json: { all: true, limit: 1 },
    });
    expect(one.body).toEqual({ purged: 1, hasMore: true });
    const rest = await scene.call("POST", "/v1/dead-letters/purge", {
      json: { queue: "doomed", cause: "attempts_exhausted" },
    });
    expect(rest.body).toEqual({ purged: 1, hasMore: false });
    expect(await listed()).toEqual([]);
  });
});

describe("schedules", () => {
  it("are put, listed, paused, resumed, run and removed", async () => {
    const json = {
      cron: "0 3 * * *",
      timeZone: "Europe/Berlin",
      queue: "mails",
      payload: { a: 1 },
    };
    const put = await scene.call("PUT", "/v1/schedules/nightly", { json });
    expect(put.status, put.text).toBe(200);
    expect(put.body).toMatchObject({ name: "nightly", tenant: "acme", catchUp: "once", ...json });
    expect((await scene.call("GET", "/v1/schedules/nightly")).body).toEqual(put.body);
    await scene.call("PUT", "/v1/schedules/a%2Fb", { json: { ...json, catchUp: "all" } });
    const page = await scene.call("GET", "/v1/schedules?limit=1", { as: "reader" });
    expect(page.body).toMatchObject({ schedules: [{ name: "a/b" }], cursor: "a/b" });
    const next = await scene.call("GET", "/v1/schedules?limit=10&cursor=a%2Fb", { as: "reader" });
    expect(next.body).toEqual({ schedules: [put.body] });
    const paused = await scene.call("POST", "/v1/schedules/nightly/pause");
    expect(paused.body["pausedAt"]).toMatch(/^2/);
    const run = await scene.call("POST", "/v1/schedules/nightly/run");
    expect(run.status).toBe(201);
    expect((await scene.call("GET", `/v1/tasks/${run.body.id}`)).body).toMatchObject({
      queue: "mails",
      tenant: "acme",
      payload: { a: 1 },
    });
    const firings = await scene.call("GET", "/v1/schedules/nightly/firings");
    expect(firings.body["firings"]).toMatchObject([{ kind: "run-now", taskId: run.body.id }]);
    const resumed = await scene.call("POST", "/v1/schedules/nightly/resume", {
      json: { catchUp: true },
    });
    expect(resumed.body).not.toHaveProperty("pausedAt");
    expect((await scene.call("DELETE", "/v1/schedules/nightly")).status).toBe(204);
    expect((await scene.call("GET", "/v1/schedules/nightly")).status).toBe(404);
  });

  it.each([
    [{ cron: "every day", queue: "mails" }, /every day/],
    [{ cron: "@daily", queue: "nobody" }, /there is no queue/],
    [{ cron: "@daily", queue: "mails", timeZone: "Mars/Base" }, /Mars\/Base/],
    [{ cron: "@daily", queue: "mails", tenant: "globex" }, /tenant/],
    [{ queue: "mails" }, /body.cron/],
  ])("that cannot fire are refused: %j", async (json, says) => {
    const reply = await scene.call("PUT", "/v1/schedules/bad", { json });
    expect(reply.status, reply.text).toBe(400);
    expect(reply.body["detail"]).toMatch(says);
  });
});

describe("events", () => {
  it("are appended and read, with data and bytes as they were", async () => {
    const path = "/v1/streams/Order/9182/events";
    const text = `{"events":[{"type":"Placed","data":{"total": 12345678901234567890}},
      {"type":"Scanned","dataBase64":"/wA=","metadata":{"by":"ada"}}],
      "expectedVersion":"no-stream"}`;
    const made = await asAdmin("POST", path, { text });
    expect(made.status, made.text).toBe(201);
    expect(made.body).toMatchObject({ fromVersion: "0", toVersion: "2" });
    expect(made.body.token).toBe(made.body.positions.at(-1));
    const read = await asAdmin("GET", path);
    expect(read.text).toContain('"data":{"total": 12345678901234567890}');
    expect(read.body["events"]).toMatchObject([
      { type: "Placed", streamVersion: "1", stream: { type: "Order", id: "9182" } },
      { type: "Scanned", dataBase64: "/wA=", metadata: { by: "ada" } },
    ]);
    const part = await asAdmin("GET", `${path}?fromVersion=2&toVersion=5&limit=1`);
    expect(part.body["events"]).toMatchObject([{ type: "Scanned" }]);
    const conflict = await asAdmin("POST", path, {
      json: { events: [{ type: "Paid" }], expectedVersion: 1 },
    });
    expect([conflict.status, conflict.body["code"]]).toEqual([409, "TM_WRONG_EXPECTED_VERSION"]);
    const after = made.body.positions[0];
    const all = await asAdmin("GET", `/v1/events?after=${after}&limit=1`);
    expect(all.body["events"]).toMatchObject([{ type: "Scanned" }]);
    const bad = { events: [{ type: "Paid", id: "no uuid" }] };
    expect((await asAdmin("POST", path, { json: bad })).body["detail"]).toMatch(/event 0: id must/);
  });

  it("are waited for by a read that names a consumer", async () => {
    const made = await asAdmin("POST", "/v1/streams/Order/1/events", {
      json: { events: [{ type: "Placed" }] },
    });
    const { token } = made.body;
    const waitFor = (value: string, api = scene): Promise<Reply> =>
      api.call("GET", "/v1/events?limit=1", { as: "admin", headers: { "x-wait-for": value } });
    expect((await waitFor(`audit_v1@${token}`)).status).toBe(200);
    const { checkpoint } = await scene.mill.consumers.progress("audit_v1");
    expect(checkpoint).toBeGreaterThanOrEqual(BigInt(token));
    const late = await waitFor(`slow_v1@${token}`, scene.another({ waitForSecondsMax: 1 }));
    expect([late.status, late.body["code"]]).toEqual([503, "TM_TIMEOUT"]);
    const waiting = waitFor(`slow_v1@${token}`);
    hold.open();
    expect((await waiting).status).toBe(200);
    expect((await waitFor("audit_v1")).status).toBe(400);
    expect((await waitFor("audit_v1@x")).status).toBe(400);
    expect((await waitFor("%ff@1")).status).toBe(400);
    expect((await waitFor("nobody@1")).status).toBe(404);
    const tenant = await scene.call("GET", "/v1/tasks", {
      headers: { "x-wait-for": "audit_v1@1" },
    });
    expect(tenant.status).toBe(403);
  });
});

describe("consumers", () => {
  it("are shown, paused, resumed and rewound", async () => {
    const { body } = await asAdmin("GET", "/v1/consumers");
    const names = body.consumers.map(({ name }) => name);
    expect(names).toEqual(expect.arrayContaining(["audit_v1", "picky_v1", "slow_v1"]));
    const paused = await asAdmin("POST", "/v1/consumers/audit_v1/pause", {
      json: { reason: "look" },
    });
    expect(paused.body.consumers).toMatchObject([{ state: "paused", reason: "look" }]);
    const rewound = await asAdmin("POST", "/v1/consumers/audit_v1/rewind", { json: { to: "0" } });
    expect(rewound.body.consumers).toMatchObject([{ checkpoint: "0" }]);
    const resumed = await asAdmin("POST", "/v1/consumers/audit_v1/resume", {
      json: { reason: "looked" },
    });
    expect(resumed.body).toEqual({ resumed: 1, replaying: 0 });
    const { body: audit } = await asAdmin("GET", "/v1/audit?limit=1");
    expect(audit.acts).toMatchObject([
      { call: "POST /v1/consumers/:name/resume", reason: "looked" },
    ]);
    const back = await asAdmin("POST", "/v1/consumers/audit_v1/rewind", {
      json: { to: "999999" },
    });
    expect(back.status).toBe(400);
    expect((await asAdmin("GET", "/v1/consumers/nobody")).status).toBe(404);
    expect((await asAdmin("POST", "/v1/consumers/nobody/pause")).status).toBe(404);
  });

  it("that are quarantined show why, and try again or skip", async () => {
    const path = "/v1/consumers/picky_v1";
    const notYet = await asAdmin("POST", `${path}/quarantine/retry`);
    expect(notYet.status).toBe(409);
    const poison = { json: { events: [{ type: "Poison" }, { type: "Poison" }] } };
    const made = await asAdmin("POST", "/v1/streams/Meal/1/events", poison);
    const quarantined = (): Promise<unknown> =>
      eventually(async () => {
        const { body } = await asAdmin("GET", path);
        expect(body.consumers).toMatchObject([
          { state: "quarantined", poison: { error: "cannot digest this", failures: 1 } },
        ]);
      });
    await quarantined();
    const skipped = await asAdmin("POST", `${path}/skip`, { json: { reason: "eaten" } });
    expect(skipped.body).toEqual({ position: made.body.positions[0] });
    await quarantined();
    isPoisonous = false;
    const retried = await asAdmin("POST", `${path}/quarantine/retry`);
    expect(retried.body).toEqual({ resumed: 1, replaying: 0 });
    await scene.mill.waitFor("picky_v1", { position: BigInt(made.body.token) });
  });
});

describe("the cluster", () => {
  it("shows its workers, ring and gaps", async () => {
    const workers = await asAdmin("GET", "/v1/workers");
    expect(workers.body["workers"]).toMatchObject([{ status: "active", isLeader: true }]);
    expect(workers.body["leader"]).toHaveProperty("term");
    const ring = await asAdmin("GET", "/v1/ring");
    expect(ring.body["rings"]).toContainEqual(expect.objectContaining({ keySpace: "doomed" }));
    const gaps = await asAdmin("GET", "/v1/gaps");
    expect(gaps.body).toEqual({ positions: [], holders: [] });
  });
});
