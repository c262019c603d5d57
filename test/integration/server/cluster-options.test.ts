import { expect, it } from "vitest";
import { ConfigError } from "../../../src/index.ts";
import { TidemillServer } from "../../../src/server/index.ts";
import { eventually } from "../../support/eventually.ts";
import { scene } from "./scene.ts";

it("takes part in the cluster with the heartbeats that it was given", async () => {
  const { server, database } = await scene({
    server: { worker: { port: 0 }, cluster: { heartbeatInterval: 40, heartbeatTimeout: 5_000 } },
  });
  const beat = async (): Promise<number> => {
    const { rows } = await database.pool.query<{ ms: number }>(
      `SELECT (extract(epoch FROM heartbeat_at) * 1000)::float8 AS ms
         FROM tidemill.worker_nodes WHERE worker_id = $1`,
      [server.workerId],
    );
    return rows[0]?.ms ?? Number.NaN;
  };
  let last = await beat();
  // Sooner or later two are close together, which those of the default never are: by three seconds.
  await eventually(async () => {
    const gapMs = (await beat()) - last;
    last += gapMs;
    expect(gapMs).toBeGreaterThan(0);
    expect(gapMs).toBeLessThan(1_500);
  });
});

it("refuses settings that cannot work before anything listens", async () => {
  const { mill } = await scene();
  for (const [cluster, reason] of [
    [{ heartbeatInterval: 500, heartbeatTimeout: 600 }, "twice heartbeatInterval"],
    [{ leaderStrategy: "luck" }, "leaderStrategy"],
    [{ concurrency: 7 }, "concurrency"],
    [7, "cluster must be"],
  ] as const) {
    const make = (): TidemillServer => new TidemillServer(mill, { cluster: cluster as never });
    expect(make).toThrow(ConfigError);
    expect(make).toThrow(reason);
  }
});
