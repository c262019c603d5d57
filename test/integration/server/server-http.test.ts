import { expect, it } from "vitest";
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
