import { beforeAll, describe, expect, it } from "vitest";
import { VERSION } from "../../../src/base/version.ts";
import { queue } from "../../../src/index.ts";
import { eventually } from "../../support/eventually.ts";
import { status } from "../../support/stream-client.ts";
import {
  abandon,
  complete,
  extend,
  fail,
  HANDED_OUT,
  nack,
  newQueue,
  progress,
  RemoteHand,
  tenant,
  tokenOf,
} from "./remote-hand.ts";
import { GLOBEX_WORKER, MAILS_WORKER, READER, type Scene, scene } from "./scene.ts";

let base: Scene;

beforeAll(async () => {
  base = await scene({ server: HANDED_OUT, until: "file" });
});

const hand = (at = base): RemoteHand => RemoteHand.at(at);

describe("a hello of Tidemill's worker", () => {
  it("is answered with the limits of the stream", async () => {
    const one = await hand().hello();
    expect(one.all("helloAck")).toEqual([
      {
        workerId: "hand-1",
        tenant,
        server: { name: "tidemill", version: VERSION, capabilities: [] },
        leaseSeconds: HANDED_OUT.leaseSeconds,
        graceSeconds: HANDED_OUT.graceSeconds,
        actsMax: 1_000,
        messageBytesMax: 4 * 1024 * 1024,
      },
    ]);
    const other = await hand().hello({ workerId: "", leaseSeconds: 90 });
    expect(other.all("helloAck")).toMatchObject([
      { workerId: expect.stringMatching(/^.{36}$/), leaseSeconds: 90 },
    ]);
    one.stream.send({ message: undefined });
    await eventually(() => expect(one.all("refused")).toHaveLength(1));
  });

  it.each([
    ["a token that is not known", { token: "x" }, status.UNAUTHENTICATED, "not valid"],
    ["a token without the scope", { token: READER }, status.PERMISSION_DENIED, "worker"],
    [
      "a queue that the token is not for",
      { token: MAILS_WORKER, queues: ["mails", "letters"] },
      status.PERMISSION_DENIED,
      "letters",
    ],
    ["a queue without a name", { queues: [" "] }, status.INVALID_ARGUMENT, "names"],
    ["a lease that never ends", { leaseSeconds: Infinity }, status.INVALID_ARGUMENT, "lease"],
    [
      "a token that is none",
      { held: [{ taskId: "0", generation: 1, claimId: "x" }] },
      status.INVALID_ARGUMENT,
      "token",
    ],
  ])("with %s ends the stream", async (_what, given, code, details) => {
    const ended = await (await hand().hello(given)).stream.ended;
    expect(ended.code).toBe(code);
    expect(ended.details).toContain(details);
  });

  it("comes first", async () => {
    const one = hand();
    one.ready(1);
    expect(await one.stream.ended).toMatchObject({ code: status.INVALID_ARGUMENT });
  });
});

describe("credit", () => {
  it("adds up, is used by tasks, and is never used twice", async () => {
    const mails = newQueue();
    const one = await hand().hello({ queues: [mails.name] });
    one.ready(2);
    one.ready(3);
    await base.mill.enqueue(mails, 0, { tenant });
    await one.gets(1);
    const rest = Array.from({ length: 9 }, (_, n) => ({ payload: n + 1, tenant }));
    await base.mill.enqueueMany(mails, rest);
    await one.gets(5);
    one.ready(5);
    const tasks = await one.gets(10);
    const done = await one.act(...tasks.map((task) => [task, complete()] as const));
    expect(new Set(done)).toEqual(new Set(["completed"]));
    expect(new Set(tasks.map((task) => tokenOf(task).taskId)).size).toBe(10);
  });

  it("is for a part of the queues, if it says so", async () => {
    const [mails, letters] = [newQueue(), newQueue()];
    const one = await hand().hello({ queues: [mails.name, letters.name] });
    await base.mill.enqueue(mails, 1, { tenant });
    await base.mill.enqueue(letters, 2, { tenant });
    one.ready(5, [letters.name]);
    expect(await one.gets(1)).toMatchObject([{ queue: letters.name }]);
    one.ready(1, ["others"]);
    one.ready(0);
    one.ready(10_001);
    await eventually(() => expect(one.all("refused")).toHaveLength(3));
    one.ready(1, [mails.name]);
    expect((await one.gets(2))[1]).toMatchObject({ queue: mails.name });
  });

  it("is void when the worker leaves, and what it holds goes back uncounted", async () => {
    const mails = newQueue();
    const one = await hand().hello({ queues: [mails.name] });
    await base.mill.enqueue(mails, 1, { tenant });
    const task = await one.get();
    one.ready(5);
    one.leave();
    await eventually(() => expect(one.all("leaveAck")).toHaveLength(1));
    one.ready(1);
    await eventually(() => expect(one.all("refused")).toHaveLength(1));
    one.stream.call.end();
    expect(await one.stream.ended).toMatchObject({ code: status.OK });
    const other = await hand().hello({ queues: [mails.name] });
    expect(await other.get()).toMatchObject({
      attempt: 1,
      lease: { token: { taskId: tokenOf(task).taskId } },
    });
  });
});

it("gets all that is known of a task, and keeps the bytes of its payload", async () => {
  const mails = newQueue();
  const one = await hand().hello({ queues: [mails.name] });
  const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  const bytes = Buffer.from([0, 255, 1, 2]);
  const given = { tenant, kind: "hot", priority: 7, timeoutSeconds: 30, traceParent: trace };
  const before = Date.now();
  const { id } = await base.mill.enqueue(mails, bytes, { ...given, contentType: "image/x" });
  const task = await one.get();
  expect(task).toMatchObject({
    lease: { token: { taskId: id, generation: 1 } },
    queue: mails.name,
    kind: "hot",
    contentType: "image/x",
    partitionKey: "",
    attempt: 1,
    maxAttempts: 5,
    priority: 7,
    tenant,
    traceParent: trace,
    timeoutSeconds: 30,
  });
  expect(task.payload).toEqual(bytes);
  expect(task.lease?.remainingMs).toBeGreaterThan(0);
  expect(task.lease?.remainingMs).toBeLessThan(HANDED_OUT.leaseSeconds * 1000);
  expect(task.lease?.leaseUntil?.getTime()).toBeGreaterThan(before);
});

it("gets what does not fit into one message with the next, without giving it back", async () => {
  const mails = newQueue();
  const one = await hand().hello({ queues: [mails.name] });
  const payload = "x".repeat(900_000);
  await base.mill.enqueueMany(
    mails,
    Array.from({ length: 8 }, () => ({ payload, tenant })),
  );
  one.ready(8);
  const tasks = await one.gets(8);
  expect(one.all("tasks").length).toBeGreaterThan(2);
  expect(new Set(tasks.map((task) => tokenOf(task).generation))).toEqual(new Set([1]));
});

describe("acts", () => {
  it("are answered in their order, each for itself, when they are durable", async () => {
    const mails = newQueue();
    const one = await hand().hello({ queues: [mails.name] });
    const many = Array.from({ length: 6 }, (_, n) => ({ payload: n, tenant, maxAttempts: 2 }));
    await base.mill.enqueueMany(mails, many);
    one.ready(6);
    const [a, b, c, d, e, f] = await one.gets(6);
    if (!a || !b || !c || !d || !e || !f) throw new Error("there are six");
    const stranger = { ...tokenOf(a), claimId: "0199a0b1-0000-4000-8000-000000000001" };
    const requestId = one.send([
      [a, complete({ n: 1 })],
      [stranger, complete()],
      [b, fail("no paper")],
      [c, fail("never", true)],
      [d, nack(60, "later")],
      [e, abandon()],
      [f, progress({ done: 3 })],
      [f, extend(120)],
      [f, nack(0, " ")],
      [f, { $case: "complete", value: { resultJson: Buffer.from("{") } }],
    ]);
    const acks = await one.acks(requestId);
    expect(acks.map(({ failure, state }) => failure?.code ?? state)).toEqual([
      "completed",
      "TM_LEASE_LOST",
      "scheduled",
      "failed",
      "scheduled",
      "scheduled",
      "running",
      "running",
      "TM_INVALID_INPUT",
      "TM_INVALID_INPUT",
    ]);
    expect(acks[4]?.delaySeconds).toBe(60);
    expect(acks[7]?.lease?.remainingMs).toBeGreaterThan(100_000);
    expect(await base.mill.result(tokenOf(a).taskId)).toEqual({ n: 1 });
    const held = await base.mill.tasks.get(tokenOf(f).taskId);
    expect(held).toMatchObject({ state: "running", progress: { done: 3 } });
    const again = await one.act([a, complete()], [d, complete()]);
    expect(again).not.toContain("running");
  });

  it("put a task back for no longer than its queue allows", async () => {
    const mails = newQueue();
    const one = await hand().hello({ queues: [mails.name] });
    await base.mill.enqueue(mails, 1, { tenant });
    const [ack] = await one.acks(one.send([[await one.get(), nack(1e12)]]));
    expect(ack).toMatchObject({ failure: undefined, state: "scheduled" });
    expect(ack?.delaySeconds).toBe(mails.settings.nackSecondsMax);
  });

  it("end a task for good when it may not be tried again", async () => {
    const mails = newQueue();
    const one = await hand().hello({ queues: [mails.name] });
    await base.mill.enqueue(mails, 1, { tenant, maxAttempts: 1 });
    expect(await one.act([await one.get(), nack(0)])).toEqual(["dead"]);
  });

  it("keep a result as it was written", async () => {
    const mails = newQueue();
    const one = await hand().hello({ queues: [mails.name] });
    const { id } = await base.mill.enqueue(mails, 1, { tenant });
    const resultJson = Buffer.from('{ "n": 12345678901234567890 }');
    await one.act([await one.get(), { $case: "complete", value: { resultJson } }]);
    const { rows } = await base.database.pool.query(
      "SELECT result FROM tidemill.task_history WHERE id = $1",
      [id],
    );
    expect(rows).toEqual([{ result: resultJson.toString() }]);
  });

  it("need their scope, and are refused to other tenants", async () => {
    const mails = queue("mails");
    const claimer = await hand().hello({ token: MAILS_WORKER, queues: ["mails"] });
    await base.mill.enqueue(mails, 1, { tenant });
    const task = await claimer.get();
    expect(await claimer.complete(task)).toBe("TM_FORBIDDEN");
    const stranger = await hand().hello({ token: GLOBEX_WORKER });
    expect(await stranger.complete(task)).toBe("TM_LEASE_LOST");
    expect(await (await hand().hello()).complete(task)).toBe("completed");
  });

  it("are at most so many in a message", async () => {
    const one = await hand().hello();
    const token = { taskId: "1", generation: 1, claimId: "0199a0b1-0000-4000-8000-000000000001" };
    one.send(Array.from({ length: 1_001 }, () => [token, complete()] as const));
    await eventually(() => expect(one.all("refused")).toHaveLength(1));
    expect(await one.act()).toEqual([]);
  });
});

it("hears that a task was cancelled, and may not act on it any more", async () => {
  const mails = newQueue();
  const one = await hand().hello({ queues: [mails.name] });
  const { id } = await base.mill.enqueue(mails, 1, { tenant });
  const task = await one.get();
  await base.mill.tasks.cancel(id, { reason: "not wanted" });
  await eventually(() => expect(one.all("cancel")).toHaveLength(1));
  expect(one.all("cancel")).toEqual([{ token: tokenOf(task), reason: "not wanted" }]);
  expect(await one.complete(task)).toBe("TM_LEASE_LOST");
});

it("hears that leases were renewed, and that the time of a task is up", async () => {
  const mails = newQueue();
  const one = await hand().hello({ queues: [mails.name] });
  // Its lease is renewed after a second, and after another one again.
  await base.mill.enqueue(mails, 1, { tenant, timeoutSeconds: 4 });
  const task = await one.get();
  await eventually(() => expect(one.all("renewed").length).toBeGreaterThan(0));
  const [lease] = one.all("renewed")[0]?.leases ?? [];
  expect(lease?.token).toEqual(tokenOf(task));
  expect(lease?.leaseUntil?.getTime()).toBeGreaterThan(task.lease?.leaseUntil?.getTime() ?? 0);
  await eventually(() => expect(one.all("leaseLost")).toEqual([{ tokens: [tokenOf(task)] }]));
});

describe("a stream that broke", () => {
  it("may have been heard: what it said is told again to the next", async () => {
    const mails = newQueue();
    const first = await hand().hello({ queues: [mails.name] });
    await base.mill.enqueue(mails, 1, { tenant });
    const task = await first.get();
    const second = await hand().hello({ queues: [mails.name] });
    first.send([[task, complete({ n: 1 })]]);
    second.send([[task, complete({ n: 1 })]]);
    first.stream.call.end();
    expect(await second.complete(task)).toBe("completed");
    await eventually(() => expect(second.all("actsAck")).toHaveLength(2));
    const states = second.all("actsAck").flatMap(({ acks }) => acks.map(({ state }) => state));
    expect(states).toEqual(["completed", "completed"]);
  });

  it("is followed by one that keeps what it names, and finishes the rest", async () => {
    const mails = newQueue();
    const first = await hand().hello({ queues: [mails.name] });
    await base.mill.enqueueMany(mails, [
      { payload: 1, tenant },
      { payload: 2, tenant },
      { payload: 3, tenant },
    ]);
    first.ready(3);
    const [kept, said, dropped] = await first.gets(3);
    if (!kept || !said || !dropped) throw new Error("there are three");
    const second = hand(); // Connects before the grace begins.
    first.stream.close();
    const unknown = { ...tokenOf(kept), generation: 7 };
    await second.hello({ queues: [mails.name], held: [tokenOf(kept), unknown] });
    expect(await second.complete(said)).toBe("completed");
    await eventually(() => expect(second.all("leaseLost")).toEqual([{ tokens: [unknown] }]));
    // What it did not name is lost after the grace; what it did is still its own.
    const again = await second.get();
    expect(again).toMatchObject({ attempt: 2 });
    expect(tokenOf(again).taskId).toBe(tokenOf(dropped).taskId);
    expect(await second.complete(dropped)).toBe("TM_LEASE_LOST");
    expect(await second.complete(kept)).toBe("completed");
  });
});

it("is told that the server goes, and has time to finish what it holds", async () => {
  const options = { worker: { port: 0 }, drainSeconds: 5 };
  const going = await scene({ server: options, database: base.database });
  const mails = newQueue();
  const one = await hand(going).hello({ queues: [mails.name] });
  await going.mill.enqueue(mails, 1, { tenant });
  const task = await one.get();
  one.ready(5);
  const stopping = going.server.stop();
  await eventually(() => expect(one.all("drain")).toMatchObject([{ graceSeconds: 5 }]));
  expect(await one.complete(task)).toBe("completed");
  expect(await one.stream.ended).toMatchObject({ code: status.OK });
  await stopping;
});
