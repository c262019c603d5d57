import { createHmac } from "node:crypto";
import { expect, it } from "vitest";
import { silentLogger } from "../../../src/base/log.ts";
import type { Logger } from "../../../src/index.ts";
import { HOOKS_TEST } from "../../support/egress-certificate.ts";
import { eventually } from "../../support/eventually.ts";
import {
  deliveryIn,
  deliveryOf,
  endTask,
  expectSigned,
  letTimePass,
  mails,
  newScene,
  receiver,
  startSender,
} from "./webhook-scene.ts";

const TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

it("a message is signed, told over TLS and recorded; the secret is made on first use", async () => {
  const scene = await newScene();
  const hooks = await receiver(undefined, { tls: HOOKS_TEST });
  const sender = startSender(scene, [hooks.port], { egress: { ca: HOOKS_TEST.cert } });
  const { id } = await scene.mill.enqueue(mails, 1, {
    webhook: hooks.url("/done?a=b"),
    traceParent: TRACE,
    traceState: "vendor=1",
  });
  await scene.mill.tasks.cancel(id, { reason: "enough" });
  const delivery = await deliveryIn(scene, id, "delivered");
  expect(delivery).toMatchObject({ endpoint: "default", attempt: 1, lastStatus: 204 });
  expect(hooks.received).toHaveLength(1);
  const [message] = hooks.received;
  expect(message).toMatchObject({
    path: "/done?a=b",
    headers: {
      "content-type": "application/json",
      "webhook-id": delivery.id,
      traceparent: TRACE,
      tracestate: "vendor=1",
    },
  });
  expect(JSON.parse(message?.body ?? "")).toMatchObject({
    id: delivery.id,
    type: "task.cancelled",
    at: delivery.at.toISOString(),
    data: { taskId: id, queue: "mails", tenant: "default", state: "cancelled", reason: "enough" },
  });
  await expectSigned(scene, message, "default");
  expect(await scene.mill.webhooks.delivery("default", delivery.id)).toMatchObject({
    attempts: [{ attempt: 1, status: 204, durationMs: expect.any(Number) }],
  });
  await eventually(() => expect(sender.metrics.outcomes.value({ outcome: "delivered" })).toBe(1));
});

it("during a rotation both secrets sign, and afterwards the new one alone", async () => {
  const scene = await newScene();
  const { webhooks } = scene.mill;
  const hooks = await receiver();
  startSender(scene, [hooks.port]);
  const { secret: old } = await webhooks.put("default", "billing", { url: hooks.url("/b") });
  const { endpoint, secret } = await webhooks.rotate("default", "billing");
  expect(endpoint.oldSecretUntil).toBeInstanceOf(Date);
  await deliveryIn(scene, await endTask(scene, "billing"), "delivered");
  const both = (await webhooks.secrets("default", "billing")).map((one) => one.reveal());
  expect(both).toEqual([secret.reveal(), old?.reveal()]);
  await expectSigned(scene, hooks.received[0], "billing");
  expect(String(hooks.received[0]?.headers["webhook-signature"]).split(" ")).toHaveLength(2);

  const { secret: last } = await webhooks.rotate("default", "billing", { overlapSeconds: 0 });
  await deliveryIn(scene, await endTask(scene, "billing"), "delivered");
  expect((await webhooks.secrets("default", "billing")).map((one) => one.reveal())).toEqual([
    last.reveal(),
  ]);
  await expectSigned(scene, hooks.received[1], "billing");
  expect(String(secret)).toBe("[secret]");
});

it("a receiver of CodeQ gets its form, signed with the secret that it has", async () => {
  const scene = await newScene();
  const hooks = await receiver();
  startSender(scene, [hooks.port]);
  const secret = "the-hmac-secret-of-codeq";
  const codeq = { url: hooks.url(), format: "codeq", secret } as const;
  await scene.mill.webhooks.put("default", "old", codeq);
  const taskId = await endTask(scene, "old", { reason: "gone wrong" });
  await deliveryIn(scene, taskId, "delivered");
  const [message] = hooks.received;
  const time = String(message?.headers["x-codeq-timestamp"]);
  const mac = createHmac("sha256", secret).update(`${time}.${message?.body}`).digest("hex");
  expect(message?.headers["x-codeq-signature"]).toBe(mac);
  expect(JSON.parse(message?.body ?? "")).toMatchObject({
    taskId,
    eventType: "mails",
    status: "FAILED",
    error: "gone wrong",
  });
});

it("a failed call is tried again, not before retry-after, with the same id and body", async () => {
  const scene = await newScene();
  const hooks = await receiver((response, _, count) => {
    if (count === 1) response.writeHead(500).end("out of\u0000order");
    else if (count === 2) response.writeHead(429, { "retry-after": "7200" }).end();
    else response.writeHead(200).end("thanks");
  });
  startSender(scene, [hooks.port]);
  const taskId = await endTask(scene, hooks.url());
  // From when the attempt was recorded, however late that is seen.
  const secondsUntil = async (attempt: number): Promise<number> =>
    await eventually(async () => {
      const found = await deliveryOf(scene, taskId);
      expect(found).toMatchObject({ state: "pending", attempt });
      const { attempts } = await scene.mill.webhooks.delivery("default", found.id);
      const recordedAt = attempts.at(-1)?.at.getTime() ?? NaN;
      return ((found.nextAt?.getTime() ?? NaN) - recordedAt) / 1_000;
    });
  const first = await secondsUntil(1);
  expect(first).toBeGreaterThan(5);
  expect(first).toBeLessThanOrEqual(10);
  await letTimePass(scene);
  expect(await secondsUntil(2)).toBeGreaterThan(7_000);
  await letTimePass(scene);
  const { id } = await deliveryIn(scene, taskId, "delivered");
  expect(hooks.received.map(({ headers }) => headers["webhook-id"])).toEqual([id, id, id]);
  expect(new Set(hooks.received.map(({ body }) => body)).size).toBe(1);
  const { attempts } = await scene.mill.webhooks.delivery("default", id);
  expect(attempts).toMatchObject([
    { attempt: 1, status: 500, answer: "out of\\0order", message: "the receiver answered 500" },
    { attempt: 2, status: 429, answer: undefined },
    { attempt: 3, status: 200, answer: "thanks" },
  ]);
});

it("after the last attempt it is dead, with an alarm, and a person sends it again", async () => {
  const scene = await newScene();
  let isWell = false;
  const hooks = await receiver((response) => void response.writeHead(isWell ? 200 : 503).end());
  const alarms: [object, string][] = [];
  const logger: Logger = {
    ...silentLogger,
    error: (fields, message) => alarms.push([fields, message]),
  };
  const { metrics } = startSender(scene, [hooks.port], { attemptsMax: 2, logger });
  const taskId = await endTask(scene, hooks.url());
  await eventually(async () =>
    expect(await deliveryOf(scene, taskId)).toMatchObject({ attempt: 1, state: "pending" }),
  );
  await letTimePass(scene);
  const dead = await deliveryIn(scene, taskId, "dead");
  expect(dead).toMatchObject({ cause: "attempts_exhausted", lastStatus: 503, attempt: 2 });
  const facts = { delivery: dead.id, task: taskId, cause: dead.cause };
  // The sender hears of its own commit, which may be later than others see it.
  await eventually(() =>
    expect(alarms).toEqual([[expect.objectContaining(facts), "webhook delivery is dead"]]),
  );
  expect(metrics.dead.value({ cause: "attempts_exhausted" })).toBe(1);

  isWell = true;
  expect(await scene.mill.webhooks.redeliver("default", { state: "delivered" })).toBe(0);
  expect(await scene.mill.webhooks.redeliver("default")).toBe(1);
  expect(await deliveryIn(scene, taskId, "delivered")).toMatchObject({ id: dead.id, attempt: 1 });
  expect(await scene.mill.webhooks.redeliver("default", { ids: [dead.id] })).toBe(1);
  await eventually(() => expect(hooks.received).toHaveLength(4));
  await deliveryIn(scene, taskId, "delivered");
  const ids = new Set(hooks.received.map(({ headers }) => headers["webhook-id"]));
  expect([...ids]).toEqual([dead.id]);
  expect((await scene.mill.webhooks.delivery("default", dead.id)).attempts).toHaveLength(4);
});

it("a 410 disables its endpoint until it has another address", async () => {
  const scene = await newScene();
  const { webhooks } = scene.mill;
  const hooks = await receiver((response, { path }) => {
    response.writeHead(path === "/gone" ? 410 : 200).end();
  });
  const { metrics } = startSender(scene, [hooks.port]);
  await webhooks.put("default", "shop", { url: hooks.url("/gone") });
  const first = await deliveryIn(scene, await endTask(scene, "shop"), "dead");
  expect(first).toMatchObject({ cause: "gone", lastStatus: 410, attempt: 1 });
  expect(await webhooks.get("default", "shop")).toMatchObject({
    disabledReason: "it answered 410",
  });
  await eventually(() => expect(metrics.disabled.value()).toBe(1));
  // The same definition again, as every start of a process brings it, does not enable it.
  await webhooks.put("default", "shop", { url: hooks.url("/gone") });
  const second = await deliveryIn(scene, await endTask(scene, "shop"), "dead");
  expect(second).toMatchObject({ cause: "disabled", lastStatus: undefined });
  expect(hooks.received).toHaveLength(1);
  const { endpoint } = await webhooks.put("default", "shop", { url: hooks.url("/new") });
  expect(endpoint.disabledAt).toBeUndefined();
  expect(await webhooks.redeliver("default", { endpoint: "shop" })).toBe(2);
  await deliveryIn(scene, first.taskId, "delivered");
  await deliveryIn(scene, second.taskId, "delivered");

  const plain = await deliveryIn(scene, await endTask(scene, hooks.url("/gone")), "dead");
  expect(plain).toMatchObject({ cause: "gone" });
  expect((await webhooks.get("default", "default")).disabledAt).toBeUndefined();
});

it("addresses of the own network are refused, recorded and never called", async () => {
  const scene = await newScene();
  const hooks = await receiver();
  startSender(scene, [hooks.port]);
  const targets = [
    `http://127.0.0.1:${hooks.port}/`,
    `http://[::1]:${hooks.port}/`,
    `http://2130706433:${hooks.port}/`,
    `http://localhost:${hooks.port}/`,
    `http://evil.example.org:${hooks.port}/`, // Resolves to 127.0.0.1 here.
    "http://169.254.169.254/latest/meta-data",
    "ftp-like",
  ];
  const ids = await Promise.all(targets.map((url) => endTask(scene, url)));
  const found = await Promise.all(ids.map((id) => deliveryIn(scene, id, "dead")));
  expect(found.map(({ cause }) => cause)).toEqual([
    ...targets.slice(1).map(() => "refused"),
    "no_endpoint",
  ]);
  expect(hooks.received).toEqual([]);
  const { attempts } = await scene.mill.webhooks.delivery("default", found[4]?.id ?? "");
  expect(attempts).toMatchObject([{ error: "TM_EGRESS_REFUSED", status: undefined }]);
  expect(attempts[0]?.message).toMatch(/only public ones are called/);
});

it("what is one tenant's does not exist for another", async () => {
  const scene = await newScene();
  const { webhooks } = scene.mill;
  const hooks = await receiver();
  startSender(scene, [hooks.port]);
  await webhooks.put("acme", "billing", { url: hooks.url("/acme") });
  const stolen = await endTask(scene, "billing", { tenant: "globex" });
  const own = await endTask(scene, "billing", { tenant: "acme" });
  expect(await deliveryIn(scene, stolen, "dead", "globex")).toMatchObject({ cause: "no_endpoint" });
  const { id } = await deliveryIn(scene, own, "delivered", "acme");
  expect(hooks.received).toHaveLength(1);
  // Plain addresses are signed with the secret of the task's own tenant.
  await deliveryIn(
    scene,
    await endTask(scene, hooks.url("/g"), { tenant: "globex" }),
    "delivered",
    "globex",
  );
  await expectSigned(scene, hooks.received[1], "default", "globex");
  await expect(expectSigned(scene, hooks.received[1], "default", "acme")).rejects.toThrow();

  expect(await webhooks.list("globex")).toMatchObject([{ id: "default" }]);
  await expect(webhooks.get("globex", "billing")).rejects.toThrow(/no webhook endpoint "billing"/);
  await expect(webhooks.secrets("globex", "billing")).rejects.toThrow(/no webhook endpoint/);
  await expect(webhooks.rotate("globex", "billing")).rejects.toThrow(/no webhook endpoint/);
  await expect(webhooks.remove("globex", "billing")).rejects.toThrow(/no webhook endpoint/);
  await expect(webhooks.delivery("globex", id)).rejects.toThrow(/no webhook delivery/);
  expect(await webhooks.deliveries("globex", { taskId: own })).toEqual([]);
  expect(await webhooks.deliveries("globex", { before: id })).toEqual([]);
  expect(await webhooks.redeliver("globex", { ids: [id] })).toBe(0);
  expect(await webhooks.redeliver("globex", { state: "delivered", taskId: own })).toBe(0);
  expect(await deliveryOf(scene, own, "acme")).toMatchObject({ state: "delivered" });
});
