import { once } from "node:events";
import type { IncomingMessage } from "node:http";
import { request } from "node:https";
import { expect, it } from "vitest";
import { HOOKS_TEST } from "../../support/egress-certificate.ts";
import { eventually } from "../../support/eventually.ts";
import { serve } from "../../support/http-server.ts";
import { ACME, scene } from "./scene.ts";

it("serves HTTP and its metrics beside the streams, and goes with them", async () => {
  const { server } = await scene({ server: { http: { port: 0 }, metrics: { port: 0 } } });
  const at = (name: "http" | "metrics"): string => {
    const { host, port } = server.address(name);
    return `http://${host}:${port}`;
  };
  expect(await (await fetch(`${at("http")}/readyz`)).json()).toEqual({ status: "ready" });
  const made = await fetch(`${at("http")}/v1/codeq/tasks`, {
    method: "POST",
    headers: { authorization: `Bearer ${ACME}`, "content-type": "application/json" },
    body: JSON.stringify({ command: "mails", payload: { n: 1 } }),
  });
  expect(made.status).toBe(202);
  const page = await (await fetch(`${at("metrics")}/metrics`)).text();
  expect(page).toContain("tidemill_streams");
  expect(page).toContain("tidemill_tasks_enqueued_total");
  await server.stop();
  await expect(fetch(`${at("http")}/readyz`)).rejects.toThrow();
});

it("tells the webhook of a task that its tenant cancels behind the wall", async () => {
  const { server, database } = await scene({ server: { http: { port: 0 }, requireWall: true } });
  const { host, port } = server.address("http");
  const call = async (path: string, body: object): Promise<Record<string, string>> => {
    const answer = await fetch(`http://${host}:${port}${path}`, {
      method: "POST",
      headers: { authorization: `Bearer ${ACME}`, "content-type": "application/json" },
      body: JSON.stringify(body),
    });
    expect(answer.ok).toBe(true);
    return (await answer.json()) as Record<string, string>;
  };
  const given = {
    command: "mails",
    payload: {},
    delaySeconds: 600,
    webhook: "https://example.com/",
  };
  const { id } = await call("/v1/codeq/tasks", given);
  await call(`/v1/tasks/${id}/cancel`, { reason: "not wanted" });
  const { rows } = await database.pool.query(
    "SELECT tenant, task_id::text, type FROM tidemill.webhook_deliveries",
  );
  expect(rows).toEqual([{ tenant: "acme", task_id: id, type: "task.cancelled" }]);
});

it("asks HTTP clients for a certificate where it asks for one", async () => {
  const { cert, key } = HOOKS_TEST;
  const tls = { cert, key, clientCa: cert };
  const { server } = await scene({ server: { http: { port: 0 }, tls } });
  const { port } = server.address("http");
  const status = async (own: object): Promise<number | undefined> => {
    const sent = request({ host: "127.0.0.1", port, path: "/healthz", ca: cert, ...own });
    sent.end();
    const [answer] = (await once(sent, "response")) as [IncomingMessage];
    answer.resume();
    return answer.statusCode;
  };
  expect(await status({ cert, key })).toBe(200);
  await expect(status({})).rejects.toThrow();
});

it("sends webhooks, and refuses endpoints that it could never call", async () => {
  const told: string[] = [];
  const receiver = await serve((incoming, outgoing) => {
    told.push(String(incoming.headers["webhook-id"]));
    outgoing.end();
  });
  const { server } = await scene({
    server: {
      http: { port: 0 },
      deliverWebhooks: true,
      egress: { allowHttp: true, ports: [receiver.port, 443], allowCidrs: ["127.0.0.1/32"] },
    },
  });
  const { host, port } = server.address("http");
  const call = async (method: string, path: string, body: object): Promise<Response> =>
    await fetch(`http://${host}:${port}${path}`, {
      method,
      headers: { authorization: `Bearer ${ACME}`, "content-type": "application/json" },
      body: JSON.stringify(body),
    });
  const url = `http://127.0.0.1:${receiver.port}/`;
  expect((await call("PUT", "/v1/webhooks/ours", { url })).status).toBe(200);
  const refused = await call("PUT", "/v1/webhooks/cloud", {
    url: "http://169.254.169.254:443/latest/meta-data/",
  });
  expect(refused.status).toBe(400);
  expect(await refused.json()).toMatchObject({
    code: "TM_INVALID_INPUT",
    detail: expect.stringMatching(/^the url of the endpoint cannot be called: /),
  });
  const task = { queue: "mails", webhook: "ours", delaySeconds: 600 };
  const { id } = (await (await call("POST", "/v1/tasks", task)).json()) as { id: string };
  await call("POST", `/v1/tasks/${id}/cancel`, {});
  await eventually(() => {
    expect(told).toHaveLength(1);
  });
  const log = await fetch(`http://${host}:${port}/v1/webhook-deliveries?taskId=${id}`, {
    headers: { authorization: `Bearer ${ACME}` },
  });
  expect(await log.json()).toMatchObject({ deliveries: [{ id: told[0], endpoint: "ours" }] });
});
