import { beforeEach, describe, expect, it } from "vitest";
import { completed, queue, type TaskAck } from "../../../src/client/index.ts";
import { eventually } from "../../support/eventually.ts";
import { type SilentProxy, startSilentProxy } from "../../support/silent-proxy.ts";
import {
  gate,
  type LogLine,
  producerOf,
  recorder,
  type Scene,
  scene,
  startServer,
  workerOf,
} from "./scene.ts";

const mails = queue<number>("mails");

/** As long as a client takes to notice that nothing comes any more. */
const KEEPALIVE = { keepaliveSeconds: 0.4, keepaliveTimeoutSeconds: 0.4, reconnectSecondsMax: 0.2 };
const NOTICE_MS = 800;
/** The rest of a busy machine. */
const SLACK_MS = 1_500;
/** Of a server whose keepalive follows from it. */
const LEASE_SECONDS = 2;

let server: Scene;

beforeEach(async () => {
  server = await scene({ graceSeconds: 0.6, keepaliveSeconds: 1, keepaliveTimeoutSeconds: 1 });
});

/** A way to a server that falls silent and closes nothing. */
async function quiet(to: string): Promise<{ address: string; proxy: SilentProxy }> {
  const proxy = await startSilentProxy(`http://${to}`);
  return { proxy, address: new URL(proxy.url).host };
}

const connections = (lines: readonly LogLine[]): number =>
  lines.filter(({ message }) => message === "connected").length;

describe("a worker whose connection is half open", () => {
  it("notices it in time, and takes its task along to another server", async () => {
    const other = await startServer(server.mill, { graceSeconds: 0.6 });
    const way = await quiet(server.worker);
    const [started, release] = [gate(), gate()];
    const log = recorder();
    const runs: number[] = [];
    const acks: TaskAck[] = [];
    await workerOf({
      ...KEEPALIVE,
      url: [way.address, other.worker],
      orphanSeconds: 5,
      logger: log,
      handlers: [
        mails.handle(async ({ attempt }, { signal }) => {
          runs.push(attempt);
          started.open();
          await release.opened;
          return completed({ wasAborted: signal.aborted });
        }),
      ],
      onAck: (ack) => void acks.push(ack),
    });
    const producer = await producerOf({ url: server.producer });
    const { id } = await producer.enqueue(mails, 1);
    await started.opened;
    way.proxy.swallow();
    const silentAtMs = performance.now();
    await eventually(() => expect(connections(log.lines)).toBe(2));
    expect(performance.now() - silentAtMs).toBeLessThan(NOTICE_MS + SLACK_MS);
    // The server that heard nothing any more gives the worker up, and must not take its task.
    await eventually(() =>
      expect(server.server.metrics.text()).toContain('tidemill_streams{listener="worker"} 0\n'),
    );
    release.open();
    await eventually(() => expect(acks).toHaveLength(1));
    expect(acks).toMatchObject([{ act: "complete", state: "completed" }]);
    expect(runs).toEqual([1]);
    expect(await server.mill.tasks.get(id)).toMatchObject({
      state: "completed",
      result: { wasAborted: false },
    });
  });

  it("aborts its handler, and is not heard after another got its task in time", async () => {
    server = await scene({ graceSeconds: 0.6, leaseSeconds: LEASE_SECONDS });
    const way = await quiet(server.worker);
    const [started, release] = [gate(), gate()];
    const aborted: { atMs: number; reason: unknown }[] = [];
    const acks: TaskAck[] = [];
    await workerOf({
      ...KEEPALIVE,
      url: way.address,
      handlers: [
        mails.handle(async (_task, { signal }) => {
          signal.addEventListener(
            "abort",
            () => void aborted.push({ atMs: performance.now(), reason: signal.reason }),
          );
          started.open();
          await release.opened;
          return completed("the silent one");
        }),
      ],
      onAck: (ack) => void acks.push(ack),
    });
    const producer = await producerOf({ url: server.producer });
    const { id } = await producer.enqueue(mails, 1);
    await started.opened;
    let takenAtMs = Number.NaN;
    await workerOf({
      url: server.worker,
      handlers: [
        mails.handle(({ attempt }) => {
          takenAtMs = performance.now();
          return completed(`the other, attempt ${attempt}`);
        }),
      ],
    });
    way.proxy.swallow();
    const silentAtMs = performance.now();
    await eventually(() => expect(aborted).toMatchObject([{ reason: { code: "TM_LEASE_LOST" } }]));
    const graceMs = 600;
    expect((aborted[0]?.atMs ?? 0) - silentAtMs).toBeLessThan(NOTICE_MS + graceMs + SLACK_MS);
    await eventually(async () => expect((await server.mill.tasks.get(id)).state).toBe("completed"));
    // The client may be as deaf as its machine: the server alone must find out.
    expect(takenAtMs - silentAtMs).toBeLessThan((LEASE_SECONDS + 2) * 1000);
    release.open();
    way.proxy.mend();
    await eventually(() => expect(acks).toHaveLength(1));
    expect(acks).toMatchObject([{ state: undefined, error: { code: "TM_LEASE_LOST" } }]);
    expect((await server.mill.tasks.get(id)).result).toBe("the other, attempt 2");
    const { rows } = await server.database.pool.query("SELECT id FROM tidemill.task_history");
    expect(rows).toEqual([{ id }]);
  });
});

describe("a producer whose connection is half open", () => {
  it("sends again elsewhere what was stored without an answer, and it is stored once", async () => {
    const way = await quiet(server.producer);
    const log = recorder();
    const producer = await producerOf({
      ...KEEPALIVE,
      url: [way.address, server.producer],
      logger: log,
    });
    const first = await producer.enqueue(mails, 1);
    way.proxy.swallow("answers");
    const silentAtMs = performance.now();
    const enqueuing = producer.enqueue(mails, 2);
    const stored = async (): Promise<unknown[]> =>
      (await server.database.pool.query("SELECT id FROM tidemill.live_tasks ORDER BY id")).rows;
    await eventually(async () => expect(await stored()).toHaveLength(2));
    expect(connections(log.lines)).toBe(1);
    const second = await enqueuing;
    expect(performance.now() - silentAtMs).toBeLessThan(NOTICE_MS + SLACK_MS);
    expect(await stored()).toEqual([{ id: first.id }, { id: second.id }]);
  });
});
