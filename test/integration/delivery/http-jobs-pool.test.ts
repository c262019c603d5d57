import { expect, it } from "vitest";
import { httpQueue, type Priority } from "../../../src/index.ts";
import { eventually } from "../../support/eventually.ts";
import { serve, serveRaw } from "../../support/http-server.ts";
import { gate, range } from "../tasks/scene.ts";
import {
  AT_ONCE,
  calls,
  type JobScene,
  newJobScene,
  startCaller,
  taskIn,
} from "./http-jobs-scene.ts";
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
  await eventually(async () => expect(await countOf(scene, others)).toBe(100));
  // Neither ended nor in the way: all but the few that found it out wait uncounted for their time.
  await eventually(async () => {
    const { rows } = await scene.database.pool.query<{ tried: number; waiting: number }>(
      `SELECT count(*) FILTER (WHERE attempt > 0)::int AS tried,
              count(*) FILTER (WHERE state = 'scheduled')::int AS waiting
         FROM tidemill.tasks WHERE id = ANY ($1::bigint[])`,
      [lost],
    );
    expect(rows[0]?.waiting).toBe(1_000);
    expect(rows[0]?.tried).toBeLessThanOrEqual(12); // Its places, and those that failed before.
    expect(rows[0]?.tried).toBeGreaterThan(0);
  });
  expect(dead.connections.length).toBeLessThanOrEqual(12);
});

it("a host that stalls holds no more than its places", async () => {
  const scene = await newJobScene();
  const stalled = await receiver(() => {}); // Never answers.
  const alive = await receiver();
  await enqueueMany(scene, 200, stalled.url("/", "slow.hooks.test"));
  const others = await enqueueMany(scene, 200, alive.url());
  await startCaller(scene, [stalled.port, alive.port], { concurrency: 8, hostConcurrency: 3 });
  await eventually(async () => expect(await countOf(scene, others)).toBe(200));
  await eventually(() => expect(stalled.received).toHaveLength(3));
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
    await eventually(async () => expect(await countOf(scene, [id])).toBe(1));
  }
  expect(running).toBe(6);
  expect(await countOf(scene, low)).toBe(0);
  release.open();
  await eventually(async () => expect(await countOf(scene, low)).toBeGreaterThan(100));
});

it("a task of high priority has the next place of its host, before all that wait", async () => {
  const scene = await newJobScene();
  const held: (() => void)[] = [];
  const slow = await receiver((response) => held.push(() => response.writeHead(204).end()));
  await enqueueMany(scene, 300, slow.url(), "low");
  await startCaller(scene, [slow.port], { concurrency: 8, hostConcurrency: 2 });
  await eventually(() => expect(slow.received).toHaveLength(2));
  // Its calls take so long that low ones are sent away by now.
  const sentAway = "SELECT FROM tidemill.tasks WHERE state = 'scheduled' LIMIT 1";
  await eventually(async () => {
    expect((await scene.database.pool.query(sentAway)).rowCount).toBe(1);
  });
  for (const round of range(3)) {
    const [id = ""] = await enqueueMany(scene, 1, slow.url("/urgent"), "high");
    // It holds a slot meanwhile.
    await taskIn(scene, id, "running");
    held.shift()?.();
    await eventually(() => expect(slow.received).toHaveLength(3 + round));
    expect(slow.received.at(-1)?.headers["tidemill-task-id"]).toBe(id);
  }
});

it("a queue that names its target has the places of that host, and of others besides", async () => {
  const scene = await newJobScene();
  const held: { readonly what: string; readonly end: () => void }[] = [];
  const slow = await receiver((response, { path, body }) => {
    const what = body === '"another"' ? "another" : path;
    held.push({ what, end: () => response.writeHead(204).end() });
  });
  const counts = (): object => {
    const of = (what: string): number => held.filter((call) => call.what === what).length;
    return { own: of("/own"), other: of("/other"), another: of("another") };
  };
  const own = httpQueue("own", { http: { targetUrl: slow.url("/own") } });
  await scene.mill.queues.define(own);
  await scene.mill.enqueueMany(
    "own",
    range(40).map((payload) => ({ payload })),
  );
  // Room for all that wait for a place besides: those of high priority do so for long.
  const limits = { concurrency: 24, hostConcurrency: 4, reservedForHigh: 0 };
  await startCaller(scene, [slow.port], { queues: ["own"], ...limits });
  await eventually(() => expect(counts()).toEqual({ own: 4, other: 0, another: 0 }));
  // No more are claimed, only to be sent away.
  const { rows } = await scene.database.pool.query<{ claimed: number }>(
    `SELECT count(*) FILTER (WHERE state <> 'pending')::int AS claimed FROM tidemill.live_tasks`,
  );
  expect(rows).toEqual([{ claimed: 4 }]);

  const http = { targetUrl: slow.url("/other", "other.hooks.test") };
  await scene.mill.enqueueMany(
    "own",
    range(3).map((payload) => ({ payload, http, priority: 9 })),
  );
  await scene.mill.enqueueMany(
    "own",
    range(10).map(() => ({ payload: "another", tenant: "another", priority: 9 })),
  );
  // The place that comes free may go to one of its own, if nobody has told of the others yet.
  const isOther = ({ what }: { readonly what: string }): boolean => what !== "/own";
  await eventually(async () => {
    const before = held.length;
    held.shift()?.end();
    await eventually(() => expect(held.length).toBeGreaterThanOrEqual(before));
    expect(held.some(isOther)).toBe(true);
  });
  await eventually(() => expect(counts()).toEqual({ own: 4, other: 3, another: 4 }));
});

it("one call finds out whether a host answers again, then all that waited are made", async () => {
  const scene = await newJobScene();
  const release = gate();
  const arrived: string[] = [];
  let isDead = true;
  const host = await serve((request, response) => {
    if (isDead) return void request.socket.destroy();
    arrived.push(String(request.headers["tidemill-task-id"]));
    void release.opened.then(() => response.writeHead(204).end());
  });
  const ids = await enqueueMany(scene, 30, `http://hooks.test:${host.port}/`);
  await startCaller(scene, [host.port], {
    queues: [httpQueue("calls", { maxAttempts: 100, backoff: AT_ONCE })],
    breakerSeconds: 1,
    breakerFailures: 3,
  });
  const { targetsBroken, jobsGivenBack, jobsCalling } = scene.mill.deliveryMetrics;
  await eventually(() => expect([targetsBroken.value(), jobsCalling.value()]).toEqual([1, 0]));
  isDead = false;
  await eventually(() => expect(arrived).toHaveLength(1));
  // The others come back meanwhile, and are sent away again.
  const before = jobsGivenBack.value({ why: "broken" });
  await eventually(() => {
    expect(jobsGivenBack.value({ why: "broken" })).toBeGreaterThan(before + 5);
  });
  expect([arrived.length, targetsBroken.value()]).toEqual([1, 1]);
  release.open();
  await eventually(async () => expect(await countOf(scene, ids)).toBe(30));
  expect(new Set(arrived)).toEqual(new Set(ids));
  expect([arrived.length, targetsBroken.value()]).toEqual([30, 0]);
});
