import { describe, expect, it } from "vitest";
import { resolveNames } from "../../../src/db/names.ts";
import {
  completed,
  failed,
  type QueueOptions,
  queue,
  type Tidemill,
  type Worker,
} from "../../../src/index.ts";
import { type TestDatabase, testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { BRISK, type Gate, gate, range, readColumn } from "./scene.ts";

const AT = "\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d\\.\\d{3}Z";

const WORKER_NODES = resolveNames().splices["worker_nodes"];

interface Scene {
  readonly database: TestDatabase;
  readonly mill: Tidemill;
  readonly worker: Worker;
  /** Handlers wait for it. */
  readonly go: Gate;
}

/** A worker of the queue "orders" with one slot; payload "fail" fails. */
async function scene(options: QueueOptions = {}, concurrency = 1): Promise<Scene> {
  const database = await testDatabase();
  const mill = await database.connect();
  const go = gate();
  const handler = queue<string>("orders", options).handle(async ({ payload }) => {
    if (payload === "fail") return failed("out of stock");
    if (payload === "refuse") return failed("no such thing", { retry: false });
    if (payload === "wait") await go.opened;
    return completed();
  });
  const worker = await mill.startWorker({ ...BRISK, handlers: [handler], concurrency });
  return { database, mill, worker, go };
}

const eventuallySays = async ({ mill }: Scene, id: string, sentence: RegExp): Promise<void> => {
  await eventually(async () => expect(await mill.tasks.why(id)).toMatch(sentence));
};

describe("why a task does not run:", () => {
  it("its queue is paused", async () => {
    const one = await scene();
    await one.mill.queues.pause("orders", { reason: "stocktaking" });
    const { id } = await one.mill.enqueue("orders", "ok");
    const said = await one.mill.tasks.why(id);
    expect(said).toMatch(
      new RegExp(`^queue "orders" is paused since ${AT} \\(stocktaking\\); resume it$`),
    );
    await one.mill.queues.resume("orders");
    await eventuallySays(one, id, new RegExp(`^it completed at ${AT}$`));
  });

  it("its key is paused", async () => {
    const one = await scene();
    await one.mill.queues.pauseKey("orders", "key", { reason: "the shop is closed" });
    const { id } = await one.mill.enqueue("orders", "ok", { partitionKey: "key" });
    expect(await one.mill.tasks.why(id)).toBe(
      'key "key" is paused until it is resumed (the shop is closed)',
    );
    const until = new Date("2199-01-01T00:00:00Z");
    await one.mill.queues.pauseKey("orders", "key", { until });
    expect(await one.mill.tasks.why(id)).toBe('key "key" is paused until 2199-01-01T00:00:00.000Z');
  });

  it("its key is held by another task, and where that runs", async () => {
    const one = await scene();
    const [head, next] = await one.mill.enqueueMany("orders", [
      { payload: "wait", partitionKey: "key" },
      { payload: "ok", partitionKey: "key" },
    ]);
    const running = new RegExp(
      `^it is running on worker ${one.worker.id}, attempt 1, lease until ${AT}$`,
    );
    await eventuallySays(one, head?.id ?? "", running);
    await eventually(async () => {
      const said = await one.mill.tasks.why(next?.id ?? "");
      expect(said).toContain("key");
      expect(said).toBe(
        `key "key" is held by task ${head?.id}, which is running on worker ${one.worker.id}`,
      );
    });
    one.go.open();
  });

  it("its key is held by a head that is tried again later", async () => {
    const one = await scene({ backoff: { kind: "fixed", baseSeconds: 600 } });
    const [head, next] = await one.mill.enqueueMany("orders", [
      { payload: "fail", partitionKey: "key" },
      { payload: "ok", partitionKey: "key" },
    ]);
    const again = new RegExp(`^attempt 1 failed; it is tried again at ${AT}$`);
    await eventuallySays(one, head?.id ?? "", again);
    const held = `^key "key" is held by task ${head?.id}, which is pending, tried again at ${AT}$`;
    await eventuallySays(one, next?.id ?? "", new RegExp(held));
  });

  it("its key is parked behind a dead one", async () => {
    const one = await scene({ onFailure: "park", maxAttempts: 1 });
    const head = await one.mill.enqueue("orders", "fail", { partitionKey: "key" });
    const dead = `^it died at ${AT}: out of stock; redrive it to run it again$`;
    await eventuallySays(one, head.id, new RegExp(dead));
    const next = await one.mill.enqueue("orders", "ok", { partitionKey: "key" });
    expect(await one.mill.tasks.why(next.id)).toBe(
      `key "key" is parked behind task ${head.id}, which died: out of stock; ` +
        "redrive or purge that one",
    );
  });

  it("it is scheduled, or waits for its next attempt", async () => {
    const one = await scene({ backoff: { kind: "fixed", baseSeconds: 600 } });
    const later = await one.mill.enqueue("orders", "ok", { runAt: "2199-01-01T00:00:00Z" });
    expect(await one.mill.tasks.why(later.id)).toBe("it is scheduled for 2199-01-01T00:00:00.000Z");
    const broken = await one.mill.enqueue("orders", "fail");
    const again = new RegExp(`^attempt 1 failed; it is tried again at ${AT}$`);
    await eventuallySays(one, broken.id, again);
  });

  it("nobody handles its queue", async () => {
    const database = await testDatabase();
    const mill = await database.connect();
    const { id } = await mill.enqueue(queue("orders"), 1);
    expect(await mill.tasks.why(id)).toBe('no live worker handles queue "orders"; start one');
    const others = queue("others", { keySpace: "orders" });
    const handlers = [queue("orders").handle(() => undefined)];
    await mill.enqueue(others, 1);
    await mill.startWorker({ ...BRISK, handlers });
    const keyed = await mill.enqueue(queue("orders"), 1, { partitionKey: "key" });
    expect(await mill.tasks.why(keyed.id)).toBe(
      'no worker owns the bucket of key "key": none handles all queues of key space "orders"',
    );
  });

  it("nobody alive handles its queue", async () => {
    const { database, mill } = await scene();
    await mill.close();
    const other = await database.connect();
    // Killed, and no leader is left to see it.
    const id = "00000000-0000-4000-8000-000000000001";
    await database.pool.query(
      `INSERT INTO tidemill.worker_info
              (worker_id, status, host, pid, version, capabilities, queues)
       VALUES ($1, 'active', 'lost', 1, '0', '{}', '{orders}')`,
      [id],
    );
    await database.pool.query(
      `INSERT INTO ${WORKER_NODES} (worker_id, heartbeat_at)
       VALUES ($1, NOW() - INTERVAL '1 hour')`,
      [id],
    );
    const task = await other.enqueue("orders", "ok");
    expect(await other.tasks.why(task.id)).toBe('no live worker handles queue "orders"; start one');
  });

  it("the queue's limit is reached", async () => {
    const one = await scene({ limits: { concurrency: 2 } }, 5);
    const ids = (
      await one.mill.enqueueMany(
        "orders",
        range(3).map(() => ({ payload: "wait" })),
      )
    ).map(({ id }) => id);
    await eventually(async () => {
      const running = "SELECT id FROM tidemill.tasks WHERE state = 'running'";
      expect(await readColumn(one.database, running)).toHaveLength(2);
    });
    expect(await one.mill.tasks.why(ids[2] ?? "")).toBe(
      'queue "orders" runs as many tasks as its limit allows (2)',
    );
    one.go.open();
  });

  it("the queue's rate is used up", async () => {
    const one = await scene({ limits: { rate: { count: 2, seconds: 600 } } }, 5);
    const tasks = await one.mill.enqueueMany(
      "orders",
      range(3).map(() => ({ payload: "ok" })),
    );
    await tasks[1]?.result();
    const why = "its 2 starts per 600 s are used up";
    const limited = new RegExp(`^queue "orders" is rate limited until (${AT}): ${why}$`);
    await eventuallySays(one, tasks[2]?.id ?? "", limited);
    const [, until = ""] = limited.exec(await one.mill.tasks.why(tasks[2]?.id ?? "")) ?? [];
    const claimedAt = "SELECT min(claimed_at) FROM tidemill.task_history";
    const [start] = await readColumn<Date>(one.database, claimedAt);
    const seconds = (Date.parse(until) - (start?.getTime() ?? 0)) / 1000;
    expect(seconds).toBeGreaterThanOrEqual(600);
    expect(seconds).toBeLessThan(607); // Starts are summed up in hundredths.
  });

  it("the rate of its key is used up, or its owner does not know it yet", async () => {
    const one = await scene({ limits: { keyRate: { count: 1, seconds: 4 } } });
    await eventually(async () => expect((await one.mill.queues.ring())[0]?.owners).toHaveLength(1));
    const [head, next] = await one.mill.enqueueMany("orders", [
      { payload: "ok", partitionKey: "key" },
      { payload: "ok", partitionKey: "key" },
    ]);
    const limited = `^key "key" is rate limited until ${AT}: `;
    const taken = new RegExp(`${limited}its worker has just taken it over$`);
    await eventuallySays(one, head?.id ?? "", taken);
    await head?.result();
    const used = new RegExp(`${limited}its 1 start per 4 s is used up$`);
    await eventuallySays(one, next?.id ?? "", used);
    await next?.result();
  });

  it("others are before it, or every slot is taken", async () => {
    const one = await scene();
    const tasks = await one.mill.enqueueMany(
      "orders",
      range(4).map(() => ({ payload: "wait" })),
    );
    await eventuallySays(one, tasks[0]?.id ?? "", /^it is running on worker/);
    expect(await one.mill.tasks.why(tasks[1]?.id ?? "")).toBe(
      "it is next in its lane and starts when a worker has a free slot",
    );
    expect(await one.mill.tasks.why(tasks[3]?.id ?? "")).toBe("2 tasks of its lane are before it");
    one.go.open();
  });

  it("it has ended, or is told to stop", async () => {
    const one = await scene();
    const refused = await one.mill.enqueue("orders", "refuse");
    await eventuallySays(one, refused.id, new RegExp(`^it was refused at ${AT}: no such thing$`));
    const cancelled = await one.mill.enqueue("orders", "ok", { delaySeconds: 60 });
    await one.mill.tasks.cancel(cancelled.id, { reason: "not wanted" });
    await eventuallySays(one, cancelled.id, new RegExp(`^it was cancelled at ${AT}: not wanted$`));
    const running = await one.mill.enqueue("orders", "wait");
    await eventuallySays(one, running.id, /^it is running on worker/);
    await one.mill.tasks.cancel(running.id, { reason: "enough" });
    await eventuallySays(one, running.id, /; its handler was told to stop: enough$/);
    one.go.open();
  });
});
