import { randomBytes } from "node:crypto";
import { beforeAll, describe, expect, it } from "vitest";
import type { Database, Queryable, Store } from "../../../src/db/database.ts";
import { TenantWall } from "../../../src/db/tenant-wall.ts";
import {
  deleteSubscription,
  readSubscriptions,
  renewSubscription,
} from "../../../src/delivery/notices/sql/subscriptions.ts";
import { readAttempts, readDeliveries, redeliver } from "../../../src/delivery/sql/delivery-log.ts";
import {
  deleteEndpoint,
  readEndpointKeys,
  readEndpoints,
  rotateEndpoint,
  updateEndpoint,
} from "../../../src/delivery/sql/endpoints.ts";
import { type Tidemill, Tidemill as TidemillClass } from "../../../src/index.ts";
import { readFiringOf, readFirings } from "../../../src/schedules/sql/firings.ts";
import {
  deleteSchedule,
  lockSchedule,
  pauseSchedule,
  readSchedules,
  resumeSchedule,
} from "../../../src/schedules/sql/schedules.ts";
import {
  deleteTopic,
  putTopic,
  readTopic,
  readTopicAttempts,
} from "../../../src/server/http/codeq/sql/topics.ts";
import {
  cancelRunning,
  cancelWaiting,
  deleteEnded,
  editDeadLetter,
  hurryTask,
  purgeDeadLetters,
  redriveDeadLetters,
  reviveTask,
} from "../../../src/tasks/sql/act.ts";
import { findTasks, readFailures } from "../../../src/tasks/sql/inspect.ts";
import { listTasks } from "../../../src/tasks/sql/list.ts";
import { openPackOf } from "../../../src/tasks/sql/open-packs.ts";
import { readWhy } from "../../../src/tasks/sql/why.ts";
import {
  onCleanup,
  type TestDatabase,
  testDatabase,
  withDatabase,
} from "../../support/database.ts";
import { engineDatabase } from "../../support/engine-database.ts";
import { startPgBouncer, whyNoPgBouncer } from "../../support/pgbouncer.ts";
import { Log } from "./http-scene.ts";

/** Of the webhook of globex. */
const SECRET = `whsec_${Buffer.alloc(32).toString("base64")}`;

async function wallOf(db: Database): Promise<TenantWall> {
  const wall = await TenantWall.find(db);
  if (!(wall instanceof TenantWall)) throw new Error(wall);
  return wall;
}

describe("behind the wall of one tenant", () => {
  let database: TestDatabase;
  let mill: Tidemill;
  let db: Database;
  let acme: Store;
  let globex: Store;
  let ids: { pending: string; scheduled: string; packed: string; ended: string; dead: string };
  let firing: string;
  let subscription: string;
  let delivery: string;

  beforeAll(async () => {
    database = await testDatabase({ until: "file" });
    mill = await database.connect();
    db = engineDatabase(database.url);
    await mill.queues.ensure("mails");
    const tenant = "globex";
    const make = async (more = {}): Promise<string> =>
      (await mill.enqueue("mails", 1, { tenant, ...more })).id;
    const [pending, scheduled, ended, dead] = [
      await make({ idempotencyKey: "key" }),
      await make({ delaySeconds: 3_600 }),
      await make(),
      await make(),
    ];
    const tasks = Array.from({ length: 20 }, () => ({ payload: 1, tenant }));
    const packed = (await mill.enqueueMany("mails", tasks))[0]?.id ?? "";
    await mill.tasks.cancel(ended);
    await database.pool.query(
      `WITH gone AS (DELETE FROM tidemill.tasks WHERE id = $1 RETURNING *)
       INSERT INTO tidemill.dead_letters
              (id, created_at, run_at, claim_order, lease_generation, lane, attempt, max_attempts,
               losses, priority, tenant, queue, payload, cause, reason)
       SELECT id, created_at, run_at, claim_order, lease_generation, lane, 1, max_attempts, losses,
              priority, tenant, queue, payload, 'attempts_exhausted', 'no' FROM gone`,
      [dead],
    );
    await database.pool.query(
      `INSERT INTO tidemill.task_failures (task_id, attempt, outcome, reason)
       VALUES ($1, 1, '', '')`,
      [pending],
    );
    await database.pool.query(
      `WITH held AS (
         UPDATE tidemill.tasks
            SET state = 'running', claim_id = $2, leased_by = $2,
                lease_until = NOW() + INTERVAL '1 day'
          WHERE id = $1
         RETURNING id, claim_id, leased_by
       )
       INSERT INTO tidemill.task_claims (claim_id, worker_id, check_at, task_ids)
       SELECT claim_id, leased_by, NOW() + INTERVAL '1 day', ARRAY[id] FROM held`,
      [await make(), "00000000-0000-4000-8000-0000000000aa"],
    );
    await mill.schedules.put("nightly", { cron: "@daily", queue: "mails", tenant });
    firing = (await mill.schedules.runNow("nightly", { tenant })).id;
    await mill.queues.pauseKey("mails", "key", { tenant });
    const added = await mill.subscriptions.add(tenant, { url: "https://hooks.example.org/" });
    subscription = added.subscription.id;
    await mill.webhooks.put(tenant, "hook", { url: "https://hooks.example.org/", secret: SECRET });
    const told = await make({ webhook: "hook" });
    await mill.tasks.cancel(told);
    const logged = await database.pool.query<{ id: string }>(
      `WITH logged AS (
         INSERT INTO tidemill.webhook_attempts (delivery, generation, attempt)
         SELECT number, 1, 1 FROM tidemill.webhook_deliveries WHERE task_id = $1
       )
       SELECT id FROM tidemill.webhook_deliveries WHERE task_id = $1`,
      [told],
    );
    delivery = logged.rows[0]?.id ?? "";
    const wall = await wallOf(db);
    [acme, globex] = [wall.behind("acme"), wall.behind(tenant)];
    await putTopic(globex, tenant, { name: "mails", policy: { maxAttempts: 3 } }, 10);
    ids = { pending, scheduled, packed, ended, dead };
    return () => db.close();
  });

  const key = { tenant: "globex", name: "nightly" };
  const hook = { tenant: "globex", id: "hook" };
  const rotation = { expected: SECRET, secret: "another", overlapSeconds: 0 };

  /** But for the time, which goes on. */
  const whyOf = async (at: Queryable, id: string): Promise<unknown> => {
    const facts = await readWhy(at, id);
    return facts === undefined ? undefined : { ...facts, asked_at: undefined };
  };

  // Without a tenant, or with the other's: as a statement would be that forgot its clause.
  const READS: readonly [name: string, read: (db: Queryable) => Promise<unknown>][] = [
    ["find", (at) => findTasks(at, Object.values(ids), {})],
    ["list", async (at) => (await listTasks(at, { limit: 100 })).rows],
    ["list dead", async (at) => (await listTasks(at, { limit: 100, state: "dead" })).rows],
    ["list refused", async (at) => (await listTasks(at, { limit: 100, state: "cancelled" })).rows],
    ["list running", async (at) => (await listTasks(at, { limit: 100, state: "running" })).rows],
    ["failures", (at) => readFailures(at, ids.pending)],
    ["why", (at) => whyOf(at, ids.pending)],
    ["why of a pack", (at) => whyOf(at, ids.packed)],
    ["schedules", (at) => readSchedules(at, {})],
    ["lock schedule", (at) => lockSchedule(at, key)],
    ["firings", (at) => readFirings(at, key, 10)],
    ["firing of", (at) => readFiringOf(at, firing)],
    ["topic", (at) => readTopic(at, "globex", "mails")],
    ["attempts of topics", async (at) => [...(await readTopicAttempts(at, "globex"))]],
    ["subscriptions", (at) => readSubscriptions(at, "globex")],
    ["endpoints", (at) => readEndpoints(at, "globex")],
    ["keys of an endpoint", (at) => readEndpointKeys(at, "globex", "hook")],
    ["deliveries", (at) => readDeliveries(at, "globex", { limit: 10 })],
    ["attempts", (at) => readAttempts(at, "globex", delivery)],
  ];
  const isNothing = (found: unknown): boolean =>
    found === undefined || (Array.isArray(found) && found.length === 0);

  it.each(READS)("nothing of another is read: %s", async (_, read) => {
    expect(await read(acme)).toSatisfy(isNothing);
    expect(await read(globex)).not.toSatisfy(isNothing);
  });

  const before = async (): Promise<unknown> =>
    await Promise.all(READS.map(([, read]) => read(globex)));

  const ACTS: readonly [name: string, act: (db: Queryable) => Promise<unknown>][] = [
    ["cancel waiting", (at) => cancelWaiting(at, ids.pending, "")],
    ["cancel running", (at) => cancelRunning(at, ids.pending, "")],
    ["hurry", (at) => hurryTask(at, ids.scheduled)],
    ["open a pack", (at) => openPackOf(at, ids.packed)],
    ["redrive", (at) => redriveDeadLetters(at, {}, 10)],
    ["purge", (at) => purgeDeadLetters(at, {}, 10)],
    ["edit", (at) => editDeadLetter(at, ids.dead, { json: "2" }, {})],
    ["revive", (at) => reviveTask(at, ids.ended)],
    ["forget", (at) => deleteEnded(at, { olderThanMs: -1_000_000 }, 10, {})],
    ["pause schedule", (at) => pauseSchedule(at, key)],
    ["resume schedule", (at) => resumeSchedule(at, key, undefined)],
    ["delete schedule", (at) => deleteSchedule(at, key)],
    ["delete topic", (at) => deleteTopic(at, "globex", "mails")],
    ["renew subscription", (at) => renewSubscription(at, "globex", subscription, 60)],
    ["delete subscription", (at) => deleteSubscription(at, "globex", subscription)],
    ["update endpoint", (at) => updateEndpoint(at, { ...hook, format: "codeq" })],
    ["rotate endpoint", (at) => rotateEndpoint(at, "globex", "hook", rotation)],
    ["delete endpoint", (at) => deleteEndpoint(at, "globex", "hook")],
    ["redeliver", (at) => redeliver(at, "globex", {}, { after: "0", max: 10 })],
  ];

  it("nothing of another is changed", async () => {
    const stood = await before();
    for (const [name, act] of ACTS) {
      const done = await act(acme);
      expect([false, undefined, [], { deleted: 0 }], name).toContainEqual(
        typeof done === "object" && done !== null && "deleted" in done
          ? { deleted: done.deleted }
          : done,
      );
    }
    expect(await before()).toEqual(stood);
  });

  it("nothing is written for another", async () => {
    const raw = (text: string): Promise<unknown> =>
      acme.transaction(async (tx) => await tx.client.query(text));
    for (const text of [
      `INSERT INTO tidemill.tasks (id, lane, max_attempts, priority, state, claim_order, tenant,
                                   queue, payload)
       VALUES (999, 1, 1, 1, 'pending', 999, 'globex', 'mails', '1')`,
      `INSERT INTO tidemill.task_idempotency (tenant, key, hash, task_id, expires_at)
       VALUES ('globex', 'other', '', 1, NOW())`,
      `INSERT INTO tidemill.topic_policies (tenant, name, policy) VALUES ('globex', 'x', '{}')`,
    ]) {
      await expect(raw(text)).rejects.toThrow(/row-level security policy/);
    }
    await expect(raw("SELECT FROM tidemill.api_keys")).rejects.toThrow(/permission denied/);
    await expect(raw("SELECT FROM tidemill.events")).rejects.toThrow(/permission denied/);
    await expect(raw("SELECT FROM tidemill.live_tasks")).rejects.toThrow(/permission denied/);
    await expect(raw("SELECT FROM tidemill.task_history_default")).rejects.toThrow(
      /permission denied/,
    );
    await expect(raw("DROP TABLE tidemill.tasks")).rejects.toThrow(/must be owner/);
  });

  it("there is nothing at all for whoever did not say for whom", async () => {
    const { role } = await wallOf(db);
    const { rows } = await db.transaction(async (tx) => {
      await tx.client.query(`SET LOCAL ROLE ${role}`);
      return await tx.client.query("SELECT FROM tidemill.tasks");
    });
    expect(rows).toEqual([]);
  });

  it("a session remembers neither role nor tenant, whether it ended well or not", async () => {
    await acme.query({ name: "one", text: "SELECT 1" });
    await expect(acme.query({ name: "bad", text: "SELECT 1 / 0" })).rejects.toThrow();
    await expect(acme.transaction(() => Promise.reject(new Error("no")))).rejects.toThrow("no");
    const [row] = await db.query<{ role: string; tenant: string; is_own: boolean }>({
      name: "who",
      text: `SELECT current_user = session_user AS is_own,
                    COALESCE(current_setting('tidemill.tenant', TRUE), '') AS tenant`,
    });
    expect(row).toEqual({ is_own: true, tenant: "" });
  });

  it("the engine's own statements meet no policy", async () => {
    const { rows } = await database.pool.query<{ "QUERY PLAN": string }>(
      "EXPLAIN SELECT * FROM tidemill.tasks WHERE lane = 1 AND claim_order > 0",
    );
    expect(JSON.stringify(rows)).not.toContain("current_setting");
  });
});

describe("a login", () => {
  /** A login of its own, and a database that it owns. */
  async function ownDatabase(attributes: string): Promise<{ url: string; admin: TestDatabase }> {
    const admin = await testDatabase({ migrated: false });
    const login = `login_${randomBytes(6).toString("hex")}`;
    const name = new URL(admin.url).pathname.slice(1);
    await admin.pool.query(`CREATE ROLE ${login} LOGIN PASSWORD 'x' ${attributes}`);
    onCleanup(() => admin.pool.query(`DROP OWNED BY ${login} CASCADE; DROP ROLE ${login}`));
    await admin.pool.query(`GRANT CREATE ON DATABASE ${name} TO ${login}`);
    const url = Object.assign(new URL(withDatabase(admin.url, name)), {
      username: login,
      password: "x",
    });
    return { url: url.href, admin };
  }

  async function open(url: string, log = new Log()): Promise<Tidemill> {
    const mill = await TidemillClass.connect(url, { logger: log });
    onCleanup(() => mill.close());
    return mill;
  }

  it("that may not make roles works without the second wall, says so, or refuses", async () => {
    const { url, admin } = await ownDatabase("NOCREATEROLE");
    await TidemillClass.migrate(url);
    const log = new Log();
    const mill = await open(url, log);
    await expect(mill.tenants({ requireWall: true })).rejects.toThrow(
      /wall between tenants was never raised: call raise_tenant_wall/,
    );
    const tenants = await mill.tenants();
    expect(tenants.wall).toBeUndefined();
    expect(log.lines).toContainEqual(
      expect.objectContaining({
        level: "warn",
        message: "tenants are kept apart by statements only",
      }),
    );
    await mill.queues.ensure("mails");
    const scope = tenants.of({ tenant: "acme", queues: "all" });
    const [id = ""] = await scope.enqueue("mails", [{ payload: 1 }]);
    expect(await scope.task(id)).toMatchObject({ tenant: "acme" });
    const other = tenants.of({ tenant: "globex", queues: "all" });
    await expect(other.task(id)).rejects.toThrow(/there is no task/);

    // As docs/reference/auth.md says: somebody makes the role, the owner raises the wall.
    const wall = `wall_${randomBytes(6).toString("hex")}`;
    const { username } = new URL(url);
    await admin.pool.query(`CREATE ROLE ${wall} NOLOGIN; GRANT ${wall} TO ${username}`);
    onCleanup(() => admin.pool.query(`DROP OWNED BY ${wall}; DROP ROLE ${wall}`));
    const session = await import("pg").then(({ default: pg }) => new pg.Client(url));
    await session.connect();
    await session.query(`SELECT tidemill.raise_tenant_wall('${wall}')`);
    await session.end();
    const walled = await mill.tenants({ requireWall: true });
    expect(walled.wall).toBe(wall);
    expect(await walled.of({ tenant: "acme", queues: "all" }).task(id)).toMatchObject({ id });
  });

  it("that may make roles has the wall from the migration, and needs nothing else", async () => {
    const { url, admin } = await ownDatabase("CREATEROLE");
    await TidemillClass.migrate(url);
    const mill = await open(url);
    const tenants = await mill.tenants({ requireWall: true });
    onCleanup(() => admin.pool.query(`DROP OWNED BY ${tenants.wall}; DROP ROLE ${tenants.wall}`));
    await mill.queues.ensure("mails");
    const scope = tenants.of({ tenant: "acme", queues: "all" });
    const [id = ""] = await scope.enqueue("mails", [{ payload: 1 }]);
    expect(await scope.cancel(id)).toBe("cancelled");
    await scope.retry(id);
    expect(await scope.task(id)).toMatchObject({ state: "pending" });
  });

  it("that does not own the tables sees them, and is told what it lacks", async () => {
    const database = await testDatabase();
    const login = `login_${randomBytes(6).toString("hex")}`;
    await database.pool.query(
      `CREATE ROLE ${login} LOGIN PASSWORD 'x';
       GRANT USAGE ON SCHEMA tidemill TO ${login};
       GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA tidemill TO ${login};
       GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA tidemill TO ${login}`,
    );
    onCleanup(() => database.pool.query(`DROP OWNED BY ${login}; DROP ROLE ${login}`));
    const url = Object.assign(new URL(database.url), { username: login, password: "x" }).href;
    const mill = await open(url);
    await mill.queues.ensure("mails");
    const { id } = await mill.enqueue("mails", 1, { tenant: "acme" });
    expect(await mill.tasks.get(id)).toMatchObject({ tenant: "acme" });
    await expect(mill.tenants({ requireWall: true })).rejects.toThrow(
      new RegExp(`role "${login}" may not become "tidemill_tenant_`),
    );
    const { rows } = await database.pool.query<{ value: string }>(
      "SELECT value FROM tidemill.settings WHERE key = 'tenant_role'",
    );
    const role = rows[0]?.value;
    await database.pool.query(`GRANT ${role} TO ${login}`); // With what the role may, unbidden.
    await expect(mill.tenants()).rejects.toThrow(/sees no task by itself/);
    await database.pool.query(`REVOKE ${role} FROM ${login}; ALTER ROLE ${login} NOINHERIT`);
    await database.pool.query(`GRANT ${role} TO ${login}`);
    const tenants = await mill.tenants({ requireWall: true });
    expect(await tenants.of({ tenant: "acme", queues: "all" }).task(id)).toMatchObject({ id });
    expect(await mill.tasks.get(id)).toMatchObject({ id });
    await database.pool.query(`REVOKE ${role} FROM ${login}`);
  });
});

it("the wall stands through a pooler, whose sessions serve all in turn", async (context) => {
  const why = whyNoPgBouncer();
  if (why !== undefined) return context.skip(why);
  const database = await testDatabase();
  const pooler = await startPgBouncer(database.url, { default_pool_size: "2" });
  onCleanup(() => pooler.stop());
  const mill = await TidemillClass.connect(pooler.through(database.url));
  onCleanup(() => mill.close());
  const tenants = await mill.tenants({ requireWall: true });
  await mill.queues.ensure("mails");
  const names = ["acme", "globex", "initech"];
  const scopes = names.map((tenant) => tenants.of({ tenant, queues: "all" }));
  const rounds = Array.from({ length: 20 }, async () => {
    for (const scope of scopes) await scope.enqueue("mails", [{ payload: scope.tenant }]);
    const seen = await Promise.all(scopes.map((scope) => scope.tasks({ limit: 100 }, 100)));
    for (const [index, { rows }] of seen.entries()) {
      expect(new Set(rows.map(({ tenant }) => tenant))).toEqual(new Set([names[index]]));
    }
  });
  await Promise.all(rounds);
  expect((await mill.tasks.list({ limit: 100 })).length).toBe(60);
});
