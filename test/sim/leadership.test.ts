import { expect, it } from "vitest";
import { consumer } from "../../src/consumers/consumer.ts";
import { ClusterChecker } from "./checker.ts";
import { Cluster } from "./cluster.ts";
import { Faults } from "./faults.ts";
import { runSeeds, type Seeds, timeoutOf } from "./seeds.ts";

const SEEDS: Seeds = { file: "leadership.test.ts", count: 60, seconds: 12 };
const NAMES = ["a", "b", "c", "d", "e"];
const consumers = NAMES.map((name) => consumer(name, { handle: async () => {} }));

/** A minute in which things go wrong, and then half a minute of peace. */
async function simulate(seed: number, log: string[]): Promise<Cluster> {
  const cluster = new Cluster(seed, () => ({
    consumers,
    heartbeatInterval: 1_000,
    heartbeatTimeout: 4_000,
    rebalanceInterval: 1_000,
    dispatcherStrategy: "notify",
    leaderStrategy: seed % 2 === 0 ? "advisory" : "lease",
  }));
  const { scene, timeline, members } = cluster;
  const checker = new ClusterChecker(scene);
  scene.server.watcher = { onCommit: (tx) => checker.onCommit(tx), onLost: () => {} };
  scene.write((put) => {
    for (const consumerName of NAMES)
      put(scene.tables.assignments, { consumerName, workerId: null });
  });
  for (let count = 0; count < 3; count += 1) cluster.join();
  const faults = new Faults(cluster, { leaseMs: 6_000, log });
  try {
    faults.start(1_500);
    await timeline.pass(60_000);
    faults.stop();
    await timeline.pass(30_000);
    checker.checkQuiet([...members].map(({ worker }) => worker.id));
  } finally {
    cluster.end();
  }
  return cluster;
}

it(
  "one leader acts in each term, terms increase, and consumers end up with who lives",
  async () => {
    await runSeeds(SEEDS, async (seed, log) => void (await simulate(seed, log)));
  },
  timeoutOf(SEEDS),
);

it("runs the same way for the same seed", async () => {
  const runs = [await simulate(7, []), await simulate(7, [])];
  const [first, second] = runs.map(({ timeline, scene }) => ({
    count: timeline.count,
    terms: scene.server.store.committed(scene.tables.terms),
    infos: scene.server.store.committed(scene.tables.infos),
  }));
  expect(first).toEqual(second);
});
