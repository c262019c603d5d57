import { expect, it } from "vitest";
import { ConfigError } from "../../../src/index.ts";
import { TidemillServer } from "../../../src/server/index.ts";
import { eventually } from "../../support/eventually.ts";
import { scene } from "./scene.ts";

it("takes part in the cluster with the heartbeats that it was given", async () => {
  const cluster = { heartbeatInterval: 40, heartbeatTimeout: 5_000 };
  const { database } = await scene({ server: { worker: { port: 0 }, httpJobs: true, cluster } });
  const beats = async (): Promise<Map<string, number>> => {
    const { rows } = await database.pool.query<{ worker_id: string; ms: number }>(
      `SELECT worker_id, (extract(epoch FROM heartbeat_at) * 1000)::float8 AS ms
         FROM tidemill.worker_nodes`,
    );
    return new Map(rows.map(({ worker_id, ms }) => [worker_id, ms]));
  };
  let last = await beats();
  expect(last.size).toBe(2); // One hands tasks out, one makes calls.
  const brisk = new Set<string>();
  // Sooner or later two are close together, which those of the default never are: by three seconds.
  await eventually(async () => {
    const now = await beats();
    for (const [id, ms] of now) {
      const gapMs = ms - (last.get(id) ?? ms);
      if (gapMs > 0 && gapMs < 1_500) brisk.add(id);
    }
    last = now;
    expect(brisk.size).toBe(2);
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
