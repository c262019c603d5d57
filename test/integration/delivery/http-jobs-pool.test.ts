import { expect, it } from "vitest";
import type { Priority } from "../../../src/index.ts";
import { eventually } from "../../support/eventually.ts";
import { serveRaw } from "../../support/http-server.ts";
import { gate, range } from "../tasks/scene.ts";
import { calls, type JobScene, newJobScene, startCaller } from "./http-jobs-scene.ts";
import { receiver } from "./webhook-scene.ts";

async function enqueueMany(
  { mill }: JobScene,
  count: number,
  targetUrl: string,
  priority: Priority = "normal",
): Promise<string[]> {
  const http = { targetUrl };
  const tasks = range(count).map((payload) => ({ payload, http, priority }));
  return (await mill.enqueueMany(calls, tasks)).map(({ id }) => id);
}

async function countOf({ database }: JobScene, ids: readonly string[]): Promise<number> {
  const { rows } = await database.pool.query<{ count: number }>(
    "SELECT count(*)::int AS count FROM tidemill.task_history WHERE id = ANY ($1::bigint[])",
    [ids],
  );
  return rows[0]?.count ?? 0;
}

it("a dead host does not delay the jobs of another, and costs its own no attempt", async () => {
  const scene = await newJobScene();
  const dead = await serveRaw((socket) => socket.destroy());
  const alive = await receiver();
  const lost = await enqueueMany(scene, 1_000, `http://dead.hooks.test:${dead.port}/`);
  const others = await enqueueMany(scene, 100, alive.url());
  await startCaller(scene, [dead.port, alive.port], { concurrency: 16, breakerSeconds: 60 });
  await eventually(async () => expect(await countOf(scene, others)).toBe(100), {
    timeoutMs: 10_000,
  });
  // Neither ended nor in the way: all but the few that found it out wait uncounted for their time.
  await eventually(
    async () => {
      const { rows } = await scene.database.pool.query<{ tried: number; waiting: number }>(
        `SELECT count(*) FILTER (WHERE attempt > 0)::int AS tried,
                count(*) FILTER (WHERE state = 'scheduled')::int AS waiting
           FROM tidemill.tasks WHERE id = ANY ($1::bigint[])`,
        [lost],
      );
      expect(rows[0]?.waiting).toBe(1_000);
      expect(rows[0]?.tried).toBeLessThanOrEqual(12); // Its places, and those that failed before.
      expect(rows[0]?.tried).toBeGreaterThan(0);
    },
    { timeoutMs: 10_000 },
  );
  expect(dead.connections.length).toBeLessThanOrEqual(12);
});

it("a host that stalls holds no more than its places", async () => {
  const scene = await newJobScene();
  const stalled = await receiver(() => {}); // Never answers.
  const alive = await receiver();
  await enqueueMany(scene, 200, stalled.url("/", "slow.hooks.test"));
  const others = await enqueueMany(scene, 200, alive.url());
  await startCaller(scene, [stalled.port, alive.port], { concurrency: 8, hostConcurrency: 3 });
  await eventually(async () => expect(await countOf(scene, others)).toBe(200), {
    timeoutMs: 15_000,
  });
  expect(stalled.received).toHaveLength(3);
});

it("tasks of high priority start in reserved slots while slow calls fill the rest", async () => {
  const scene = await newJobScene();
  const release = gate();
  let running = 0;
  const slow = await receiver((response) => {
    running += 1;
    void release.opened.then(() => response.writeHead(204).end());
  });
  const urgent = await receiver();
  const low = await enqueueMany(scene, 1_000, slow.url("/", "slow.hooks.test"), "low");
  await startCaller(scene, [slow.port, urgent.port], {
    concurrency: 8,
    hostConcurrency: 8,
    reservedForHigh: 2,
  });
  await eventually(() => expect(running).toBe(6));
  // None of the slow calls ends meanwhile: only the reserve is there for these.
  for (const _ of range(5)) {
    const [id = ""] = await enqueueMany(scene, 1, urgent.url(), "high");
    await eventually(async () => expect(await countOf(scene, [id])).toBe(1), {
      timeoutMs: 5_000,
    });
  }
  expect(running).toBe(6);
  expect(await countOf(scene, low)).toBe(0);
  release.open();
  await eventually(async () => expect(await countOf(scene, low)).toBeGreaterThan(100));
});
