import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { queue } from "../../../src/index.ts";
import { cable } from "../../integration/client/scene.ts";
import { ACME, ACME_WORKER, READER, type Scene, scene } from "../../integration/server/scene.ts";
import { readColumn } from "../../integration/tasks/scene.ts";
import { eventually } from "../../support/eventually.ts";
import { BUILD_MS_MAX, CLIENTS, type GoProgram, GoPrograms, missingGo } from "./go-programs.ts";

/** Longer than CodeQ's own server remembers a ready for. */
const LONG_SECONDS = 31;
const IDLE_SECONDS = Number(process.env["TIDEMILL_COMPAT_IDLE_SECONDS"] ?? LONG_SECONDS);
const FEW = 20;
const EACH = 5_000;
const LINES = { single: "compat", batch: "many" } as const;

let missing: string | undefined;
let programs: GoPrograms;
const started: GoProgram[] = [];

/** Workers that have nothing to do while the other tests run, and since when. */
interface Idle {
  readonly at: WorkerScene;
  readonly workers: readonly GoProgram[];
  readonly sinceMs: number;
}
let idle: Idle | undefined;

beforeAll(async () => {
  missing = await missingGo();
  if (missing !== undefined) return;
  programs = await GoPrograms.build("producer", "worker");
  idle = await beginIdle();
}, BUILD_MS_MAX);

afterEach(() => {
  for (const program of started.splice(0)) program.kill();
});

afterAll(() => {
  for (const worker of idle?.workers ?? []) worker.kill();
  programs?.close();
});

function start(...[name, flags]: Parameters<GoPrograms["start"]>): GoProgram {
  const token = name === "worker" ? ACME_WORKER : ACME;
  const program = programs.start(name, { token, ...flags });
  started.push(program);
  return program;
}

interface WorkerScene extends Scene {
  readonly workerUrl: string;
}

async function server(until: "test" | "file" = "test"): Promise<WorkerScene> {
  const base = await scene({ until, server: { worker: { port: 0 }, graceSeconds: 0.1 } });
  return { ...base, workerUrl: `127.0.0.1:${base.server.address("worker").port}` };
}

/** How often each task of a command ended, once nothing is left to do. */
async function ended({ database }: Scene, command: string, count: number): Promise<string[]> {
  const of = (table: string): string =>
    `SELECT id || ' ' || state FROM tidemill.${table} WHERE queue = '${command}'`;
  await eventually(
    async () => {
      expect(await readColumn<string>(database, of("task_history"))).toHaveLength(count);
      expect(await readColumn<string>(database, of("live_tasks"))).toEqual([]);
    },
    { timeoutMs: 50_000, everyMs: 100 },
  );
  return await readColumn<string>(database, of("task_history"));
}

/** Lets a few tasks be created. */
async function give(at: Scene): Promise<void> {
  const producer = start("producer", { url: at.url, count: FEW });
  expect(await producer.end(), producer.log).toBe(0);
}

async function beginIdle(): Promise<Idle> {
  const at = await server("file");
  const flags = { url: at.workerUrl, token: ACME_WORKER };
  const workers = [
    programs.start("worker", { ...flags, concurrency: 4 }), // Of all queues.
    programs.start("worker", { ...flags, commands: "compat", mode: "batch", concurrency: 2 }),
  ];
  await give(at);
  await ended(at, "compat", FEW);
  return { at, workers, sinceMs: performance.now() };
}

const idsOf = (program: GoProgram, event: string): string[] =>
  program.of(event).map(({ id }) => String(id));

describe(`Tidemill's server and a worker by ${CLIENTS}`, () => {
  it("complete ten thousand tasks once each, one by one and in batches", async (context) => {
    if (missing !== undefined) context.skip(missing);
    const at = await server();
    const url = at.workerUrl;
    const workers = {
      single: start("worker", { url, commands: LINES.single, concurrency: 50 }),
      batch: start("worker", { url, commands: LINES.batch, mode: "batch", batch: 64 }),
    };
    const create = { url: at.url, count: EACH, concurrency: 200, batch: 64 };
    const producers = {
      single: start("producer", { ...create, command: LINES.single }),
      batch: start("producer", { ...create, command: LINES.batch, mode: "batch" }),
    };
    for (const mode of ["single", "batch"] as const) {
      const [worker, producer] = [workers[mode], producers[mode]];
      expect(await producer.end(), producer.log).toBe(0);
      const acked = idsOf(producer, "ack").sort();
      const completed = acked.map((id) => `${id} completed`);
      expect((await ended(at, LINES[mode], EACH)).sort()).toEqual(completed);
      expect(await worker.stop(), worker.log).toBe(0);
      expect(idsOf(worker, "task").sort()).toEqual(acked);
    }
  });

  it("lose and double nothing when the stream is cut", async (context) => {
    if (missing !== undefined) context.skip(missing);
    const at = await server();
    const line = await cable(at.workerUrl);
    const flags = { url: line.address, again: "true", mode: "batch", concurrency: 4 };
    const worker = start("worker", flags);
    const producer = start("producer", { url: at.url, count: 1_000, mode: "batch", batch: 64 });
    for (const handled of [50, 200, 500]) {
      await eventually(() => expect(worker.of("task").length).toBeGreaterThan(handled));
      line.cut();
    }
    expect(await producer.end(), producer.log).toBe(0);
    const completed = idsOf(producer, "ack").map((id) => `${id} completed`);
    expect((await ended(at, "compat", 1_000)).sort()).toEqual(completed.sort());
    await eventually(() => expect(line.connections).toBeGreaterThanOrEqual(4));
    expect(await worker.stop(), worker.log).toBe(0);
  });

  it("agree on how tasks end, also without a result", async (context) => {
    if (missing !== undefined) context.skip(missing);
    const at = await server();
    const compat = queue<object>("compat");
    const wishes = [
      { outcome: "nil" },
      { outcome: "zero" },
      { outcome: "completed" },
      { outcome: "failed", reason: "no such order" },
      { outcome: "nack", delay: 0, reason: "busy" },
    ];
    const given = wishes.map((payload) => ({ payload, tenant: "acme", maxAttempts: 1 }));
    await at.mill.enqueueMany(compat, given);
    const worker = start("worker", { url: at.workerUrl });
    const results = await eventually(async () => {
      const found = await readColumn<string>(
        at.database,
        `SELECT (payload::json ->> 'outcome') || ': ' || COALESCE(result, 'nothing')
           FROM tidemill.task_history`,
      );
      expect(found).toHaveLength(3);
      return found.sort();
    });
    const echo = JSON.stringify({ echo: JSON.stringify(wishes[2]) });
    expect(results).toEqual([`completed: ${echo}`, "nil: nothing", "zero: nothing"]);
    const dead = await eventually(async () => {
      const letters = await at.mill.deadLetters.list();
      expect(letters).toHaveLength(2);
      return letters.map(({ reason }) => String(reason)).sort();
    });
    expect(dead).toEqual(["busy", "no such order"]);
    expect(await worker.stop(), worker.log).toBe(0);
  });

  it("agree on who may work", async (context) => {
    if (missing !== undefined) context.skip(missing);
    const at = await server();
    const stranger = start("worker", { url: at.workerUrl, token: "nobody" });
    expect(await stranger.end()).toBe(1);
    const invalid = "code = Unauthenticated desc = auth failed: the token is not valid";
    expect(stranger.of("end")[0]?.["error"]).toContain(invalid);
    const reader = start("worker", { url: at.workerUrl, token: READER });
    await eventually(() => expect(reader.log).toContain("missing scope"));
    expect(await reader.stop()).toBe(0);
  });

  // Last: meanwhile they wait.
  it(
    "go on after a pause, however long it was",
    async (context) => {
      if (missing !== undefined || idle === undefined) return context.skip(missing);
      const { at, workers, sinceMs } = idle;
      const idleMs = (): number => performance.now() - sinceMs;
      await eventually(() => expect(idleMs()).toBeGreaterThan(IDLE_SECONDS * 1000), {
        timeoutMs: (IDLE_SECONDS + 10) * 1000,
        everyMs: 100,
      });
      await give(at);
      const all = await ended(at, "compat", 2 * FEW);
      expect(new Set(all).size).toBe(2 * FEW);
      const runs = workers.flatMap((worker) => idsOf(worker, "task"));
      expect(runs).toHaveLength(2 * FEW);
      for (const worker of workers) expect(await worker.stop(), worker.log).toBe(0);
    },
    (IDLE_SECONDS + 60) * 1000,
  );
});
