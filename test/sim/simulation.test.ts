import { expect, it } from "vitest";
import { runSeeds, type Seeds, timeoutOf } from "./seeds.ts";
import { simulate } from "./simulation.ts";

const SEEDS: Seeds = { file: "simulation.test.ts", count: 100, seconds: 15 };

it(
  "keeps its promises whatever goes wrong, and loses nothing",
  async () => {
    await runSeeds(SEEDS, async (seed, log) => {
      await simulate(seed, log);
    });
  },
  timeoutOf(SEEDS),
);

it("runs the same way for the same seed", async () => {
  const runs = [await simulate(7, []), await simulate(7, [])];
  const [first, second] = runs.map(({ cluster: { timeline, scene }, tasks }) => ({
    count: timeline.count,
    counts: tasks.counts,
    infos: scene.server.store.committed(scene.tables.infos),
  }));
  expect(first).toEqual(second);
});
