import { beforeEach, expect, it } from "vitest";
import { expectOnceInOrder } from "../../support/cluster.ts";
import { CONSUMERS, goneOnAfterMs, holdBatches, QUICK } from "../../support/held-batch.ts";
import { type SilentProxy, startSilentProxy } from "../../support/silent-proxy.ts";
import { pooledSuite } from "./pooled.ts";

const { missing, pooler, connect } = pooledSuite({ default_pool_size: "12" });

beforeEach((context) => {
  if (missing !== undefined) context.skip(missing);
});

it("ends the very session that a silent worker's batch has behind the pooler", async () => {
  let proxy: SilentProxy | undefined;
  const held = await holdBatches({
    options: { leaderStrategy: "lease", dispatcherStrategy: "poll" },
    others: connect,
    victim: async (url) => (proxy = await startSilentProxy(pooler().through(url))),
  });
  const afterMs = await goneOnAfterMs(held, () => proxy?.swallow());
  expect(afterMs).toBeLessThan(QUICK.heartbeatTimeout + 1_000);
  await expectOnceInOrder(held.database.pool, CONSUMERS, held.positions);
});
