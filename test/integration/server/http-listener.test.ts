import { once } from "node:events";
import { connect } from "node:net";
import { expect, it } from "vitest";
import { Supervisor } from "../../../src/base/supervisor.ts";
import { HttpListener } from "../../../src/server/http/listener.ts";
import { createMetricsPage } from "../../../src/server/http/metrics-page.ts";
import { onCleanup } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { bearer, openScene } from "./http-scene.ts";

it("serves over a socket, waits for who is under way, and then is gone", async () => {
  const { api, mill, log } = await openScene({ until: "test" });
  await mill.queues.ensure("mails");
  const listener = new HttpListener(
    { port: 0, drainSeconds: 20 },
    { name: "http", fetch: api.fetch, onDrain: api.drain, logger: log },
  );
  const port = await listener.listen();
  const supervisor = new Supervisor([listener]);
  onCleanup(() => supervisor.stop());
  const url = `http://127.0.0.1:${port}`;
  const headers = { authorization: bearer("producer"), "content-type": "application/json" };
  expect(await (await fetch(`${url}/healthz`)).json()).toEqual({ status: "ok" });
  expect(await (await fetch(`${url}/readyz`)).json()).toEqual({ status: "ready" });
  const body = '{"queue":"mails","payload":{"n": 1.0}}';
  const made = await fetch(`${url}/v1/tasks`, { method: "POST", headers, body });
  expect(made.status).toBe(201);
  const { id } = (await made.json()) as { id: string };
  const found = await fetch(`${url}/v1/tasks/${id}`, { headers });
  expect(await found.text()).toContain('"payload":{"n": 1.0}');

  // A body whose length nobody declared, and that never ends.
  const endless = connect(port, "127.0.0.1");
  await once(endless, "connect");
  endless.on("error", () => {});
  endless.write(
    `POST /v1/tasks HTTP/1.1\r\nhost: x\r\nauthorization: ${bearer("producer")}\r\n` +
      "content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n",
  );
  const chunk = `100000\r\n${"x".repeat(0x100000)}\r\n`;
  for (let n = 0; n < 9 && endless.writable; n += 1) endless.write(chunk);
  const [answer] = (await once(endless, "data")) as [Buffer];
  expect(answer.toString()).toMatch(/^HTTP\/1.1 413 /);
  endless.destroy();

  const silent = connect(port, "127.0.0.1"); // Keeps nobody waiting.
  await once(silent, "connect");
  onCleanup(async () => void silent.destroy());
  const waiting = fetch(`${url}/v1/tasks/${id}/result?waitSeconds=60`, { headers });
  await eventually(() => expect(api.metrics.waits.value()).toBe(1));
  const stopped = supervisor.stop();
  await eventually(async () => {
    const ready = await api.fetch(new Request("http://x/readyz"));
    expect([ready.status, await ready.json()]).toEqual([503, { status: "draining" }]);
  });
  await mill.tasks.cancel(id, { reason: "over" });
  expect(await (await waiting).json()).toEqual({ id, state: "cancelled", reason: "over" });
  await stopped;
  await expect(fetch(`${url}/healthz`)).rejects.toThrow();
});

it("gives up a wait when its caller has hung up", async () => {
  const { api, mill } = await openScene({ until: "test" });
  await mill.queues.ensure("mails");
  const { id } = await mill.enqueue("mails", 1, { tenant: "acme" });
  const listener = new HttpListener({ port: 0 }, { name: "http", fetch: api.fetch });
  const supervisor = new Supervisor([listener]);
  onCleanup(() => supervisor.stop());
  const url = `http://127.0.0.1:${await listener.listen()}/v1/tasks/${id}/result?waitSeconds=60`;
  const gone = new AbortController();
  const headers = { authorization: bearer("producer") };
  const waiting = fetch(url, { headers, signal: gone.signal });
  await eventually(() => expect(api.metrics.waits.value()).toBe(1));
  gone.abort();
  await expect(waiting).rejects.toThrow();
  await eventually(() => expect(api.metrics.waits.value()).toBe(0));
});

it("says that it is not ready while its tables are not as they should be", async () => {
  const { database, api } = await openScene({ until: "test" });
  await database.pool.query("DELETE FROM tidemill.migrations WHERE version > 9");
  const ready = await api.fetch(new Request("http://x/readyz"));
  expect([ready.status, await ready.json()]).toEqual([503, { status: "database" }]);
  expect((await api.fetch(new Request("http://x/healthz"))).status).toBe(200);
});

it("refuses a port that is taken, and says which", async () => {
  const fetch = (): Promise<Response> => Promise.resolve(new Response());
  const first = new HttpListener({ port: 0 }, { name: "first", fetch });
  const port = await first.listen();
  const supervisor = new Supervisor([first]);
  onCleanup(() => supervisor.stop());
  const second = new HttpListener({ port }, { name: "second", fetch });
  await expect(second.listen()).rejects.toThrow(`cannot listen on 127.0.0.1:${port}`);
});

it("serves metrics at a port of their own", async () => {
  const { api, mill, call } = await openScene({ until: "test" });
  await call("GET", "/v1/tasks/1");
  const page = createMetricsPage([mill.metrics, mill.taskMetrics, api.metrics]);
  const listener = new HttpListener({ port: 0 }, { name: "metrics", fetch: page });
  const supervisor = new Supervisor([listener]);
  onCleanup(() => supervisor.stop());
  const url = `http://127.0.0.1:${await listener.listen()}`;
  const text = await (await fetch(`${url}/metrics`)).text();
  expect(text).toContain(
    'tidemill_http_requests_total{method="get",path="/v1/tasks/:id",status="404"} 1\n',
  );
  expect(text).toContain("# TYPE tidemill_events_handled_total counter\n");
  expect(text).toContain("# TYPE tidemill_tasks_enqueued_total counter\n");
  expect(text.match(/^# TYPE (\S+)/gm)?.length).toBe(new Set(text.match(/^# TYPE (\S+)/gm)).size);
  expect((await fetch(`${url}/other`)).status).toBe(404);
  expect((await fetch(`${url}/metrics`, { method: "POST" })).status).toBe(405);
});
