import { createHmac } from "node:crypto";
import { beforeAll, describe, expect, it } from "vitest";
import { EgressGuard } from "../../../src/delivery/egress/guard.ts";
import { BearerAuthenticator } from "../../../src/server/auth/authenticator.ts";
import { StaticTokens } from "../../../src/server/auth/static-tokens.ts";
import { TidemillServer } from "../../../src/server/index.ts";
import { onCleanup } from "../../support/database.ts";
import { MUST_REFUSE } from "../../support/egress-targets.ts";
import { eventually } from "../../support/eventually.ts";
import { looked, read } from "../delivery/notice-scene.ts";
import { receiver } from "../delivery/webhook-scene.ts";
import { type CallOptions, openScene, type Reply, type Scene, sceneOf } from "./http-scene.ts";

const URL = "https://hooks.example.org/work";
const NOBODY = "0198c5b2-7d4c-7000-8000-000000000000";
const LIMITED = `limited-${"0123456789abcdef".repeat(3)}`;

let scene: Scene;
/** A worker of the same tenant that is for mails only. */
let limited: Scene;

beforeAll(async () => {
  scene = await openScene();
  const { mill } = scene;
  const guard = new EgressGuard({ allowHttp: true, ports: [80, 443, 8080] });
  const tenants = await mill.tenants({ requireWall: true, urlGuard: guard });
  scene = sceneOf({ ...scene, tenants }, {});
  const token = { token: LIMITED, tenant: "acme", scopes: ["worker:subscribe"], queues: ["mails"] };
  const only = new BearerAuthenticator([new StaticTokens([token as never])]);
  limited = scene.another({}, { authenticator: only });
});

const call = (method: string, path: string, options: CallOptions = {}): Promise<Reply> =>
  scene.call(method, `/v1${path}`, { as: "worker", ...options });
const asLimited = (method: string, path: string, options: CallOptions = {}): Promise<Reply> =>
  limited.call(method, `/v1${path}`, {
    ...options,
    headers: { authorization: `Bearer ${LIMITED}` },
  });

async function add(json: object, options: CallOptions = {}): Promise<{ id: string }> {
  const { status, body, text } = await call("POST", "/subscriptions", { json, ...options });
  expect(status, text).toBe(201);
  return body["subscription"] as { id: string };
}

describe("subscriptions", () => {
  it("are made, found, renewed and removed", async () => {
    const json = { url: URL, queues: ["mails"], mode: "group", group: "pool", ttlSeconds: 60 };
    const made = await call("POST", "/subscriptions", { json });
    expect(made.status, made.text).toBe(201);
    expect(made.body["secret"]).toMatch(/^whsec_/);
    const { id, expiresAt } = made.body["subscription"] as { id: string; expiresAt: string };
    const found = await call("GET", `/subscriptions/${id}`);
    expect(found.body).toMatchObject({
      ...json,
      id,
      tenant: "acme",
      format: "standard",
      minIntervalSeconds: 5,
      state: "active",
      failures: 0,
    });
    expect(found.text).not.toContain("whsec_");
    const listed = await call("GET", "/subscriptions", { as: "admin" });
    expect(listed.body["subscriptions"]).toContainEqual(found.body);
    const renewed = await call("POST", `/subscriptions/${id}/renew`, { json: { ttlSeconds: 120 } });
    expect(Date.parse(String(renewed.body["expiresAt"]))).toBeGreaterThan(Date.parse(expiresAt));
    expect((await call("POST", `/subscriptions/${id}/renew`)).body["ttlSeconds"]).toBe(120);
    expect((await call("DELETE", `/subscriptions/${id}`)).status).toBe(204);
    for (const method of ["GET", "DELETE"]) {
      expect((await call(method, `/subscriptions/${id}`)).status).toBe(404);
    }
  });

  it("of another tenant, or of queues that a token is not for, are not there", async () => {
    const all = await add({ url: URL });
    const mails = await add({ url: URL, queues: ["mails"] });
    const both = await add({ url: URL, queues: ["mails", "pictures"] });
    for (const { id } of [all, mails, both, { id: NOBODY }]) {
      const tries: [string, string][] = [
        ["GET", ""],
        ["POST", "/renew"],
        ["DELETE", ""],
      ];
      for (const [method, end] of tries) {
        const path = `/subscriptions/${id}${end}`;
        expect((await call(method, path, { as: "other" })).status, path).toBe(404);
        if (id !== mails.id) expect((await asLimited(method, path)).status, path).toBe(404);
      }
      const beat = `/codeq/workers/subscriptions/${id}/heartbeat`;
      const codeq = await call("POST", beat, { as: "other" });
      expect([codeq.status, codeq.body]).toEqual([404, { error: "not-found" }]);
    }
    const others = await call("GET", "/subscriptions", { as: "other" });
    expect(others.body["subscriptions"]).toEqual([]);
    const seen = await asLimited("GET", "/subscriptions");
    const ids = (seen.body["subscriptions"] as { id: string }[]).map(({ id }) => id);
    expect(ids).toContain(mails.id);
    expect(ids).not.toContain(all.id);
    expect(ids).not.toContain(both.id);
    expect((await asLimited("POST", `/subscriptions/${mails.id}/renew`)).status).toBe(200);
  });

  it("are for the queues of the token when none is named", async () => {
    const own = await asLimited("POST", "/subscriptions", { json: { url: URL } });
    expect(own.body["subscription"]).toMatchObject({ queues: ["mails"], tenant: "acme" });
    const json = { url: URL, queues: ["pictures"] };
    expect((await asLimited("POST", "/subscriptions", { json })).status).toBe(403);
  });

  it.each<[object, number]>([
    [{}, 400],
    [{ url: "nowhere" }, 400],
    [{ url: URL, mode: "group" }, 400],
    [{ url: URL, minIntervalSeconds: 0.5 }, 400],
    [{ url: URL, ttlSeconds: 0 }, 400],
    [{ url: URL, queues: [] }, 400],
    [{ url: URL, tenant: "globex" }, 400],
  ])("that cannot be are refused: %j", async (json, status) => {
    expect((await call("POST", "/subscriptions", { json })).status).toBe(status);
  });

  it("need the scope for it", async () => {
    for (const as of ["producer", "reader"] as const) {
      const reply = await call("POST", "/subscriptions", { as, json: { url: URL } });
      expect(reply.status).toBe(403);
      expect((await call("GET", "/subscriptions", { as })).status).toBe(403);
    }
    expect((await call("GET", "/subscriptions", { as: "admin" })).status).toBe(200);
  });

  it("lead nowhere that must not be called, in either dialect", async () => {
    // What only the resolver can tell is refused with each call.
    const guard = new EgressGuard({ allowHttp: true, ports: [80, 443, 8080] });
    const refusedAtOnce = MUST_REFUSE.filter(([url]) => {
      try {
        guard.check(url);
        return false;
      } catch {
        return true;
      }
    });
    expect(refusedAtOnce.length).toBeGreaterThan(50);
    for (const [url] of refusedAtOnce) {
      const ours = await call("POST", "/subscriptions", { json: { url } });
      const theirs = await call("POST", "/codeq/workers/subscriptions", {
        json: { callbackUrl: url },
      });
      expect([url, ours.status, theirs.status]).toEqual([url, 400, 400]);
    }
  });
});

describe("CodeQ's", () => {
  const subscribe = (json: unknown, options: CallOptions = {}): Promise<Reply> =>
    call("POST", "/codeq/workers/subscriptions", { json, ...options });

  it("POST /workers/subscriptions and its heartbeat", async () => {
    const made = await subscribe({
      callbackUrl: URL,
      eventTypes: ["mails"],
      ttlSeconds: 60,
      deliveryMode: "group",
      groupId: "pool",
      minIntervalSeconds: 7,
      unknown: 1,
    });
    expect(made.status, made.text).toBe(200);
    expect(made.body).toEqual({
      subscriptionId: expect.any(String),
      expiresAt: expect.stringMatching(/^\d{4}-\d\d-\d\dT.*Z$/),
    });
    const id = String(made.body["subscriptionId"]);
    expect((await call("GET", `/subscriptions/${id}`)).body).toMatchObject({
      url: URL,
      queues: ["mails"],
      mode: "group",
      group: "pool",
      format: "codeq",
      ttlSeconds: 60,
      minIntervalSeconds: 7,
    });
    const path = `/codeq/workers/subscriptions/${id}/heartbeat`;
    const beat = await call("POST", path, { json: { ttlSeconds: 900 } });
    expect([beat.status, Object.keys(beat.body)]).toEqual([200, ["subscriptionId", "expiresAt"]]);
    const until = Date.parse(String(beat.body["expiresAt"]));
    expect(until).toBeGreaterThan(Date.parse(String(made.body["expiresAt"])) + 800_000);
    expect((await call("POST", path)).status).toBe(200);
    const defaults = await subscribe({ callbackUrl: URL, ttlSeconds: 0, eventTypes: [] });
    const plain = await call("GET", `/subscriptions/${String(defaults.body["subscriptionId"])}`);
    expect(plain.body).toMatchObject({ mode: "fanout", ttlSeconds: 300, minIntervalSeconds: 5 });
    expect(plain.body).not.toHaveProperty("queues");
  });

  it.each<[unknown, number, string]>([
    [{}, 400, "invalid body"],
    [{ callbackUrl: URL, ttlSeconds: "x" }, 400, "invalid body"],
    [{ callbackUrl: URL, deliveryMode: "group" }, 400, "groupId is required"],
    [{ callbackUrl: URL, deliveryMode: "all" }, 400, "invalid deliveryMode"],
  ])("refusals of %j", async (json, status, error) => {
    const reply = await subscribe(json);
    expect([reply.status, reply.body]).toEqual([status, { error }]);
  });

  it("refusals of event types, scopes and ids", async () => {
    const json = { callbackUrl: URL, eventTypes: ["pictures"] };
    const path = "/codeq/workers/subscriptions";
    const reply = await asLimited("POST", path, { json });
    expect([reply.status, reply.body]).toEqual([403, { error: "event type not allowed" }]);
    expect((await call("POST", path, { as: "producer", json })).status).toBe(403);
    for (const id of [NOBODY, "no-id"]) {
      const beat = await call("POST", `${path}/${id}/heartbeat`);
      expect([beat.status, beat.body]).toEqual([404, { error: "not-found" }]);
    }
  });
});

describe("servers side by side", () => {
  const secretOfCodeq = "a-secret-that-CodeQ-knows";

  it("tell each subscriber once, and what one of them took in outlives it", async () => {
    const own = await openScene({ until: "test" });
    const { database, mill } = own;
    const hooks = await receiver();
    const probe = await receiver();
    const egress = {
      allowHttp: true,
      ports: [hooks.port, probe.port],
      allowHosts: ["hooks.test"],
      resolve: async () => ["127.0.0.1"],
    };
    const start = async (): Promise<TidemillServer> => {
      const server = new TidemillServer(await database.connect(), {
        host: "127.0.0.1",
        producer: false,
        worker: false,
        metrics: false,
        http: { port: 0 },
        egress,
        drainSeconds: 1,
      });
      await server.start();
      onCleanup(() => server.stop());
      return server;
    };
    const first = await start();
    const second = await start();
    await mill.queues.ensure("mails");
    await mill.webhooks.put("acme", "default", { format: "codeq", secret: secretOfCodeq });
    const json = { callbackUrl: hooks.url("/codeq"), minIntervalSeconds: 600, ttlSeconds: 600 };
    const options = { as: "worker", json } as const;
    const made = await own.call("POST", "/v1/codeq/workers/subscriptions", options);
    expect(made.status, made.text).toBe(200);
    await mill.subscriptions.add("acme", { url: hooks.url("/ours"), minIntervalSeconds: 600 });
    await mill.enqueue("mails", 1, { tenant: "acme" });
    await eventually(() => expect(hooks.received).toHaveLength(2));
    const byPath = new Map(hooks.received.map((message) => [message.path, message]));
    const theirs = byPath.get("/codeq");
    expect(JSON.parse(theirs?.body ?? "null")).toMatchObject({
      eventType: "mails",
      available: true,
      queueDepth: 1,
      claimUrl: "/v1/codeq/tasks/claim",
    });
    const stamp = String(theirs?.headers["x-codeq-timestamp"]);
    const expected = createHmac("sha256", secretOfCodeq).update(`${stamp}.${theirs?.body}`);
    expect(theirs?.headers["x-codeq-signature"]).toBe(expected.digest("hex"));
    expect(read(byPath.get("/ours")).data.queues).toEqual([{ queue: "mails", waiting: 1 }]);
    await looked({ database, mill }, probe);
    expect(hooks.received).toHaveLength(2);

    await first.stop();
    await second.stop();
    await start();
    await database.pool.query("UPDATE tidemill.subscriptions SET next_at = NOW()");
    await eventually(() => expect(hooks.received).toHaveLength(4));
  });
});
