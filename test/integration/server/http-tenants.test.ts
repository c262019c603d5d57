import fc from "fast-check";
import { afterEach, beforeAll, describe, expect, it, vi } from "vitest";
import { withoutClause } from "./forgetful.ts";
import { type CallOptions, openScene, type Reply, type Scene } from "./http-scene.ts";
import { type Belongings, furnish, rowsOf } from "./other-tenant.ts";

let scene: Scene;
/** The same without the second wall: every clause must do by itself. */
let unwalled: Scene;
/** What globex has, of every kind, which acme must never reach. */
let theirs: Belongings;
/** A message to the webhook of acme that has the same name as one of globex. */
let ownDelivery: string;

const SECRET = "globex-secret";
/** A quota that nobody else has. */
const QUOTA = 424_242_424;
const THEIRS = new RegExp(`${SECRET}|${QUOTA}`);
const LIMITS = { callsPerSecond: 100_000, callsBurst: 100_000 };

beforeAll(async () => {
  scene = await openScene({ limits: LIMITS });
  const { mill, database } = scene;
  await mill.queues.ensure("mails");
  theirs = await furnish({ mill, database, tenant: "globex" }, SECRET);
  await mill.quotas.put("globex", { pendingTasks: QUOTA });
  await mill.webhooks.put("acme", "common", { url: "https://example.com/" });
  const { id } = await mill.enqueue("mails", 1, { tenant: "acme", webhook: "common" });
  await mill.tasks.cancel(id);
  ownDelivery = (await mill.webhooks.deliveries("acme"))[0]?.id ?? "";
  expect(ownDelivery).not.toBe("");
  await database.pool.query("UPDATE tidemill.settings SET key = 'down' WHERE key = 'tenant_role'");
  const tenants = await mill.tenants();
  expect(tenants.wall).toBeUndefined();
  unwalled = scene.another(LIMITS, { tenants });
  await database.pool.query("UPDATE tidemill.settings SET key = 'tenant_role' WHERE key = 'down'");
});

afterEach(() => void vi.restoreAllMocks());

const snapshot = (): Promise<unknown> => rowsOf(scene.database, "globex");

interface Call {
  readonly method: string;
  readonly path: string;
  readonly json?: unknown;
  /** What it answers when there is nothing of the caller's. */
  readonly status: number;
}

/** Every call that takes an id, a name or a filter of what tenants have. */
function callsWith(id: string): Call[] {
  const task = `/v1/tasks/${id}`;
  const ids = { ids: [id] };
  return [
    { method: "GET", path: task, status: 404 },
    { method: "GET", path: `${task}/failures`, status: 404 },
    { method: "GET", path: `${task}/why`, status: 404 },
    { method: "GET", path: `${task}/result`, status: 404 },
    { method: "GET", path: `${task}/result?waitSeconds=1`, status: 404 },
    { method: "POST", path: `${task}/cancel`, status: 404 },
    { method: "POST", path: `${task}/retry`, status: 404 },
    { method: "PUT", path: `/v1/dead-letters/${id}/payload`, json: { payload: 1 }, status: 404 },
    { method: "POST", path: "/v1/dead-letters/redrive", json: ids, status: 200 },
    { method: "POST", path: "/v1/dead-letters/purge", json: ids, status: 200 },
    { method: "GET", path: `/v1/codeq/tasks/${id}`, status: 404 },
    { method: "GET", path: `/v1/codeq/tasks/${id}/result`, status: 404 },
    { method: "GET", path: `/v1/codeq/tasks/${id}/result?waitSeconds=1`, status: 404 },
  ];
}

const FUTURE = "2999-01-01T00:00:00Z";

const callsForDeliveries = (): Call[] => [
  { method: "GET", path: `/v1/webhook-deliveries/${theirs.delivery}`, status: 404 },
  { method: "GET", path: `/v1/webhook-deliveries?cursor=${theirs.delivery}`, status: 200 },
  {
    method: "POST",
    path: "/v1/webhook-deliveries/redeliver",
    json: { ids: [theirs.delivery] },
    status: 200,
  },
];

const callsForSubscriptions = (): Call[] => {
  const path = `/v1/subscriptions/${theirs.subscription}`;
  const codeq = `/v1/codeq/workers/subscriptions/${theirs.subscription}/heartbeat`;
  return [
    { method: "GET", path: "/v1/subscriptions", status: 200 },
    { method: "GET", path, status: 404 },
    { method: "POST", path: `${path}/renew`, json: { ttlSeconds: 60 }, status: 404 },
    { method: "DELETE", path, status: 404 },
    { method: "POST", path: codeq, status: 404 },
  ];
};

const CALLS: readonly Call[] = [
  { method: "GET", path: "/v1/quota", status: 200 },
  { method: "GET", path: "/v1/webhooks", status: 200 },
  { method: "GET", path: "/v1/webhooks/hook", status: 404 },
  { method: "POST", path: "/v1/webhooks/hook/rotate", status: 404 },
  { method: "DELETE", path: "/v1/webhooks/hook", status: 404 },
  { method: "GET", path: "/v1/webhook-deliveries?endpoint=hook", status: 200 },
  {
    method: "POST",
    path: "/v1/webhook-deliveries/redeliver",
    json: { endpoint: "hook", state: "delivered" },
    status: 200,
  },
  { method: "GET", path: "/v1/tasks?limit=1000", status: 200 },
  { method: "GET", path: "/v1/tasks?queue=mails&state=dead", status: 200 },
  { method: "GET", path: "/v1/tasks?state=cancelled", status: 200 },
  { method: "GET", path: "/v1/tasks?state=pending&limit=1000", status: 200 },
  { method: "GET", path: "/v1/tasks?state=running", status: 200 },
  { method: "GET", path: "/v1/dead-letters", status: 200 },
  { method: "GET", path: "/v1/dead-letters/groups", status: 200 },
  { method: "GET", path: "/v1/dead-letters/count", status: 200 },
  { method: "POST", path: "/v1/dead-letters/redrive", json: { all: true }, status: 200 },
  { method: "POST", path: "/v1/dead-letters/purge", json: { all: true }, status: 200 },
  { method: "POST", path: "/v1/dead-letters/purge", json: { kind: SECRET }, status: 200 },
  { method: "GET", path: "/v1/schedules", status: 200 },
  { method: "GET", path: "/v1/schedules/nightly", status: 404 },
  { method: "GET", path: "/v1/schedules/nightly/firings", status: 404 },
  { method: "POST", path: "/v1/schedules/nightly/pause", status: 404 },
  { method: "POST", path: "/v1/schedules/nightly/resume", status: 404 },
  { method: "POST", path: "/v1/schedules/nightly/run", status: 404 },
  { method: "DELETE", path: "/v1/schedules/nightly", status: 404 },
  { method: "POST", path: "/v1/codeq/admin/tasks/cleanup", json: { before: FUTURE }, status: 200 },
];

/** Of what acme has under names that globex uses, too: either row could be meant. */
const callsForCommon = (): Call[] => [
  { method: "PUT", path: "/v1/webhooks/common", json: { url: "https://a.example/" }, status: 200 },
  { method: "POST", path: "/v1/webhooks/common/rotate", status: 200 },
  { method: "GET", path: `/v1/webhook-deliveries/${ownDelivery}`, status: 200 },
];

const everyId = (): string[] => Object.values(theirs.tasks);
const everyCall = (): Call[] => [
  ...CALLS,
  ...callsForDeliveries(),
  ...callsForSubscriptions(),
  ...everyId().flatMap(callsWith),
];

function request(
  { method, path, json }: Call,
  options: CallOptions = {},
  at = scene,
): Promise<Reply> {
  return at.call(method, path, { ...(json === undefined ? {} : { json }), ...options });
}

describe("another tenant", () => {
  it.each([
    ["behind the wall", () => scene],
    ["by the statements alone", () => unwalled],
  ])("finds and changes nothing, with any id, name or filter, %s", async (_, of) => {
    const before = await snapshot();
    const all = everyCall();
    const callers = fc.constantFrom("producer", "reader", "mailer", "admin", "worker");
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.tuple(fc.constantFrom(...all), callers), { minLength: 5, maxLength: 25 }),
        async (calls) => {
          const replies = await Promise.all(calls.map(([call, as]) => request(call, { as }, of())));
          for (const [index, reply] of replies.entries()) {
            const [call, as] = calls[index] ?? [];
            const where = `${as} ${call?.method} ${call?.path}: ${reply.text}`;
            expect(reply.text, where).not.toMatch(THEIRS);
            expect([call?.status, 403], where).toContain(reply.status);
          }
        },
      ),
      { numRuns: 25 },
    );
    // Those that may, tried by somebody who may everything.
    for (const call of all) {
      const reply = await request(call, { as: "admin" }, of());
      expect([reply.status, reply.text], `${call.method} ${call.path}`).toEqual([
        call.status,
        expect.not.stringMatching(THEIRS),
      ]);
    }
    expect(await snapshot()).toEqual(before);
  });

  it("may use the same names and keys for itself", async () => {
    const json = { cron: "@hourly", queue: "mails" };
    expect((await scene.call("PUT", "/v1/schedules/nightly", { json })).status).toBe(200);
    const hers = await scene.call("GET", "/v1/schedules/nightly", { as: "other" });
    expect(hers.body).toMatchObject({ cron: "@yearly", payload: SECRET });
    expect((await scene.call("DELETE", "/v1/schedules/nightly")).status).toBe(204);
  });

  it("sees what is hers, all of it", async () => {
    const { body } = await scene.call("GET", "/v1/tasks?limit=1000", { as: "other" });
    const ids = body.tasks.map(({ id }) => id);
    expect(ids).toHaveLength(23);
    expect(ids).toEqual(expect.arrayContaining(everyId()));
    for (const id of everyId()) {
      const reply = await scene.call("GET", `/v1/tasks/${id}`, { as: "other" });
      expect(reply.text).toContain(SECRET);
    }
  });
});

describe("the second wall", () => {
  // Every call once for every statement.
  it("holds when a statement forgets its tenant, whichever it is", {
    timeout: 120_000,
  }, async () => {
    const all = [...everyCall(), ...callsForCommon()];
    const callAll = async (): Promise<void> => {
      const replies = await Promise.all(all.map((call) => request(call, { as: "admin" })));
      for (const [index, { method, path, status }] of all.entries()) {
        const reply = replies[index];
        expect(reply?.text, `${method} ${path}`).not.toMatch(THEIRS);
        expect([status, 409], `${method} ${path}`).toContain(reply?.status);
      }
    };
    const before = await snapshot();
    const statements = await withoutClause([], callAll);
    expect([...statements].sort()).toEqual([
      "dead_letter_edit",
      "dead_letter_groups",
      "dead_letters_count",
      "dead_letters_purge",
      "dead_letters_redrive",
      "deliveries_read",
      "deliveries_redeliver",
      "delivery_attempts",
      "endpoint_delete",
      "endpoint_rotate",
      "endpoint_secrets",
      "endpoint_update",
      "endpoints_count_others",
      "endpoints_read",
      "pack_open_for_task",
      "quota_usage",
      "quotas_read",
      "schedule_lock",
      "schedules_read",
      "subscriptions_read",
      "task_cancel_running",
      "task_cancel_waiting",
      "task_history_forget",
      "tasks_find",
      "tasks_list_dead",
      "tasks_list_ended",
      "tasks_list_live",
      "tasks_list_refused",
      "tasks_list_running",
    ]);
    for (const name of statements) {
      await withoutClause([name], callAll);
      expect(await snapshot(), name).toEqual(before);
    }
  });

  it("is what held: without it, a forgotten tenant is somebody else's data", async () => {
    const { pool } = scene.database;
    await pool.query("ALTER TABLE tidemill.tasks DISABLE ROW LEVEL SECURITY");
    try {
      await withoutClause(["tasks_find"], async () => {
        const reply = await scene.call("GET", `/v1/tasks/${theirs.tasks.pending}`);
        expect(reply.text).toContain(SECRET);
      });
    } finally {
      await pool.query("ALTER TABLE tidemill.tasks ENABLE ROW LEVEL SECURITY");
    }
  });
});
