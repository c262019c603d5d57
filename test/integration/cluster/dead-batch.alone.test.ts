import { describe, expect, it } from "vitest";
import { eventuallyOwn, expectOnceInOrder, readWorkerIds } from "../../support/cluster.ts";
import { eventually } from "../../support/eventually.ts";
import {
  CONSUMERS,
  goneOnAfterMs,
  type HeldBatches,
  holdBatches,
  QUICK,
} from "../../support/held-batch.ts";
import { type SilentProxy, startSilentProxy } from "../../support/silent-proxy.ts";

/*
 * A worker that is paused or cut off in the middle of a batch keeps a session, and with it the row
 * of its consumer's assignment. batchTimeout, which ends that session at last, is far longer here.
 */

const BOUND_MS = QUICK.heartbeatTimeout + 1_000;
const FOLLOWER = ["another worker", false, "advisory"] as const;
const LEADER = ["the leader by advisory lock", true, "advisory"] as const;
const LEASEHOLDER = ["the leader by lease", true, "lease"] as const;

const expectAllOnce = ({ database, positions }: HeldBatches): Promise<void> =>
  expectOnceInOrder(database.pool, CONSUMERS, positions);

async function expectNobodyBlamed({ mill }: HeldBatches): Promise<void> {
  const { consumers } = await mill.status();
  expect(consumers.map(({ state }) => state)).toEqual(CONSUMERS.map(() => "running"));
}

describe("what a worker had in the middle of its batches goes on elsewhere", () => {
  const cut = [FOLLOWER, LEADER];
  it.each(cut)("in time when the network of %s falls silent", async (_, leads, strategy) => {
    let proxy: SilentProxy | undefined;
    const held = await holdBatches({
      leads,
      options: { leaderStrategy: strategy },
      victim: async (url) => (proxy = await startSilentProxy(url)),
    });
    const afterMs = await goneOnAfterMs(held, () => proxy?.swallow());
    expect(afterMs).toBeLessThan(BOUND_MS);
    await expectAllOnce(held);
    await expectNobodyBlamed(held);
  });

  const paused = [LEASEHOLDER];
  it.each(paused)("in time when %s is paused, which stops itself", async (_, leads, strategy) => {
    const held = await holdBatches({ leads, options: { leaderStrategy: strategy } });
    const { database, victim, other } = held;
    const afterMs = await goneOnAfterMs(held, () => victim.kill("SIGSTOP"));
    expect(afterMs).toBeLessThan(BOUND_MS);
    await eventually(async () => expect(await readWorkerIds(database.pool)).toEqual([other.id]));
    victim.kill("SIGUSR2");
    victim.kill("SIGCONT");
    const { code, said } = await victim.ended;
    expect({ code, last: said.at(-1) }).toEqual({ code: 1, last: "failed" });
    await expectAllOnce(held);
    await expectNobodyBlamed(held);
  });

  it("and the worker is given work again when it beats before it is removed", async () => {
    const options = { heartbeatInterval: 600, heartbeatTimeout: 5_000 };
    const held = await holdBatches({ options });
    const { database, victim, other } = held;
    const afterMs = await goneOnAfterMs(held, () => victim.kill("SIGSTOP"));
    expect(afterMs).toBeLessThan(options.heartbeatTimeout + 1_000);
    victim.kill("SIGUSR2");
    victim.kill("SIGCONT");
    await eventuallyOwn(database.pool, [
      [victim, 2],
      [other, 2],
    ]);
    await expectAllOnce(held);
    await expectNobodyBlamed(held);
  });
});
