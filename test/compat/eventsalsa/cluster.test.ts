import { describe, it } from "vitest";
import { runMixedCluster } from "./scenario.ts";

// cluster-lease.test.ts has the other strategy, so that both run at the same time.
describe.each(["stream", "aggregate"] as const)("a cluster on %s_* columns", (family) => {
  it("handles each event once and in order, led by either kind through the lock", {
    timeout: 60_000,
  }, async () => {
    await runMixedCluster(family, "advisory");
  });
});
