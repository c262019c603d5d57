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
