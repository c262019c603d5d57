import { expect, it } from "vitest";
import { completed, failed, queue, type TaskHandler } from "../../../src/index.ts";
import { eventually } from "../../support/eventually.ts";
import { aborted, BRISK, gate, inTransaction, range } from "../tasks/scene.ts";
import { newScene, type WebhookScene } from "./webhook-scene.ts";

const WEBHOOK = "https://hooks.example.org/tasks";
const TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

interface StoredDelivery {
  readonly task_id: string;
  readonly type: string;
  readonly result: string | null;
  readonly reason: string | null;
  readonly task: Record<string, unknown>;
  readonly endpoint: string;
  readonly url: string | null;
}

async function stored({ database }: WebhookScene): Promise<StoredDelivery[]> {
  const { rows } = await database.pool.query<StoredDelivery>(
    "SELECT * FROM tidemill.webhook_deliveries ORDER BY number",
  );
  return rows;
}

async function ended({ mill }: WebhookScene, ids: readonly string[]): Promise<void> {
  await eventually(async () => {
    const states = await Promise.all(ids.map(async (id) => (await mill.tasks.get(id)).state));
    expect(states.filter((state) => /scheduled|pending|running/.test(state))).toEqual([]);
  });
}

const good = queue("good");
const bad = queue("bad", { maxAttempts: 2, backoff: { kind: "fixed", baseSeconds: 0 } });
const refused = queue("refused");
const owned = queue("owned");

it("every way in which a task ends leaves one delivery, and none without a webhook", async () => {
  const scene = await newScene();
  const { mill, database } = scene;
  await database.pool.query("CREATE TABLE effects (id TEXT)");
  const handlers: TaskHandler[] = [
    good.handle(() => completed({ sent: true })),
    bad.handle(() => {
      throw new Error("no luck");
    }),
    refused.handle(() => failed("never", { retry: false })),
    owned.handle(async (task, context) => {
      await inTransaction(database, "COMMIT", async (client) => {
        await client.query("INSERT INTO effects VALUES ($1)", [task.id]);
        await context.complete(client, { mine: true });
      });
    }),
  ];
  await mill.startWorker({ ...BRISK, handlers });
  const webhook = { webhook: WEBHOOK, traceParent: TRACE, kind: "digest" };
  const one = await mill.enqueue(good, 1, webhook);
  const dead = await mill.enqueue(bad, 1, webhook);
  const no = await mill.enqueue(refused, 1, { webhook: "billing" });
  const mine = await mill.enqueue(owned, 1, webhook);
  const later = await mill.enqueue(good, 1, { ...webhook, delaySeconds: 3_600 });
  await mill.tasks.cancel(later.id, { reason: "changed my mind" });
  const without = await mill.enqueueMany(good, [
    { payload: 1 },
    { payload: 2, traceParent: TRACE },
  ]);
  await ended(
    scene,
    [one, dead, no, mine, later, ...without].map(({ id }) => id),
  );

  const found = await stored(scene);
  const byTask = (id: string): StoredDelivery[] => found.filter((row) => row.task_id === id);
  expect(found).toHaveLength(5);
  const shared = { queue: "good", kind: "digest", maxAttempts: 5, traceParent: TRACE };
  expect(byTask(one.id)).toMatchObject([
    {
      type: "task.completed",
      result: '{"sent":true}',
      reason: null,
      endpoint: "default",
      url: WEBHOOK,
      task: { ...shared, attempt: 1 },
    },
  ]);
  expect(byTask(dead.id)).toMatchObject([
    { type: "task.dead", reason: "no luck", task: { attempt: 2, cause: "attempts_exhausted" } },
  ]);
  expect(byTask(no.id)).toMatchObject([
    { type: "task.failed", reason: "never", endpoint: "billing", url: null },
  ]);
  expect(byTask(mine.id)).toMatchObject([{ type: "task.completed", result: '{"mine":true}' }]);
  expect(byTask(later.id)).toMatchObject([{ type: "task.cancelled", reason: "changed my mind" }]);

  // A second end of the same task is a second message.
  await mill.tasks.retry(dead.id);
  await eventually(async () => {
    expect((await stored(scene)).filter((row) => row.task_id === dead.id)).toHaveLength(2);
  });
});

it("a cancelled task that runs, and one whose worker is lost, leave one each", async () => {
  const scene = await newScene();
  const { mill, database } = scene;
  const slow = queue("slow");
  const started = gate();
  const handlers = [
    slow.handle(async (_, { signal }) => {
      started.open();
      await aborted(signal);
      signal.throwIfAborted();
    }),
  ];
  const worker = await mill.startWorker({ ...BRISK, handlers, concurrency: 1 });
  const running = await mill.enqueue(slow, 1, { webhook: WEBHOOK });
  await started.opened;
  await mill.tasks.cancel(running.id, { reason: "too long" });
  await ended(scene, [running.id]);

  const lost = await mill.enqueue(slow, 2, { webhook: WEBHOOK });
  await eventually(async () => expect((await mill.tasks.get(lost.id)).state).toBe("running"));
  // Its lease ends as if the worker were gone, for the third time while it ran alone.
  await database.pool.query(
    `UPDATE tidemill.tasks
        SET lease_until = NOW(), on_probation = TRUE, losses = 2 WHERE id = $1`,
    [lost.id],
  );
  await database.pool.query("UPDATE tidemill.task_claims SET check_at = NOW()");
  worker.tasksEnqueued(); // Rings whoever looks after leases.
  await ended(scene, [lost.id]);
  expect(await stored(scene)).toMatchObject([
    { task_id: running.id, type: "task.cancelled", reason: "too long" },
    { task_id: lost.id, type: "task.dead", task: { cause: "worker_lost" } },
  ]);
});

it("a completion that is rolled back leaves none, and the next end leaves one", async () => {
  const scene = await newScene();
  const { mill, database } = scene;
  let tries = 0;
  const torn = queue("torn", { backoff: { kind: "fixed", baseSeconds: 0 } });
  const handlers = [
    torn.handle(async (_, context) => {
      tries += 1;
      const end = tries === 1 ? "ROLLBACK" : "COMMIT";
      await inTransaction(database, end, (client) => context.complete(client, { tries }));
      if (end === "ROLLBACK") expect(await stored(scene)).toEqual([]);
    }),
  ];
  await mill.startWorker({ ...BRISK, handlers });
  const { id } = await mill.enqueue(torn, 1, { webhook: WEBHOOK });
  await ended(scene, [id]);
  expect(await stored(scene)).toMatchObject([{ task_id: id, result: '{"tries":2}' }]);
});

it("tasks of a bulk that completes in packs leave one each", async () => {
  const scene = await newScene();
  const { mill, database } = scene;
  const tasks = range(200).map((payload) => ({ payload, webhook: WEBHOOK }));
  const handles = await mill.enqueueMany(good, tasks);
  const { rows: packs } = await database.pool.query("SELECT id FROM tidemill.task_packs");
  expect(packs.length).toBeGreaterThan(0);
  await mill.startWorker({ ...BRISK, handlers: [good.handle(() => {})], concurrency: 50 });
  await ended(
    scene,
    handles.map(({ id }) => id),
  );
  const found = (await stored(scene)).map((row) => row.task_id);
  expect(found.toSorted()).toEqual(handles.map(({ id }) => id).toSorted());
});

it("options that SQL gave and that make no sense do not keep a task from ending", async () => {
  const scene = await newScene();
  const { mill, database } = scene;
  await mill.startWorker({
    ...BRISK,
    handlers: [good.handle(() => completed("x".repeat(300_000)))],
  });
  const given = [null, "", 7, { a: 1 }, "x y", "http://", `https://${"y".repeat(9_000)}`, "ok"];
  const ids: string[] = [];
  for (const webhook of given) {
    const { rows } = await database.pool.query<{ id: string }>(
      "SELECT tidemill.enqueue('good', '1', options => $1::jsonb) AS id",
      [JSON.stringify({ webhook, traceParent: 7 })],
    );
    ids.push(rows[0]?.id ?? "");
  }
  await ended(scene, ids);
  const found = await stored(scene);
  expect(new Set(found.map((row) => row.task_id))).toEqual(new Set(ids.slice(2)));
  expect(found).toHaveLength(6);
  expect(found.at(-1)).toMatchObject({ result: null, task: { resultBytes: 300_002 } });
});

it("what a task may name is checked when it is enqueued", async () => {
  const { mill } = await newScene();
  for (const webhook of ["ftp://x", "a b", "example.org", "default", "https://u:p@x.org", "-a"]) {
    await expect(mill.enqueue(good, 1, { webhook })).rejects.toThrow(/webhook must/);
  }
});
