import { expect, it } from "vitest";
import { eventually } from "../../support/eventually.ts";
import { program } from "../../support/programs.ts";
import type { StoppingSpec } from "../../support/stopping-process.ts";
import { startLeader } from "../../support/task-runs.ts";
import { startNode } from "../cli/cli.ts";
import { gate } from "../tasks/scene.ts";
import { calls, type JobScene, newJobScene, startCaller, taskIn } from "./http-jobs-scene.ts";
import { receiver } from "./webhook-scene.ts";

/** Of the one task that runs. */
async function leaseOf({ database }: JobScene): Promise<string> {
  const { rows } = await database.pool.query<{ until: string }>(
    "SELECT lease_until::text AS until FROM tidemill.tasks WHERE state = 'running'",
  );
  return rows[0]?.until ?? "";
}

it("a call that takes longer than the lease is made once: the lease is renewed", async () => {
  const scene = await newJobScene();
  const answer = gate();
  const target = await receiver((response) => {
    void answer.opened.then(() => response.writeHead(204).end());
  });
  const shortest = { worker: { leaseSeconds: 1 } };
  for (const _ of ["one", "another"]) await startCaller(scene, [target.port], shortest);
  const { id } = await scene.mill.enqueue(calls, 1, { http: { targetUrl: target.url() } });
  await eventually(() => expect(target.received).toHaveLength(1));
  const until = await leaseOf(scene);
  await eventually(async () => {
    const { rows } = await scene.database.pool.query<{ is_over: boolean }>(
      "SELECT clock_timestamp() > $1::timestamptz + INTERVAL '0.5 second' AS is_over",
      [until],
    );
    expect(rows).toEqual([{ is_over: true }]);
  });
  answer.open();
  expect(await taskIn(scene, id, "completed")).toMatchObject({ attempt: 1 });
  expect(target.received).toHaveLength(1);
});

it("a worker that is paused past its lease makes no call that it had not begun", async () => {
  const scene = await newJobScene();
  await startLeader(scene.database);
  await scene.mill.queues.define(calls);
  const answer = gate();
  const target = await receiver((response, _, count) => {
    const end = (): void => void response.writeHead(204).end();
    if (count === 1) void answer.opened.then(end);
    else end();
  });
  const spec: StoppingSpec = {
    kind: "http-jobs",
    url: scene.database.url,
    drainSeconds: 5,
    ports: [target.port],
    leaseSeconds: 1,
    hostConcurrency: 1,
  };
  const zombie = startNode([program("test/support/stopping-process.ts"), JSON.stringify(spec)]);
  await zombie.line(/^started/);
  const options = { http: { targetUrl: target.url() }, priority: "high" } as const;
  const first = await scene.mill.enqueue(calls, 1, options);
  await eventually(() => expect(target.received).toHaveLength(1));
  const second = await scene.mill.enqueue(calls, 2, options); // Waits for the place of the first.
  await taskIn(scene, second.id, "running");
  zombie.child.kill("SIGSTOP");
  await startCaller(scene, [target.port]);
  for (const { id } of [first, second]) await taskIn(scene, id, "completed");
  const bodies = (): string[] => target.received.map(({ body }) => body).toSorted();
  expect(bodies()).toEqual(["1", "1", "2"]);
  // The place is free as soon as it wakes.
  answer.open();
  zombie.child.kill("SIGCONT");
  zombie.child.kill("SIGTERM");
  await zombie.ended;
  expect(bodies()).toEqual(["1", "1", "2"]);
});
