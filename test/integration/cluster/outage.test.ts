import { expect, it } from "vitest";
import { consumer, Tidemill } from "../../../src/index.ts";
import { onCleanup, testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { FAST } from "../../support/options.ts";
import { ownServer } from "../../support/own-server.ts";

it("an outage of more than twice the heartbeat timeout ends no worker", async () => {
  const server = await ownServer();
  onCleanup(() => server.remove());
  const { url } = await testDatabase({ server: server.url });
  const mills = await Promise.all(Array.from({ length: 3 }, () => Tidemill.connect(url)));
  for (const mill of mills) onCleanup(() => mill.close());
  const handled = new Set<bigint>();
  const seen = consumer("seen", { handle: (event) => void handled.add(event.position) });
  const beats = { heartbeatInterval: 300, heartbeatTimeout: 1_500 };
  const ended: unknown[] = [];
  for (const mill of mills) {
    const worker = await mill.startWorker({ consumers: [seen], ...FAST, ...beats });
    worker.finished.catch((error: unknown) => ended.push(error));
  }

  await server.crash();
  const downUntil = performance.now() + 3 * beats.heartbeatTimeout;
  await eventually(() => expect(performance.now()).toBeGreaterThan(downUntil));
  await server.start();

  const [mill] = mills;
  const stream = { type: "Order", id: "1" };
  const appended = await eventually(async () => await mill?.append(stream, [{ type: "Paid" }]));
  await eventually(() => expect(handled).toContain(appended?.position));
  // All beat again, and the leader has had time to judge them.
  const longAfter = performance.now() + 3 * beats.heartbeatTimeout;
  await eventually(async () => {
    const status = await mill?.status();
    expect(status?.workers.filter((worker) => worker.status === "active")).toHaveLength(3);
    expect(performance.now()).toBeGreaterThan(longAfter);
  });
  expect(ended).toEqual([]);
}, 60_000);
