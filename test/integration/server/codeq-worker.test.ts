import { expect, it } from "vitest";
import { queue } from "../../../src/index.ts";
import type { ServerOptions } from "../../../src/server/index.ts";
import type {
  Result,
  ResultAck,
  ServerEvent,
  Task,
  WorkerEvent,
} from "../../../src/wire/generated/codeq/worker.ts";
import { onCleanup } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { type CodeqWorker, codeqWorker, status } from "../../support/stream-client.ts";
import {
  ACME_WORKER,
  codeqBatch,
  codeqHello,
  GLOBEX_WORKER,
  READER,
  type Scene,
  scene,
} from "./scene.ts";

const mails = queue<{ n: number }>("mails", { backoff: { kind: "fixed", baseSeconds: 0.01 } });
const tenant = "acme";

interface WorkerScene extends Scene {
  readonly open: () => CodeqWorker;
  /** A stream that said hello and was heard. */
  readonly worker: (token?: string) => Promise<CodeqWorker>;
}

async function workers(more: ServerOptions = {}): Promise<WorkerScene> {
  const options = { worker: { port: 0 }, graceSeconds: 0.05, drainSeconds: 5, ...more };
  const base = await scene({ server: options });
  const url = `127.0.0.1:${base.server.address("worker").port}`;
  const open = (): CodeqWorker => {
    const stream = codeqWorker(url);
    onCleanup(() => Promise.resolve(stream.close()));
    return stream;
  };
  return {
    ...base,
    open,
    async worker(token = ACME_WORKER) {
      const stream = open();
      say(stream, { $case: "hello", value: { token, workerId: "" } });
      await stream.until(1);
      return stream;
    },
  };
}

const say = (stream: CodeqWorker, event: NonNullable<WorkerEvent["event"]>): void =>
  stream.send({ event });

function ready(stream: CodeqWorker, count = 1, commands = ["mails"], leaseSeconds = 0): void {
  say(stream, { $case: "ready", value: { commands, leaseSeconds, count } });
}

const result = (taskId: string, more: Partial<Result> = {}): Result => ({
  taskId,
  status: "COMPLETED",
  resultJson: Buffer.alloc(0),
  error: "",
  ...more,
});

const done = (stream: CodeqWorker, taskId: string, more: Partial<Result> = {}): void =>
  say(stream, { $case: "result", value: result(taskId, more) });

const all = (stream: CodeqWorker, $case: string): unknown[] =>
  stream.received.flatMap(({ event }) => (event?.$case === $case ? [event.value] : []));

function tasksOf(stream: CodeqWorker): Task[] {
  return stream.received.flatMap(({ event }: ServerEvent) => {
    if (event?.$case === "task") return event.value.task ?? [];
    return event?.$case === "taskBatch" ? event.value.tasks : [];
  });
}

async function gets(stream: CodeqWorker, count: number): Promise<Task[]> {
  return await eventually(() => {
    expect(tasksOf(stream)).toHaveLength(count);
    return tasksOf(stream);
  });
}

async function acks(stream: CodeqWorker, kind: string, count: number): Promise<ResultAck[]> {
  return await eventually(() => {
    const found = all(stream, kind) as ResultAck[];
    expect(found).toHaveLength(count);
    return found;
  });
}

it("begins with a hello that is known, and hears no second one", async () => {
  const { open, worker } = await workers();
  const rude = open();
  ready(rude);
  const unsaid = { code: status.FAILED_PRECONDITION, details: "first event must be Hello" };
  expect(await rude.ended).toEqual(unsaid);
  const unknown = open();
  say(unknown, { $case: "hello", value: { token: "nobody-knows-this-token", workerId: "w" } });
  expect(await unknown.ended).toMatchObject({
    code: status.UNAUTHENTICATED,
    details: expect.stringMatching(/^auth failed: /),
  });
  const known = await worker();
  expect(all(known, "helloAck")).toEqual([{ workerId: "hand", tenantId: tenant }]);
  say(known, { $case: "hello", value: { token: ACME_WORKER, workerId: "" } });
  const reader = await worker(READER);
  ready(reader);
  const again = { code: "FailedPrecondition", message: "already-authenticated" };
  await eventually(() => expect(all(known, "error")).toEqual([again]));
  const unscoped = { code: "PermissionDenied", message: "missing scope" };
  await eventually(() => expect(all(reader, "error")).toEqual([unscoped]));
});

it("holds a ready until there is work, and acknowledges what is durable", async () => {
  const { worker, mill } = await workers();
  const stream = await worker();
  ready(stream);
  await mill.enqueue(mails, { n: 7 }, { tenant });
  const [task] = await gets(stream, 1);
  expect(task).toMatchObject({ command: "mails", attempts: 1, tenantId: tenant });
  expect(JSON.parse(task?.payload.toString() ?? "")).toEqual({ n: 7 });
  done(stream, task?.id ?? "");
  const [ack] = await acks(stream, "resultAck", 1);
  expect(ack).toEqual({ taskId: task?.id, ok: true, errorMessage: "" });
  expect((await mill.tasks.get(task?.id ?? "")).state).toBe("completed");
  done(stream, task?.id ?? "");
  const [, late] = await acks(stream, "resultAck", 2);
  expect(late).toMatchObject({ ok: false, errorMessage: "not-in-progress" });
});

it("keeps readys that come while the database does not answer", async () => {
  const { worker, mill, database, logs } = await workers();
  const [any, named] = [await worker(), await worker()];
  const locker = await database.session();
  await locker.query("BEGIN");
  await locker.query("LOCK TABLE tidemill.queues IN ACCESS EXCLUSIVE MODE");
  ready(any, 1, []);
  ready(named, 1, ["letters"]);
  // Whoever reads the queues is cut off, until both readys have failed once.
  await eventually(async () => {
    await database.pool.query(
      `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event_type = 'Lock'`,
    );
    const failed = logs.filter(({ message }) => /new queues|queues of a worker/.test(message));
    expect(new Set(failed.map(({ message }) => message)).size).toBe(2);
  });
  await locker.query("ROLLBACK");
  await mill.enqueueMany(
    queue<number>("letters"),
    [1, 2].map((payload) => ({ payload, tenant })),
  );
  for (const stream of [any, named]) {
    expect(await gets(stream, 1)).toMatchObject([{ command: "letters" }]);
    expect(all(stream, "error")).toEqual([]);
  }
});

it("ends a stream whose ready can never be served", async () => {
  const { worker } = await workers({ queuesPerTenantMax: 1 });
  const [greedy, bold] = [await worker(), await worker()];
  for (let n = 0; n <= 1_000; n += 1) ready(greedy);
  expect(await greedy.ended).toMatchObject({
    code: status.RESOURCE_EXHAUSTED,
    details: expect.stringContaining("1000 readys"),
  });
  ready(bold, 1, ["letters"]);
  expect(await bold.ended).toMatchObject({
    code: status.INVALID_ARGUMENT,
    details: expect.stringContaining("letters"),
  });
});

it("serves batches of no more than was asked for, and answers in their order", async () => {
  const { worker, mill } = await workers();
  const stream = await worker();
  const payloads = Array.from({ length: 20 }, (_, n) => ({ payload: { n }, tenant }));
  ready(stream, 8);
  await mill.enqueueMany(mails, payloads);
  await eventually(() => expect(tasksOf(stream).length).toBeGreaterThan(0));
  while (tasksOf(stream).length < 20) {
    const before = tasksOf(stream).length;
    ready(stream, 8);
    await eventually(() => expect(tasksOf(stream).length).toBeGreaterThan(before));
  }
  const sizes = (all(stream, "taskBatch") as { tasks: Task[] }[]).map(({ tasks }) => tasks.length);
  expect(Math.max(...sizes)).toBeLessThanOrEqual(8);
  const tasks = tasksOf(stream);
  expect(new Set(tasks.map(({ id }) => id)).size).toBe(20);
  const results = tasks.map(({ id }) => result(id, { resultJson: Buffer.from('{"ok":true}') }));
  results.push(result("4711"), result(tasks[0]?.id ?? "", { status: "DONE" }));
  say(stream, { $case: "resultBatch", value: { results } });
  const [batch] = (await acks(stream, "resultAckBatch", 1)) as unknown as { acks: ResultAck[] }[];
  expect(batch?.acks.map(({ taskId }) => taskId)).toEqual(results.map(({ taskId }) => taskId));
  expect(batch?.acks.map(({ ok }) => ok)).toEqual([...Array(20).fill(true), false, false]);
  expect(batch?.acks.slice(20).map(({ errorMessage }) => errorMessage)).toEqual([
    "not-found",
    "status must be COMPLETED or FAILED",
  ]);
  expect(await mill.result(tasks[0]?.id ?? "")).toEqual({ ok: true });
});

it("hears four outcomes: each is counted as it should be", async () => {
  const { worker, mill } = await workers();
  const stream = await worker();
  const { id } = await mill.enqueue(mails, { n: 1 }, { tenant, maxAttempts: 3 });
  ready(stream);
  await gets(stream, 1);
  say(stream, { $case: "abandon", value: { taskId: id } });
  expect(await acks(stream, "abandonAck", 1)).toMatchObject([{ ok: true }]);
  ready(stream);
  expect((await gets(stream, 2))[1]).toMatchObject({ id, attempts: 1 });
  done(stream, id, { status: "FAILED", error: "no paper" });
  ready(stream);
  expect((await gets(stream, 3))[2]).toMatchObject({ id, attempts: 2 });
  say(stream, { $case: "heartbeat", value: { taskId: id, extendSeconds: 90 } });
  expect(await acks(stream, "heartbeatAck", 1)).toMatchObject([{ ok: true }]);
  say(stream, { $case: "nack", value: { taskId: id, delaySeconds: 0, reason: "busy" } });
  const [nacked] = await acks(stream, "nackAck", 1);
  expect(nacked).toMatchObject({ ok: true, appliedDelaySeconds: 0, dlq: false });
  ready(stream);
  expect((await gets(stream, 4))[3]).toMatchObject({ id, attempts: 3 });
  say(stream, { $case: "nack", value: { taskId: id, delaySeconds: 5, reason: "still busy" } });
  expect((await acks(stream, "nackAck", 2))[1]).toMatchObject({ ok: true, dlq: true });
  expect((await mill.tasks.get(id)).state).toBe("dead");
  const reasons = (await mill.tasks.failures(id)).map(({ reason }) => reason);
  expect(reasons).toEqual(["no paper", "busy", "still busy"]);
});

it("says of a nack what was written, and of one that came too late that nothing was", async () => {
  const { worker, mill, database } = await workers();
  const stream = await worker();
  const brief = queue<number>("brief", { nackSecondsMax: 7 });
  const ids: string[] = [];
  for (const maxAttempts of [2, 1, 1]) {
    ids.push((await mill.enqueue(brief, 1, { tenant, maxAttempts })).id);
  }
  for (const count of [1, 2, 3]) {
    ready(stream, 0, ["brief"]); // Whoever does not say how many gets one.
    await gets(stream, count);
  }
  const [later, last, lost] = ids.map((taskId) => ({ taskId, delaySeconds: 600, reason: "busy" }));
  if (later === undefined || last === undefined || lost === undefined) throw new Error("too few");
  const taken = "UPDATE tidemill.tasks SET lease_generation = lease_generation + 1 WHERE id = $1";
  await database.pool.query(taken, [lost.taskId]);
  for (const [place, value] of [later, last, lost].entries()) {
    say(stream, { $case: "nack", value });
    await acks(stream, "nackAck", place + 1);
  }
  const nothing = { appliedDelaySeconds: 0, dlq: false };
  expect(all(stream, "nackAck")).toEqual([
    { taskId: later.taskId, ok: true, errorMessage: "", appliedDelaySeconds: 7, dlq: false },
    { taskId: last.taskId, ok: true, errorMessage: "", appliedDelaySeconds: 0, dlq: true },
    { taskId: lost.taskId, ok: false, errorMessage: "not-in-progress", ...nothing },
  ]);
  const { rows } = await database.pool.query(
    `SELECT run_at - NOW() BETWEEN '0 s' AND '7 s' AS "isClamped"
       FROM tidemill.tasks WHERE id = $1`,
    [later.taskId],
  );
  expect(rows).toEqual([{ isClamped: true }]);
  expect((await mill.tasks.get(last.taskId)).state).toBe("dead");
});

it("holds tasks for as long as a ready asks, and cuts a batch that is too large", async () => {
  const { worker, mill, database } = await workers();
  const stream = await worker();
  const payload = { n: 1, text: "x".repeat(900_000) };
  await mill.enqueueMany(
    queue<object>("mails"),
    Array.from({ length: 4 }, () => ({ payload, tenant })),
  );
  ready(stream, 4, ["mails"], 600);
  await eventually(() => expect(tasksOf(stream).length).toBeGreaterThan(0));
  expect(tasksOf(stream).length).toBeLessThan(4);
  while (tasksOf(stream).length < 4) {
    const before = tasksOf(stream).length;
    ready(stream, 4, ["mails"], 600);
    await eventually(() => expect(tasksOf(stream).length).toBeGreaterThan(before));
  }
  const { rows } = await database.pool.query(
    `SELECT min(date_part('epoch', lease_until - claimed_at)) >= 600 AS "isLong",
            max(lease_generation) AS generation
       FROM tidemill.tasks`,
  );
  expect(rows).toEqual([{ isLong: true, generation: 1 }]);
});

it("lengthens a lease by a heartbeat, as far as its task may take", async () => {
  const { worker, mill, database } = await workers();
  const stream = await worker();
  const timed = queue<number>("timed", { timeoutSeconds: 120 });
  const { id: long } = await mill.enqueue(mails, { n: 1 }, { tenant });
  const { id: short } = await mill.enqueue(timed, 1, { tenant });
  ready(stream, 2, ["mails", "timed"]);
  ready(stream, 2, ["mails", "timed"]);
  await gets(stream, 2);
  for (const [taskId, extendSeconds] of [
    [long, 600],
    [short, 600],
    [long, 0],
    ["4711", 600],
  ] as const) {
    say(stream, { $case: "heartbeat", value: { taskId, extendSeconds } });
  }
  const told = (await acks(stream, "heartbeatAck", 4)).map(
    ({ taskId, ok, errorMessage }) => `${taskId} ${ok ? "ok" : errorMessage}`,
  );
  expect(told.sort()).toEqual([`${long} ok`, `${long} ok`, `${short} ok`, "4711 not-found"].sort());
  const { rows } = await database.pool.query<{ seconds: number }>(
    `SELECT date_part('epoch', lease_until - claimed_at) AS seconds
       FROM tidemill.tasks ORDER BY queue`,
  );
  expect(rows[0]?.seconds).toBeGreaterThanOrEqual(600);
  expect(rows[1]?.seconds).toBeGreaterThan(100);
  expect(rows[1]?.seconds).toBeLessThan(122);
});

it("gives the tasks of a stream that broke to another, whose word alone counts", async () => {
  // Still held in the name of the first when the second speaks, on a busy machine too.
  const { worker, mill } = await workers({ graceSeconds: 1 });
  const [first, second] = [await worker(), await worker()];
  ready(first);
  const { id } = await mill.enqueue(mails, { n: 1 }, { tenant });
  await gets(first, 1);
  first.close();
  done(second, id);
  expect(await acks(second, "resultAck", 1)).toMatchObject([{ errorMessage: "not-owner" }]);
  ready(second);
  expect(await gets(second, 1)).toMatchObject([{ id, attempts: 2 }]);
  done(second, id);
  expect((await acks(second, "resultAck", 2))[1]).toMatchObject({ ok: true });
});

it("keeps tenants apart, also where all queues are asked for", async () => {
  const { worker, mill } = await workers();
  const [acme, globex] = [await worker(), await worker(GLOBEX_WORKER)];
  await mill.enqueue(mails, { n: 1 }, { tenant: "globex" });
  ready(acme, 10, []);
  ready(globex, 10, []);
  const [task] = await gets(globex, 1);
  done(acme, task?.id ?? "");
  expect(await acks(acme, "resultAck", 1)).toMatchObject([{ errorMessage: "not-found" }]);
  expect(tasksOf(acme)).toEqual([]);
});

it("serves a queue that was made after all queues were asked for", async () => {
  const { worker, mill } = await workers();
  const stream = await worker();
  ready(stream, 1, []);
  await mill.enqueue(queue("made-later"), { n: 1 }, { tenant });
  expect(await gets(stream, 1)).toMatchObject([{ command: "made-later" }]);
});

it("serves a queue that nobody but its worker and its producer has named", async () => {
  const { worker, codeq } = await workers();
  const stream = await worker();
  ready(stream, 100, ["named-only"]);
  const producer = await codeqHello(codeq());
  const payload = Buffer.from('{ "amount": 1.0, "id": 12345678901234567890 }');
  const create = (n: number) => ({ seq: BigInt(n + 1), command: "named-only", payload });
  codeqBatch(
    producer,
    Array.from({ length: 100 }, (_, n) => create(n)),
  );
  await eventually(() => expect(tasksOf(stream).length).toBeGreaterThan(0));
  expect(tasksOf(stream)[0]?.payload.toString()).toBe(payload.toString());
});

it("takes back uncounted what a client holds that says no more", async () => {
  const { worker, mill } = await workers();
  const first = await worker();
  const { id } = await mill.enqueue(mails, { n: 1 }, { tenant });
  ready(first);
  ready(first);
  await gets(first, 1);
  first.call.end();
  expect(await first.ended).toMatchObject({ code: status.OK });
  const second = await worker();
  ready(second);
  expect(await gets(second, 1)).toMatchObject([{ id, attempts: 1 }]);
});

it("ends streams when the server goes, after what they have was said", async () => {
  const { worker, mill, server } = await workers();
  const stream = await worker();
  ready(stream);
  const { id } = await mill.enqueue(mails, { n: 1 }, { tenant });
  await gets(stream, 1);
  ready(stream);
  const stopping = server.stop();
  done(stream, id);
  expect(await stream.ended).toMatchObject({ code: status.OK });
  await stopping;
  expect(all(stream, "resultAck")).toMatchObject([{ ok: true }]);
  expect((await mill.tasks.get(id)).state).toBe("completed");
});
