import { expect, it } from "vitest";
import { ConfigError } from "../../../src/index.ts";
import { TidemillServer } from "../../../src/server/index.ts";
import { eventually } from "../../support/eventually.ts";
import { scene } from "./scene.ts";

it("takes part in the cluster with the heartbeats that it was given", async () => {
  const { server, database } = await scene({
    server: { worker: { port: 0 }, cluster: { heartbeatInterval: 40, heartbeatTimeout: 400 } },
  });
  const beat = async (): Promise<number> => {
    const { rows } = await database.pool.query<{ ms: number }>(
      `SELECT (extract(epoch FROM heartbeat_at) * 1000)::float8 AS ms
         FROM tidemill.worker_nodes WHERE worker_id = $1`,
      [server.workerId],
    );
    return rows[0]?.ms ?? Number.NaN;
  };
  const first = await beat();
  const startedAtMs = performance.now();
  await eventually(async () => expect(await beat()).toBeGreaterThan(first));
  // Not after the three seconds of the default.
  expect(performance.now() - startedAtMs).toBeLessThan(2_000);
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
