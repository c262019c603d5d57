import { beforeEach, describe, expect, it } from "vitest";
import { completed, nack, queue, type TaskAck } from "../../../src/client/index.ts";
import { eventually } from "../../support/eventually.ts";
import {
  CLAIM_ONLY,
  cable,
  gate,
  NO_NACK,
  producerOf,
  recorder,
  type Scene,
  scene,
  startServer,
  workerOf,
} from "./scene.ts";

const mails = queue<number>("mails");

/** In which a worker comes back, on a busy machine too. */
const GRACE_MS = 1_500;
/** After which a server that had not heard of it again has given its tasks to somebody else. */
const OVER_MS = GRACE_MS + 1_000;

let server: Scene;

beforeEach(async () => {
  // Leases are short so that a server that stops soon hears which tasks went elsewhere.
  server = await scene({ graceSeconds: GRACE_MS / 1000, leaseSeconds: 6, drainSeconds: 20 });
});

const stateOf = async (id: string): Promise<string> => (await server.mill.tasks.get(id)).state;

async function enqueue(n = 1): Promise<string> {
  const producer = await producerOf({ url: server.producer });
  return (await producer.enqueue(mails, n)).id;
}

describe("a worker whose stream breaks", () => {
  it("keeps its task when it comes back in time, and says there how it ended", async () => {
    const id = await enqueue();
    const line = await cable(server.worker);
    const [started, release] = [gate(), gate()];
    const attempts: number[] = [];
    const acks: TaskAck[] = [];
    await workerOf({
      url: line.address,
      handlers: [
        mails.handle(async ({ attempt }, { signal }) => {
          attempts.push(attempt);
          started.open();
          await release.opened;
          return completed({ wasAborted: signal.aborted });
        }),
      ],
      onAck: (ack) => void acks.push(ack),
    });
    await started.opened;
    line.cut();
    const cutAtMs = performance.now();
    await eventually(() => expect(line.connections).toBe(2));
    await eventually(() => expect(performance.now() - cutAtMs).toBeGreaterThan(OVER_MS));
    release.open();
    await eventually(() => expect(acks).toHaveLength(1));
    expect(acks).toMatchObject([{ state: "completed", error: undefined }]);
    expect(attempts).toEqual([1]);
    expect((await server.mill.tasks.get(id)).result).toEqual({ wasAborted: false });
  });

  it("keeps all of its tasks, however many they are", async () => {
    const [count, tenant] = [1_500, "acme"];
    const payloads = Array.from({ length: count }, (_, payload) => ({ payload, tenant }));
    await server.mill.enqueueMany(mails, payloads);
    const line = await cable(server.worker);
    const release = gate();
    const attempts: number[] = [];
    const acks: TaskAck[] = [];
    await workerOf({
      url: line.address,
      concurrency: count,
      handlers: [
        mails.handle(async ({ attempt }) => {
          attempts.push(attempt);
          await release.opened;
        }),
      ],
      onAck: (ack) => void acks.push(ack),
    });
    await eventually(() => expect(attempts).toHaveLength(count));
    line.cut();
    const cutAtMs = performance.now();
    await eventually(() => expect(line.connections).toBe(2));
    await eventually(() => expect(performance.now() - cutAtMs).toBeGreaterThan(OVER_MS));
    release.open();
    await eventually(() => expect(acks.length).toBeGreaterThanOrEqual(count));
    expect(acks.filter(({ state }) => state !== "completed")).toEqual([]);
    expect(new Set(attempts)).toEqual(new Set([1]));
    expect(attempts).toHaveLength(count);
  });

  it("says again what was not acknowledged, and it counts once", async () => {
    const line = await cable(server.worker);
    const acks: TaskAck[] = [];
    const runs: string[] = [];
    await workerOf({
      url: line.address,
      handlers: [
        mails.handle(({ id }) => {
          runs.push(id);
          line.loseAnswers(true); // The server hears of the end, and its answer is lost.
          return completed(runs.length);
        }),
      ],
      onAck: (ack) => void acks.push(ack),
    });
    const id = await enqueue();
    await eventually(async () => expect(await stateOf(id)).toBe("completed"));
    expect(acks).toEqual([]);
    line.loseAnswers(false);
    line.cut();
    await eventually(() => expect(acks).toHaveLength(1));
    expect(runs).toEqual([id]);
    expect((await server.mill.tasks.get(id)).result).toBe(1);
  });

  it("aborts its handler when it could not come back before others may have the task", async () => {
    await enqueue();
    const line = await cable(server.worker);
    const [started, reasons] = [gate(), [] as unknown[]];
    const worker = await workerOf({
      url: line.address,
      handlers: [
        mails.handle(async (_task, { signal }) => {
          await new Promise<void>((resolve) => {
            signal.addEventListener("abort", () => resolve(), { once: true });
            started.open();
          });
          reasons.push(signal.reason);
          throw signal.reason;
        }),
      ],
    });
    await started.opened;
    line.refuse(true);
    line.cut();
    await eventually(() => expect(worker.load.running).toBe(0));
    expect(reasons).toMatchObject([{ code: "TM_LEASE_LOST" }]);
    line.refuse(false);
  });

  it("is told of a lost lease when it comes back too late, and is not heard", async () => {
    const id = await enqueue();
    const line = await cable(server.worker);
    const [started, release, aborted] = [gate(), gate(), gate()];
    const acks: TaskAck[] = [];
    await workerOf({
      url: line.address,
      orphanSeconds: 600,
      handlers: [
        mails.handle(async ({ attempt }, { signal }) => {
          if (attempt > 1) return completed("second");
          signal.addEventListener("abort", () => aborted.open(), { once: true });
          started.open();
          await release.opened;
          return completed("first");
        }),
      ],
      onAck: (ack) => void acks.push(ack),
    });
    await started.opened;
    line.refuse(true);
    line.cut();
    await workerOf({
      url: server.worker,
      handlers: [mails.handle(({ attempt }) => completed(`other ${attempt}`))],
    });
    await eventually(async () => expect(await stateOf(id)).toBe("completed"));
    line.refuse(false);
    await aborted.opened;
    release.open();
    expect((await server.mill.tasks.get(id)).result).toBe("other 2");
    expect(acks).toEqual([]);
  });

  it("says how its tasks ended while the only server stops, and none runs again", async () => {
    const acks: TaskAck[] = [];
    const runs: number[] = [];
    const [started, release] = [gate(), gate()];
    const logger = recorder();
    await workerOf({
      url: server.worker,
      logger,
      handlers: [
        mails.handle(async ({ attempt }) => {
          runs.push(attempt);
          started.open();
          await release.opened;
          return completed("first");
        }),
      ],
      onAck: (ack) => void acks.push(ack),
    });
    const id = await enqueue();
    await started.opened;
    const stopping = server.server.stop();
    // Nobody else is there to connect to.
    await eventually(() =>
      expect(logger.lines.map(({ message }) => message)).toContain(
        "the stream ended; connecting again",
      ),
    );
    release.open();
    await stopping;
    const { state, attempt } = await server.mill.tasks.get(id);
    expect({ state, attempt, runs }).toEqual({ state: "completed", attempt: 1, runs: [1] });
    await eventually(() => expect(acks).toMatchObject([{ state: "completed", error: undefined }]));
  });

  it("works for another server when one drains", async () => {
    const other = await startServer(await server.database.connect());
    const logger = recorder();
    const [started, release] = [gate(), gate()];
    const acks: TaskAck[] = [];
    const worker = await workerOf({
      url: [server.worker, other.worker],
      logger,
      handlers: [
        mails.handle(async ({ payload }) => {
          if (payload !== 1) return;
          started.open();
          await release.opened;
        }),
      ],
      onAck: (ack) => void acks.push(ack),
    });
    const producer = await producerOf({ url: other.producer });
    const { id: slow } = await producer.enqueue(mails, 1);
    await started.opened;
    const stopping = server.server.stop();
    await eventually(() =>
      expect(logger.lines.filter(({ message }) => message === "connected")).toHaveLength(2),
    );
    const { id: quick } = await producer.enqueue(mails, 2);
    await eventually(() => expect(acks.map(({ task }) => task.id)).toEqual([quick]));
    release.open();
    await eventually(() => expect(acks.map(({ task }) => task.id)).toEqual([quick, slow]));
    await stopping;
    expect(acks.map(({ state }) => state)).toEqual(["completed", "completed"]);
    expect(worker.load).toMatchObject({ isConnected: true, running: 0, unanswered: 0 });
  });
});

describe("a worker whose end of a task is refused", () => {
  it("says that it failed and why, so that it runs again", async () => {
    const id = await enqueue();
    const acks: TaskAck[] = [];
    await workerOf({
      url: server.worker,
      token: NO_NACK,
      handlers: [mails.handle(({ attempt }) => (attempt === 1 ? nack(0, "later") : undefined))],
      onAck: (ack) => void acks.push(ack),
    });
    await eventually(() => expect(acks).toHaveLength(3));
    expect(acks.map(({ act, state }) => [act, state])).toEqual([
      ["nack", undefined],
      ["fail", "scheduled"],
      ["complete", "completed"],
    ]);
    const [failure] = await server.mill.tasks.failures(id);
    expect(failure?.reason).toMatch(/^the end was refused: TM_FORBIDDEN: .*task\.nack/);
  });

  it("lets the task go when nothing is accepted, and it runs again", async () => {
    await enqueue();
    const attempts: number[] = [];
    const refused: string[] = [];
    await workerOf({
      url: server.worker,
      token: CLAIM_ONLY,
      handlers: [mails.handle(({ attempt }) => void attempts.push(attempt))],
      onAck: ({ act }) => void refused.push(act),
    });
    await eventually(() => expect(attempts.slice(0, 2)).toEqual([1, 2]));
    expect(refused.slice(0, 3)).toEqual(["complete", "fail", "abandon"]);
  });
});
