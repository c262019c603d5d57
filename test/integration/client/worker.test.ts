import { beforeEach, describe, expect, it } from "vitest";
import { z } from "zod";
import {
  abandon,
  completed,
  failed,
  nack,
  queue,
  type TaskAck,
  type TaskContext,
} from "../../../src/client/index.ts";
import { onCleanup } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { gate, producerOf, type Scene, scene, workerOf } from "./scene.ts";

const mails = queue<{ n: number }, { sent: number }>("mails");

let server: Scene;

beforeEach(async () => {
  server = await scene();
});

const stateOf = async (id: string): Promise<string> => (await server.mill.tasks.get(id)).state;

async function enqueue(count: number, options: { maxAttempts?: number } = {}): Promise<string[]> {
  const producer = await producerOf({ url: server.producer });
  const tasks = Array.from({ length: count }, (_, n) => ({ payload: { n }, ...options }));
  return (await producer.enqueueMany(mails, tasks)).map(({ id }) => id);
}

describe("a remote worker", () => {
  it("runs tasks with all that is known of them, and keeps their results", async () => {
    const producer = await producerOf({ url: server.producer });
    const { id } = await producer.enqueue(
      mails,
      { n: 7 },
      { kind: "welcome", priority: 9, traceParent: "00-1-2-01", maxAttempts: 3 },
    );
    const seen: unknown[] = [];
    await workerOf({
      url: server.worker,
      workerId: "hand-1",
      handlers: [
        mails.handle((task, context) => {
          seen.push({ ...pick(task), token: context.token, workerId: context.workerId });
          return completed({ sent: task.payload.n });
        }),
      ],
    });
    await eventually(async () => expect(await stateOf(id)).toBe("completed"));
    expect(seen).toMatchObject([
      {
        id,
        queue: "mails",
        kind: "welcome",
        payload: { n: 7 },
        priority: 9,
        tenant: "acme",
        attempt: 1,
        maxAttempts: 3,
        traceParent: "00-1-2-01",
        partitionKey: undefined,
        bytes: undefined,
        contentType: "application/json",
        workerId: "hand-1",
        token: { taskId: id, generation: 1 },
      },
    ]);
    expect(await server.mill.tasks.get(id)).toMatchObject({ result: { sent: 7 } });
  });

  it("tells the server every outcome, and its user what became of it", async () => {
    const outcomes = [
      () => completed({ sent: 1 }),
      () => undefined,
      () => failed("no such address", { retry: false }),
      () => failed("busy"),
      () => nack(3_600, "later"),
      () => abandon(),
      () => {
        throw new Error("broken");
      },
      () => "sent" as never,
    ];
    const ids = await enqueue(outcomes.length);
    const acks: TaskAck[] = [];
    const seen = new Set<string>();
    await workerOf({
      url: server.worker,
      handlers: [
        mails.handle(({ id, payload }) => {
          if (seen.has(id)) return nack(3_600, "again");
          seen.add(id);
          return outcomes[payload.n]?.();
        }),
      ],
      onAck: (ack) => void acks.push(ack),
    });
    await eventually(() => expect(new Set(acks.map(({ task }) => task.id)).size).toBe(8));
    const first = ids.map((id) => acks.find(({ task }) => task.id === id));
    expect(first.map((ack) => [ack?.act, ack?.state])).toEqual([
      ["complete", "completed"],
      ["complete", "completed"],
      ["fail", "failed"],
      ["fail", "scheduled"],
      ["nack", "scheduled"],
      ["abandon", "scheduled"],
      ["fail", "scheduled"],
      ["fail", "scheduled"],
    ]);
    expect(first[4]?.delaySeconds).toBe(3_600);
    const reasons = await Promise.all(
      [4, 6, 7].map(async (n) => (await server.mill.tasks.failures(ids[n] ?? ""))[0]?.reason),
    );
    expect(reasons).toEqual(["later", "broken", expect.stringContaining("must return completed")]);
  });

  it("checks payloads and results by the schemas of the queue", async () => {
    const typed = queue("typed", {
      schema: z.object({ n: z.coerce.number() }),
      resultSchema: z.object({ double: z.number() }),
    });
    const untyped = queue("typed");
    const producer = await producerOf({ url: server.producer });
    const tasks = [{ n: "4" }, { m: 4 }, { n: 5 }].map((payload) => ({ payload }));
    const ids = (await producer.enqueueMany(untyped, tasks)).map(({ id }) => id);
    const acks = new Map<string, TaskAck>();
    await workerOf({
      url: server.worker,
      handlers: [
        typed.handle(({ payload: { n } }) =>
          n === 5 ? completed({ double: "10" } as never) : completed({ double: n * 2 }),
        ),
      ],
      onAck: (ack) => void (acks.has(ack.task.id) ? undefined : acks.set(ack.task.id, ack)),
    });
    await eventually(() => expect(acks.size).toBe(3));
    expect(ids.map((id) => acks.get(id)?.state)).toEqual(["completed", "dead", "scheduled"]);
    expect(await server.mill.deadLetters.list()).toMatchObject([
      { id: ids[1], cause: "invalid_payload", reason: expect.stringContaining("payload") },
    ]);
    expect((await server.mill.tasks.get(ids[0] ?? "")).result).toEqual({ double: 8 });
  });

  it("runs the same function as a worker with the database", async () => {
    const handler = mails.handle(async ({ payload, attempt }, context) => {
      await context.progress({ at: payload.n });
      await context.extend(120);
      if (context.signal.aborted) throw context.signal.reason;
      return completed({ sent: payload.n * attempt });
    });
    const ids = await enqueue(2);
    const remote = await workerOf({ url: server.worker, handlers: [handler] });
    await eventually(async () => expect(await stateOf(ids[1] ?? "")).toBe("completed"));
    await remote.stop();
    const [, other = ""] = await enqueue(2);
    const local = await server.mill.startWorker({ handlers: [handler] });
    onCleanup(() => local.stop());
    await eventually(async () => expect(await stateOf(other)).toBe("completed"));
    for (const id of [ids[1] ?? "", other]) {
      expect(await server.mill.tasks.get(id)).toMatchObject({ result: { sent: 1 } });
    }
  });

  it("runs tasks of one key one after another, in their order", async () => {
    const producer = await producerOf({ url: server.producer });
    const keys = ["a", "b", "c"];
    const tasks = Array.from({ length: 30 }, (_, n) => ({
      payload: { n },
      partitionKey: keys[n % 3] ?? "",
    }));
    await producer.enqueueMany(mails, tasks);
    const [ran, running, overlaps] = [[] as number[], new Set<string>(), [] as number[]];
    await workerOf({
      url: server.worker,
      concurrency: 8,
      batchSize: 4,
      handlers: [
        mails.handle(async ({ payload, partitionKey = "" }) => {
          if (running.has(partitionKey)) overlaps.push(payload.n);
          running.add(partitionKey);
          await new Promise((resolve) => setImmediate(resolve));
          running.delete(partitionKey);
          ran.push(payload.n);
        }),
      ],
    });
    await eventually(() => expect(ran).toHaveLength(30));
    expect(overlaps).toEqual([]);
    for (const key of [0, 1, 2]) {
      const ofKey = ran.filter((n) => n % 3 === key);
      expect(ofKey).toEqual(ofKey.toSorted((a, b) => a - b));
    }
  });

  it("says that a transaction cannot cross the wire", async () => {
    const [id = ""] = await enqueue(1, { maxAttempts: 1 });
    await workerOf({
      url: server.worker,
      handlers: [
        mails.handle(async (_task, context) => {
          await context.complete({ query: () => Promise.reject(new Error("never")) });
        }),
      ],
    });
    await eventually(async () => expect(await stateOf(id)).toBe("dead"));
    const [failure] = await server.mill.tasks.failures(id);
    expect(failure?.reason).toMatch(/complete\(tx\) needs a worker with the database.*return/);
  });

  it("runs as many as it may at once, of one queue perhaps fewer", async () => {
    const slow = queue<number>("slow");
    const producer = await producerOf({ url: server.producer });
    const all = Array.from({ length: 10 }, (_, n) => ({ payload: { n } }));
    await producer.enqueueMany(mails, all);
    await producer.enqueueMany(
      slow,
      all.map((_, n) => ({ payload: n })),
    );
    const [release, running, peak] = [gate(), { slow: 0, mails: 0 }, { slow: 0, all: 0 }];
    const run = async (name: "slow" | "mails"): Promise<void> => {
      running[name] += 1;
      peak.slow = Math.max(peak.slow, running.slow);
      peak.all = Math.max(peak.all, running.slow + running.mails);
      await release.opened;
      running[name] -= 1;
    };
    const worker = await workerOf({
      url: server.worker,
      concurrency: 5,
      handlers: [
        mails.handle(() => run("mails")),
        slow.handle(() => run("slow"), { concurrency: 2 }),
      ],
    });
    await eventually(() => expect(worker.load.running).toBe(5));
    release.open();
    await eventually(() => expect(worker.load).toMatchObject({ running: 0, waiting: 0 }));
    await eventually(async () => {
      const { rows } = await server.database.pool.query("SELECT 1 FROM tidemill.live_tasks");
      expect(rows).toHaveLength(0);
    });
    expect(peak).toEqual({ slow: 2, all: 5 });
  });
});

describe("a handler", () => {
  it("is told when its task is cancelled", async () => {
    const [id = ""] = await enqueue(1);
    const [started, reasons] = [gate(), [] as unknown[]];
    const worker = await workerOf({
      url: server.worker,
      handlers: [mails.handle((_task, context) => untilAborted(context, started, reasons))],
    });
    await started.opened;
    await server.mill.tasks.cancel(id, { reason: "changed my mind" });
    await eventually(() => expect(worker.load.running).toBe(0));
    expect(reasons).toMatchObject([{ code: "TM_TASK_CANCELLED", message: "changed my mind" }]);
    await eventually(async () => expect(await stateOf(id)).toBe("cancelled"));
  });

  it("is told when its time is up, and has failed", async () => {
    const producer = await producerOf({ url: server.producer });
    const options = { timeoutSeconds: 1, maxAttempts: 1 };
    const { id } = await producer.enqueue(mails, { n: 1 }, options);
    const [started, reasons] = [gate(), [] as unknown[]];
    await workerOf({
      url: server.worker,
      handlers: [mails.handle((_task, context) => untilAborted(context, started, reasons))],
    });
    await eventually(async () => expect(await stateOf(id)).toBe("dead"));
    await eventually(() => expect(reasons).toHaveLength(1));
  });
});

describe("a worker that stops", () => {
  it("waits for its handlers, and gives back what has not started", async () => {
    const ids = await enqueue(8);
    const [started, release] = [gate(), gate()];
    const worker = await workerOf({
      url: server.worker,
      concurrency: 2,
      batchSize: 4,
      drainSeconds: 20,
      handlers: [
        mails.handle(async () => {
          started.open();
          await release.opened;
        }),
      ],
    });
    await started.opened;
    await eventually(() => expect(worker.load).toMatchObject({ running: 2, waiting: 6 }));
    const stopped = worker.stop();
    // While the handlers still run, others can have the rest.
    await eventually(async () => {
      const states = await Promise.all(ids.map(stateOf));
      expect(states.filter((state) => state === "running")).toHaveLength(2);
    });
    release.open();
    await stopped;
    const tasks = await Promise.all(ids.map((id) => server.mill.tasks.get(id)));
    expect(tasks.filter(({ state }) => state === "completed")).toHaveLength(2);
    const others = tasks.filter(({ state }) => state !== "completed");
    expect(others.map(({ attempt }) => attempt)).toEqual([0, 0, 0, 0, 0, 0]);
  });

  it("aborts handlers that outlast the drain, and gives their tasks back uncounted", async () => {
    const [id = ""] = await enqueue(1);
    const [started, reasons] = [gate(), [] as unknown[]];
    const worker = await workerOf({
      url: server.worker,
      drainSeconds: 0,
      handlers: [mails.handle((_task, context) => untilAborted(context, started, reasons))],
    });
    await started.opened;
    await worker.stop();
    await worker.finished;
    expect(reasons).toMatchObject([{ code: "TM_WORKER_STOPPING" }]);
    expect(await server.mill.tasks.get(id)).toMatchObject({ attempt: 0 });
  });
});

async function untilAborted(
  context: TaskContext,
  started: { open(): void },
  reasons: unknown[],
): Promise<void> {
  const { signal } = context;
  await new Promise<void>((resolve) => {
    signal.addEventListener("abort", () => resolve(), { once: true });
    started.open();
  });
  reasons.push(signal.reason);
  throw signal.reason;
}

const pick = (task: object): object =>
  Object.fromEntries(
    [
      "id",
      "queue",
      "kind",
      "payload",
      "priority",
      "tenant",
      "attempt",
      "maxAttempts",
      "traceParent",
      "partitionKey",
      "bytes",
      "contentType",
    ].map((name) => [name, (task as Record<string, unknown>)[name]]),
  );
