import { expect, it } from "vitest";
import { httpQueue, queue, type TaskView, type Tidemill } from "../../../src/index.ts";
import { testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { program } from "../../support/programs.ts";
import type { StoppingSpec } from "../../support/stopping-process.ts";
import { scene, WORKER } from "../client/scene.ts";
import { receiver } from "../delivery/webhook-scene.ts";
import { gate } from "../tasks/scene.ts";
import { type RunningCli, startCli, startNode } from "./cli.ts";

const work = queue("work");
const calls = httpQueue("calls", { maxAttempts: 3 });

const start = (spec: StoppingSpec): RunningCli =>
  startNode([program("test/support/stopping-process.ts"), JSON.stringify(spec)]);

/** It has the task, and would hear a signal: which of both comes first is not certain. */
async function isRunning(worker: RunningCli): Promise<void> {
  await worker.line(/^started/);
  await worker.line(/^running/);
}

/** Given back: as if it had never been claimed, and free for others at once. */
async function expectGivenBack(mill: Tidemill, id: string): Promise<void> {
  const task = await mill.tasks.get(id);
  expect(task).toMatchObject({ state: "pending", attempt: 0, workerId: undefined });
  expect(await mill.tasks.failures(id)).toEqual([]);
}

async function workersOf(mill: Tidemill): Promise<string[]> {
  const { workers } = await mill.status();
  return workers.filter(({ status }) => status === "active").map(({ id }) => id);
}

it("a library worker exits with 0 when its handler ends within the drain", async () => {
  const database = await testDatabase();
  const { url } = database;
  const mill = await database.connect();
  const { id } = await mill.enqueue(work, 1);
  const running = start({ kind: "library", url, drainSeconds: 20, handlerMs: 300 });
  await isRunning(running);
  running.child.kill("SIGTERM");
  expect(await running.ended).toMatchObject({ code: 0, stderr: "" });
  expect(await mill.tasks.get(id)).toMatchObject({ state: "completed", attempt: 1 });
  expect(await workersOf(mill)).toEqual([]);
});

it("a library worker exits with 75 when it had to give its task back, uncounted", async () => {
  const database = await testDatabase();
  const { url } = database;
  const mill = await database.connect();
  const { id } = await mill.enqueue(work, 1);
  const running = start({ kind: "library", url, drainSeconds: 0.3 });
  await isRunning(running);
  running.child.kill("SIGTERM");
  expect(await running.ended).toMatchObject({ code: 75, stderr: "" });
  await expectGivenBack(mill, id);
  expect(await workersOf(mill)).toEqual([]);
});

it("a second signal ends a worker at once, whose task runs again after its lease", async () => {
  const database = await testDatabase();
  const { url } = database;
  const mill = await database.connect();
  const { id } = await mill.enqueue(work, 1);
  const running = start({ kind: "library", url, drainSeconds: 600, leaseSeconds: 2 });
  await isRunning(running);
  running.child.kill("SIGTERM");
  await eventually(async () => expect(await workersOf(mill)).toEqual([])); // It drains.
  expect(running.child.exitCode).toBe(null);
  // One that comes right after the first is the first again: terminals and managers send two.
  await eventually(() => {
    running.child.kill("SIGTERM");
    expect(running.child.exitCode).toBe(143);
  });
  expect(await mill.tasks.get(id)).toMatchObject({ state: "running", attempt: 1 });
  const heir = start({ kind: "library", url, drainSeconds: 5, handlerMs: 0 });
  await heir.line(/^returned/);
  await eventually(async () => {
    expect(await mill.tasks.get(id)).toMatchObject({ state: "completed", attempt: 2 });
  });
});

it("a worker without a database exits with 0 or 75 in the same way", async () => {
  const { mill, worker } = await scene();
  const client = { kind: "client", url: worker, token: WORKER } as const;
  const taskOf = async (): Promise<string> => (await mill.enqueue(work, 1, { tenant: "acme" })).id;
  const ended = await taskOf();
  const brief = start({ ...client, drainSeconds: 20, handlerMs: 300 });
  await isRunning(brief);
  brief.child.kill("SIGTERM");
  expect(await brief.ended).toMatchObject({ code: 0, stderr: "" });
  expect(await mill.tasks.get(ended)).toMatchObject({ state: "completed" });

  const stuck = await taskOf();
  const endless = start({ ...client, drainSeconds: 0.3 });
  await isRunning(endless);
  endless.child.kill("SIGTERM");
  expect(await endless.ended).toMatchObject({ code: 75, stderr: "" });
  const task = await eventually(async (): Promise<TaskView> => {
    const found = await mill.tasks.get(stuck);
    expect(found.state).not.toBe("running");
    return found;
  });
  expect(task).toMatchObject({ attempt: 0, workerId: undefined });
});

it("a server exits with 0 when its calls are answered in time, else with 75", async () => {
  const database = await testDatabase();
  const { url } = database;
  const mill = await database.connect();
  const called = [gate(), gate()] as const;
  const answer = gate();
  const target = await receiver((response, { body }) => {
    called[body === '"brief"' ? 0 : 1].open();
    if (body === '"brief"') void answer.opened.then(() => response.writeHead(204).end());
  });
  await mill.queues.define(calls);
  const args = ["serve", "--insecure-no-auth", "--http", "0", "--producer", "0", "--worker", "0"];
  const egress = ["--egress-allow-http", "--egress-allow-cidrs", "127.0.0.0/8"];
  const serve = (drain: string): RunningCli =>
    startCli(
      [
        ...args,
        "--metrics",
        "off",
        "--http-jobs",
        "on",
        "--drain-seconds",
        drain,
        ...egress,
      ].concat(["--egress-ports", String(target.port)]),
      { env: { DATABASE_URL: url } },
    );
  const http = { targetUrl: target.url("/", "127.0.0.1") };
  const brief = await mill.enqueue(calls, "brief", { http });
  const first = serve("20");
  await called[0].opened;
  first.child.kill("SIGTERM");
  await first.line(/"message":"draining"/);
  answer.open();
  expect(await first.ended).toMatchObject({ code: 0, stderr: "" });
  expect(await mill.tasks.get(brief.id)).toMatchObject({ state: "completed" });

  const stuck = await mill.enqueue(calls, "endless", { http });
  const second = serve("0.3");
  await called[1].opened;
  second.child.kill("SIGTERM");
  expect(await second.ended).toMatchObject({ code: 75, stderr: "" });
  await expectGivenBack(mill, stuck.id);
});

it("a call whose worker is killed is made again, with the same Idempotency-Key", async () => {
  const database = await testDatabase();
  const { url } = database;
  const mill = await database.connect();
  const called = gate();
  const target = await receiver((response, _, count) => {
    if (count === 1) called.open();
    else response.writeHead(204).end();
  });
  await mill.queues.define(calls);
  const http = { targetUrl: target.url() };
  const { id } = await mill.enqueue(calls, { n: 1 }, { http });
  const spec = { url, drainSeconds: 5, ports: [target.port], leaseSeconds: 2 };
  const victim = start({ kind: "http-jobs", ...spec });
  await called.opened;
  victim.child.kill("SIGKILL");
  await victim.ended;
  expect(await mill.tasks.get(id)).toMatchObject({ state: "running" });
  start({ kind: "http-jobs", ...spec, leaseSeconds: 30 }); // Nobody is to take it from this one.
  await eventually(async () => {
    expect(await mill.tasks.get(id)).toMatchObject({ state: "completed", attempt: 2 });
  });
  const keys = target.received.map(({ headers }) => headers["idempotency-key"]);
  expect(keys).toHaveLength(2);
  expect(new Set(keys).size).toBe(1);
  expect(target.received.map(({ headers }) => headers["tidemill-attempt"])).toEqual(["1", "2"]);
});
