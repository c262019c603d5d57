import { expect, it } from "vitest";
import { completed, queue } from "../../../src/client/index.ts";
import { onCleanup, testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { type ServerProcess, startServerProcess } from "../../support/server-processes.ts";
import { AUTH, producerOf, workerOf } from "./scene.ts";

const work = queue<number>("work");
const OPTIONS = {
  host: "127.0.0.1",
  http: false,
  metrics: false,
  auth: AUTH,
  leaseSeconds: 2,
  graceSeconds: 1,
  drainSeconds: 2,
} as const;

/** A server that is killed and started again on the same ports. */
async function fallible(url: string): Promise<{ ports: ServerProcess; restart(): Promise<void> }> {
  const start = (producer = 0, worker = 0): Promise<ServerProcess> =>
    startServerProcess(url, {
      ...OPTIONS,
      producer: { port: producer },
      worker: { port: worker },
    });
  let running = await start();
  const ports = running;
  const portOf = (address: string): number => Number(address.split(":")[1]);
  return {
    ports,
    async restart() {
      await running.kill();
      running = await start(portOf(ports.producer), portOf(ports.worker));
    },
  };
}

it("loses and doubles nothing when servers are killed under load", async () => {
  const database = await testDatabase();
  const [one, two] = await Promise.all([fallible(database.url), fallible(database.url)]);
  const common = { reconnectSecondsMax: 0.5 };
  const producer = await producerOf({
    ...common,
    url: [one.ports.producer, two.ports.producer],
    batchTasks: 64,
    withinSeconds: 50,
  });
  const completions = new Map<string, number>();
  for (const url of [
    [one.ports.worker, two.ports.worker],
    [two.ports.worker, one.ports.worker],
  ]) {
    await workerOf({
      ...common,
      url,
      concurrency: 8,
      batchSize: 8,
      handlers: [work.handle(({ payload }) => completed(payload))],
      onAck: ({ task, act, state }) => {
        if (act !== "complete" || state !== "completed") return;
        completions.set(task.id, (completions.get(task.id) ?? 0) + 1);
      },
    });
  }
  const acked: string[] = [];
  const over = new AbortController();
  const load = (async () => {
    for (let n = 0; !over.signal.aborted; n += 1) {
      const tasks = Array.from({ length: 50 }, (_, index) => ({ payload: n * 50 + index }));
      const results = await producer.enqueueEach(work, tasks);
      for (const { id } of results) if (id !== undefined) acked.push(id);
      await new Promise((resolve) => setImmediate(resolve));
    }
    return acked.length;
  })();
  onCleanup(() => {
    over.abort();
    return Promise.resolve();
  });
  for (const victim of [one, two, one]) {
    const before = acked.length;
    await eventually(() => expect(acked.length).toBeGreaterThan(before + 500));
    await victim.restart();
  }
  over.abort();
  const sent = await load;
  // What was acked is there by now, wherever it is, and nothing else is.
  const { rows } = await database.pool.query<{ id: string }>(
    "SELECT id FROM tidemill.live_tasks UNION ALL SELECT id FROM tidemill.task_history",
  );
  expect(rows.map(({ id }) => id).toSorted()).toEqual(acked.toSorted());
  await eventually(async () => {
    const { rows: left } = await database.pool.query("SELECT 1 FROM tidemill.live_tasks");
    expect(left).toHaveLength(0);
  });
  const history = await database.pool.query<{ id: string; state: string; result: unknown }>(
    "SELECT id, state, result FROM tidemill.task_history",
  );
  // Every acked task ended once, and no task was stored that nobody was told of.
  expect(history.rows.map(({ id }) => id).toSorted()).toEqual(acked.toSorted());
  expect(new Set(history.rows.map(({ result }) => JSON.stringify(result))).size).toBe(sent);
  expect(history.rows.filter(({ state }) => state !== "completed")).toEqual([]);
  expect([...completions.values()].filter((count) => count > 1)).toEqual([]);
}, 90_000);
