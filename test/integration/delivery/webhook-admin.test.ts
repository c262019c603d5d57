import { expect, it } from "vitest";
import { createWebhookSecret } from "../../../src/delivery/signature.ts";
import type { WebhookAdmin } from "../../../src/index.ts";
import { endTask, newScene } from "./webhook-scene.ts";

const URL = "https://hooks.example.org/a";

it("an endpoint becomes what is put, and the same again changes nothing", async () => {
  const { webhooks } = (await newScene()).mill;
  const secret = createWebhookSecret();
  const first = await webhooks.put("acme", "a", { url: URL, secret, description: "of acme" });
  expect(first.secret?.reveal()).toBe(secret);
  expect(first.endpoint).toMatchObject({ id: "a", tenant: "acme", format: "standard", url: URL });
  const again = await webhooks.put("acme", "a", { url: URL, secret, description: "of acme" });
  expect(again).toMatchObject({ endpoint: { description: "of acme" }, secret: undefined });
  await expect(
    webhooks.put("acme", "a", { url: URL, secret: createWebhookSecret() }),
  ).rejects.toMatchObject({ code: "TM_CONFLICT" });
  // What signs in one form need not in the other.
  const codeq = { url: URL, format: "codeq", secret: "sixteen-letters!" } as const;
  await webhooks.put("acme", "b", codeq);
  await expect(webhooks.put("acme", "b", { url: URL })).rejects.toThrow(/must be whsec_/);

  const { endpoint: off } = await webhooks.put("acme", "a", { url: URL, isEnabled: false });
  expect(off).toMatchObject({ description: undefined, disabledReason: "a person disabled it" });
  const { endpoint: still } = await webhooks.put("acme", "a", { url: URL });
  expect(still.disabledAt).toEqual(off.disabledAt);
  const { endpoint: on } = await webhooks.put("acme", "a", { url: URL, isEnabled: true });
  expect(on.disabledAt).toBeUndefined();
  expect((await webhooks.list("acme")).map(({ id }) => id)).toEqual(["a", "b"]);
  await webhooks.remove("acme", "a");
  expect((await webhooks.list("acme")).map(({ id }) => id)).toEqual(["b"]);
});

it("of rotations at once one wins, and the first use of a secret at once makes one", async () => {
  const { webhooks } = (await newScene()).mill;
  const made = await Promise.all(
    Array.from({ length: 4 }, () => webhooks.secrets("acme", "default")),
  );
  const texts = new Set(made.flat().map((one) => one.reveal()));
  expect(texts.size).toBe(1);
  const [before] = texts;
  const results = await Promise.allSettled(
    Array.from({ length: 4 }, () => webhooks.rotate("acme", "default", { overlapSeconds: 60 })),
  );
  const secrets = (await webhooks.secrets("acme", "default")).map((one) => one.reveal());
  const done = results.flatMap((one) => (one.status === "fulfilled" ? [one.value] : []));
  const failed = results.flatMap((one) => (one.status === "rejected" ? [one.reason] : []));
  // Those that came after another had ended saw its secret, and replaced it in turn.
  expect(done.length).toBeGreaterThan(0);
  expect(done.map(({ secret }) => secret.reveal())).toContain(secrets[0]);
  expect([before, ...done.map(({ secret }) => secret.reveal())]).toContain(secrets[1]);
  for (const error of failed) expect(error).toMatchObject({ code: "TM_CONFLICT" });
});

it("of endpoints that are put at once a tenant gets as many as it may have", async () => {
  const { webhooks } = (await newScene()).mill;
  const put = async (id: string, tenant = "acme"): Promise<unknown> =>
    webhooks.put(tenant, id, { url: URL }, { endpointsMax: 3 });
  const ids = Array.from({ length: 12 }, (_, n) => `e${n}`);
  const results = await Promise.allSettled(ids.map((id) => put(id)));
  const refused = results.flatMap((one) => (one.status === "rejected" ? [one.reason] : []));
  expect(refused).toHaveLength(9);
  const full = { code: "TM_CONFLICT", message: expect.stringContaining("at most 3") };
  for (const error of refused) expect(error).toMatchObject(full);
  const kept = await webhooks.list("acme");
  expect(kept).toHaveLength(3);
  for (const { id } of kept) await put(id);
  await put("e0", "globex");
});

it("deliveries are listed in pages and by filters, newest first", async () => {
  const scene = await newScene();
  const { webhooks } = scene.mill;
  const tasks = [];
  for (const to of ["a", "b", URL, "a", URL]) tasks.push(await endTask(scene, to));
  await endTask(scene, "a", { tenant: "other" });
  const first = await webhooks.deliveries("default", { limit: 2 });
  expect(first.map(({ taskId }) => taskId)).toEqual([tasks[4], tasks[3]]);
  const rest = await webhooks.deliveries("default", { before: first[1]?.id ?? "" });
  expect(rest.map(({ taskId }) => taskId)).toEqual([tasks[2], tasks[1], tasks[0]]);
  const ofA = await webhooks.deliveries("default", { endpoint: "a", state: "pending" });
  expect(ofA.map(({ taskId }) => taskId)).toEqual([tasks[3], tasks[0]]);
  expect(await webhooks.deliveries("default", { type: "task.completed" })).toEqual([]);
  const plain = await webhooks.deliveries("default", { endpoint: "default" });
  expect(plain).toMatchObject([{ url: URL }, { url: URL }]);
  // What waits for its next attempt is sent now when it is named, not when it is swept up.
  expect(await webhooks.redeliver("default", { endpoint: "a" })).toBe(0);
  expect(await webhooks.redeliver("default", { ids: ofA.map(({ id }) => id) })).toBe(2);
});

const REFUSED: [string, (webhooks: WebhookAdmin) => Promise<unknown>, RegExp][] = [
  ["no tenant", (w) => w.list(""), /tenant must be a text/],
  ["an unknown option", (w) => w.put("t", "a", { uri: URL } as object), /did you mean "url"/],
  ["a short secret", (w) => w.put("t", "a", { url: URL, secret: "whsec_abc" }), /24 to 64/],
  ["an unknown format", (w) => w.put("t", "a", { url: URL, format: "x" as "codeq" }), /"codeq"/],
  ["an odd id", (w) => w.put("t", "a b", { url: URL }), /id of an endpoint has 1 to 64/],
  ["another scheme", (w) => w.put("t", "a", { url: "ftp://x" }), /must begin with https/],
  ["a password", (w) => w.put("t", "a", { url: "https://u:p@x.org" }), /not hold a password/],
  ["a long url", (w) => w.put("t", "a", { url: `${URL}${"x".repeat(1024)}` }), /at most 1024/],
  ["an odd isEnabled", (w) => w.put("t", "a", { url: URL, isEnabled: "no" as never }), /isEnabled/],
  ["a long overlap", (w) => w.rotate("t", "default", { overlapSeconds: 1e9 }), /overlapSeconds/],
  ["a state of none", (w) => w.deliveries("t", { state: "gone" as "dead" }), /state must be/],
  ["an odd cursor", (w) => w.deliveries("t", { before: "7" }), /is a UUID/],
  ["an odd task", (w) => w.deliveries("t", { taskId: "x" }), /task id/],
  ["an odd type", (w) => w.redeliver("t", { type: "x" as "task.dead" }), /type must be/],
  ["pending ones", (w) => w.redeliver("t", { state: "pending" as "dead" }), /state must be/],
  ["too many ids", (w) => w.redeliver("t", { ids: Array(1_001).fill(URL) }), /at most 1000/],
];

it("what makes no sense is refused, and says why", async () => {
  const { webhooks } = (await newScene()).mill;
  for (const [what, act, says] of REFUSED) await expect(act(webhooks), what).rejects.toThrow(says);
  const secret = "whsec_not-a-secret-but-long-enough";
  const error = await webhooks.put("t", "a", { url: URL, secret }).catch(String);
  expect(error).not.toContain(secret);
});
