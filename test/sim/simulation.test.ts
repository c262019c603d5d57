import { expect, it } from "vitest";
import { runSeeds, type Seeds, timeoutOf } from "./seeds.ts";
import { simulate } from "./simulation.ts";

const SEEDS: Seeds = { file: "simulation.test.ts", count: 100, seconds: 15 };

/** What a seed does on average, at the least: promises are kept easily where nothing is done. */
const DONE = { ended: 40, terms: 2 } as const;

it(
  "keeps its promises whatever goes wrong, and loses nothing",
  async () => {
    const done = { runs: 0, ended: 0, claims: 0, terms: 0 };
    await runSeeds(SEEDS, async (seed, log) => {
      const { tasks, terms } = await simulate(seed, log);
      done.runs += 1;
      done.ended += tasks.ended;
      done.claims += tasks.counts.claims;
      done.terms += terms;
    });
    expect(done.ended).toBeGreaterThanOrEqual(DONE.ended * done.runs);
    expect(done.claims).toBeGreaterThanOrEqual(done.ended);
    expect(done.terms).toBeGreaterThanOrEqual(DONE.terms * done.runs);
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
