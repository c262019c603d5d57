import { expect, it } from "vitest";
import { eventually } from "../../support/eventually.ts";
import { MixedCluster, salsaTraffic } from "../../support/salsa-cluster.ts";
import { expectEachOnceInOrder } from "./scenario.ts";

// A salsa leader writes every assignment in one transaction as soon as one is free, and waits in it
// for whoever holds a row. A consumer that is given back early would make it wait for the batch
// that still runs, and all others for the leader.
it("holds up no salsa member while the last batch of a stopping worker takes long", {
  timeout: 60_000,
}, async () => {
  const cluster = await MixedCluster.create("stream", "advisory");
  await cluster.migrate();
  const traffic = await salsaTraffic(cluster);
  const leader = await cluster.startSalsa();
  await cluster.eventuallyLeads(leader);
  let busy: string | undefined;
  let isSlow = false;
  let release = (): void => {};
  const released = new Promise<void>((resolve) => {
    release = resolve;
  });
  const stopping = await cluster.startOurs(async (name) => {
    if (isSlow) busy ??= name;
    if (busy === name) await released;
  });
  await cluster.eventuallyBalanced();
  await cluster.eventuallyServed();

  isSlow = true;
  await eventually(() => expect(busy).toBeDefined());
  const stopped = stopping.stop();
  await eventually(() => expect(stopping.worker.assigned).toEqual([busy]));
  await cluster.eventuallyLooked(leader);
  await cluster.eventuallyServed(leader);

  release();
  await stopped;
  cluster.members.delete(stopping);
  await cluster.eventuallyBalanced();
  await cluster.eventuallyServed();
  await traffic.stop();
  await eventually(() => expectEachOnceInOrder(cluster), { everyMs: 100 });
  expect([leader.failure, stopping.failure]).toEqual([undefined, undefined]);
});
