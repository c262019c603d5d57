import { expect, it } from "vitest";
import { systemClock } from "../../../src/base/clock.ts";
import { forgetDeliveries } from "../../../src/delivery/sql/deliveries.ts";
import { queue } from "../../../src/index.ts";
import { onCleanup } from "../../support/database.ts";
import { engineDatabase } from "../../support/engine-database.ts";
import { eventually } from "../../support/eventually.ts";
import { startRelay } from "../../support/relay.ts";
import { BRISK, gate, range } from "../tasks/scene.ts";
import {
  deliveryIn,
  deliveryOf,
  endTask,
  letTimePass,
  newScene,
  receiver,
  startSender,
  type WebhookScene,
} from "./webhook-scene.ts";

/** Ends so many tasks at once. */
async function endMany(scene: WebhookScene, count: number, webhook: string): Promise<string[]> {
  const handles = await scene.mill.enqueueMany(
    queue("many"),
    range(count).map((payload) => ({ payload, webhook })),
  );
  await Promise.all(handles.map(({ id }) => scene.mill.tasks.cancel(id)));
  return handles.map(({ id }) => id);
}

async function countIn({ database }: WebhookScene, state: string): Promise<number> {
  const { rows } = await database.pool.query<{ count: number }>(
    "SELECT count(*)::int AS count FROM tidemill.webhook_deliveries WHERE state = $1",
    [state],
  );
  return rows[0]?.count ?? 0;
}

it("three senders deliver each message once, and few at once to one endpoint", async () => {
  const scene = await newScene();
  let calling = 0;
  let most = 0;
  const hooks = await receiver((response) => {
    calling += 1;
    most = Math.max(most, calling);
    setImmediate(() => {
      calling -= 1;
      response.writeHead(200).end();
    });
  });
  await endMany(scene, 150, hooks.url());
  const senders = range(3).map(() => startSender(scene, [hooks.port], { endpointConcurrency: 2 }));
  await eventually(async () => expect(await countIn(scene, "delivered")).toBe(150));
  const ids = hooks.received.map(({ headers }) => headers["webhook-id"]);
  expect(ids).toHaveLength(150);
  expect(new Set(ids).size).toBe(150);
  expect(most).toBeLessThanOrEqual(6);
  expect(senders.map(({ metrics }) => metrics.late.value())).toEqual([0, 0, 0]);
});

it("receivers that do not answer delay nobody else, not even those of many hosts", async () => {
  const scene = await newScene();
  const hold = gate();
  const slow = await receiver((response) => {
    void hold.opened.then(() => response.writeHead(200).end());
  });
  const quick = await receiver();
  await scene.mill.webhooks.put("default", "slow", { url: slow.url() });
  await endMany(scene, 60, "slow");
  for (const host of range(8)) {
    for (const _ of range(3)) await endTask(scene, slow.url("/", `h${host}.hooks.test`));
  }
  const ports = [slow.port, quick.port];
  startSender(scene, ports, { concurrency: 8, endpointConcurrency: 2 });
  // The tenant's half of all places, each in a call that does not end.
  await eventually(() => expect(slow.received).toHaveLength(4));
  const other = await endTask(scene, quick.url(), { tenant: "acme" });
  await deliveryIn(scene, other, "delivered", "acme");
  expect(slow.received).toHaveLength(4);
  expect(await countIn(scene, "running")).toBe(4);
  hold.open();
  await eventually(async () => expect(await countIn(scene, "delivered")).toBe(85));
});

it("one slow endpoint of a tenant does not delay its others", async () => {
  const scene = await newScene();
  const hold = gate();
  const hooks = await receiver((response, { path }) => {
    if (path === "/slow") void hold.opened.then(() => response.writeHead(200).end());
    else response.writeHead(200).end();
  });
  for (const id of ["slow", "quick"]) {
    await scene.mill.webhooks.put("default", id, { url: hooks.url(`/${id}`) });
  }
  await endMany(scene, 20, "slow");
  startSender(scene, [hooks.port], { concurrency: 8, endpointConcurrency: 2 });
  await eventually(() => expect(hooks.received).toHaveLength(2));
  await deliveryIn(scene, await endTask(scene, "quick"), "delivered");
  hold.open();
  await eventually(async () => expect(await countIn(scene, "delivered")).toBe(21));
});

it("a crash after the answer leads to the same message again", async () => {
  const scene = await newScene();
  let isCut = false;
  const relay = await startRelay(
    scene.database.url,
    (client, server) => void client.pipe(server).pipe(client),
    { isRefusing: () => isCut },
  );
  const hooks = await receiver((response, _, count) => {
    if (count === 1) {
      isCut = true;
      for (const socket of relay.sockets) socket.destroy();
    }
    response.writeHead(200).end();
  });
  const first = startSender(scene, [hooks.port], { url: relay.url });
  const taskId = await endTask(scene, hooks.url());
  await eventually(() => expect(hooks.received).toHaveLength(1));
  await first.stop();
  expect(await deliveryOf(scene, taskId)).toMatchObject({ state: "running", attempt: 1 });

  startSender(scene, [hooks.port]);
  await letTimePass(scene); // The lease ends.
  const { id } = await deliveryIn(scene, taskId, "delivered");
  expect(hooks.received.map(({ headers }) => headers["webhook-id"])).toEqual([id, id]);
  expect(hooks.received[0]?.body).toBe(hooks.received[1]?.body);
  const { attempts } = await scene.mill.webhooks.delivery("default", id);
  expect(attempts).toMatchObject([
    { attempt: 1, error: "lost" },
    { attempt: 2, status: 200 },
  ]);
});

it("the word of a sender whose lease has ended changes nothing", async () => {
  const scene = await newScene();
  const hold = gate();
  const hooks = await receiver((response, _, count) => {
    if (count === 1) void hold.opened.then(() => response.writeHead(500).end());
    else response.writeHead(200).end();
  });
  const paused = startSender(scene, [hooks.port], { concurrency: 1 });
  const taskId = await endTask(scene, hooks.url());
  await eventually(() => expect(hooks.received).toHaveLength(1));
  startSender(scene, [hooks.port]);
  await letTimePass(scene);
  const { id } = await deliveryIn(scene, taskId, "delivered");
  hold.open();
  await eventually(() => expect(paused.metrics.late.value()).toBe(1));
  expect(await deliveryOf(scene, taskId)).toMatchObject({ state: "delivered", lastStatus: 200 });
  const { attempts } = await scene.mill.webhooks.delivery("default", id);
  expect(attempts.map(({ status }) => status)).toEqual([undefined, 200]);
});

it("an outcome whose write got no answer is late when the lease has ended meanwhile", async () => {
  const scene = await newScene();
  const hold = gate();
  const hooks = await receiver((response, _, count) => {
    if (count === 1) void hold.opened.then(() => response.writeHead(200).end());
    else response.writeHead(200).end();
  });
  const line = { isCut: false, cuts: 0 };
  const relay = await startRelay(scene.database.url, (client, server) => {
    client.on("data", (bytes) => {
      if (line.isCut && bytes.includes("delivery_record")) {
        line.cuts += 1;
        client.destroy(); // Unread: nothing was written, and the sender cannot know.
      } else server.write(bytes);
    });
    server.on("data", (bytes) => client.write(bytes));
    client.on("close", () => server.destroy());
    server.on("close", () => client.destroy());
  });
  const paused = startSender(scene, [hooks.port], { concurrency: 1, url: relay.url });
  const taskId = await endTask(scene, hooks.url());
  await eventually(() => expect(hooks.received).toHaveLength(1));
  startSender(scene, [hooks.port]);
  await letTimePass(scene);
  await deliveryIn(scene, taskId, "delivered");
  line.isCut = true;
  hold.open();
  await eventually(() => expect(line.cuts).toBe(1));
  line.isCut = false;
  await eventually(() => expect(paused.metrics.late.value()).toBe(1));
  expect(paused.metrics.outcomes.value({ outcome: "delivered" })).toBe(0);
});

it("a delivery that takes its senders along is dead in the end, unsent", async () => {
  const scene = await newScene();
  const hooks = await receiver();
  const taskId = await endTask(scene, hooks.url());
  await scene.database.pool.query(
    `UPDATE tidemill.webhook_deliveries
        SET state = 'running', claim_id = gen_random_uuid(), attempt = 2, generation = 2`,
  );
  startSender(scene, [hooks.port], { attemptsMax: 2 });
  expect(await deliveryIn(scene, taskId, "dead")).toMatchObject({ cause: "attempts_exhausted" });
  expect(hooks.received).toEqual([]);
});

it("a stop waits for answers, and gives back what it does not wait for", async () => {
  const scene = await newScene();
  const hold = gate();
  const hooks = await receiver((response) => {
    void hold.opened.then(() => response.writeHead(200).end());
  });
  const patient = startSender(scene, [hooks.port]);
  const first = await endTask(scene, hooks.url());
  await eventually(() => expect(hooks.received).toHaveLength(1));
  const stopping = patient.stop();
  hold.open();
  await stopping;
  expect(await deliveryOf(scene, first)).toMatchObject({ state: "delivered" });

  const never = await receiver(() => {});
  const hasty = startSender(scene, [never.port], { drainMs: 0 });
  const second = await endTask(scene, never.url());
  await eventually(() => expect(never.received).toHaveLength(1));
  await hasty.stop();
  expect(await deliveryOf(scene, second)).toMatchObject({ state: "pending", attempt: 0 });
});

it("the time to drain begins when nothing more is claimed", async () => {
  const scene = await newScene();
  const never = await receiver(() => {});
  let aheadMs = 0;
  const clock = { ...systemClock, now: () => systemClock.now() + aheadMs };
  const sender = startSender(scene, [never.port], { drainMs: 60_000, clock });
  const id = await endTask(scene, never.url());
  await eventually(() => expect(never.received).toHaveLength(1));
  sender.stopClaiming();
  aheadMs = 60_000;
  await sender.stop();
  expect(await deliveryOf(scene, id)).toMatchObject({ state: "pending", attempt: 0 });
}, 20_000);

it("a worker that delivers webhooks does so, and forgets them after historyDays", async () => {
  const scene = await newScene();
  const hooks = await receiver();
  const egress = {
    allowHttp: true,
    ports: [hooks.port],
    allowHosts: ["hooks.test"],
    resolve: async () => ["127.0.0.1"],
  };
  await using worker = await scene.mill.startWorker({ ...BRISK, deliverWebhooks: { egress } });
  const old = await deliveryIn(scene, await endTask(scene, hooks.url()), "delivered");
  const { outcomes } = scene.mill.deliveryMetrics;
  await eventually(() => expect(outcomes.value({ outcome: "delivered" })).toBe(1));
  await worker.stop();
  const db = engineDatabase(scene.database.url);
  onCleanup(() => db.close());
  await endMany(scene, 3, hooks.url());
  await scene.database.pool.query(
    `UPDATE tidemill.webhook_deliveries SET ended_at = ended_at - INTERVAL '8 days'
      WHERE id = $1`,
    [old.id],
  );
  expect(await forgetDeliveries(db, 9, 10)).toBe(0);
  expect(await forgetDeliveries(db, 7, 10)).toBe(1);
  await expect(scene.mill.webhooks.delivery("default", old.id)).rejects.toThrow(/was dropped/);
  expect(await countIn(scene, "pending")).toBe(3);
  const { rows } = await scene.database.pool.query("SELECT FROM tidemill.webhook_attempts");
  expect(rows).toEqual([]);
});
