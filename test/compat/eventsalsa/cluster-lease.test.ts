import { describe, it } from "vitest";
import { runMixedCluster } from "./scenario.ts";

describe.each(["stream", "aggregate"] as const)("a cluster on %s_* columns", (family) => {
  it("handles each event once and in order, led by either kind through the lease", {
    timeout: 60_000,
  }, async () => {
    await runMixedCluster(family, "lease");
  });
});
