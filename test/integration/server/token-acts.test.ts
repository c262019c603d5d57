import { beforeAll, describe, expect, it } from "vitest";
import { uuidv4 } from "../../../src/base/uuid.ts";
import type { Queue } from "../../../src/index.ts";
import { claimPacks } from "../../../src/tasks/sql/packs.ts";
import type { Task, WorkerHello } from "../../../src/wire/generated/tidemill/v1/worker.ts";
import { eventually } from "../../support/eventually.ts";
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
import { GLOBEX_WORKER, type Scene, scene } from "./scene.ts";

let one: Scene;
let other: Scene;

beforeAll(async () => {
  one = await scene({ server: HANDED_OUT, until: "file" });
  other = await scene({ server: HANDED_OUT, until: "file", database: one.database });
});

async function hand(at: Scene, hello: Partial<WorkerHello> = {}): Promise<RemoteHand> {
  return await RemoteHand.at(at).hello(hello);
}

async function fill(mails: Queue, count: number): Promise<void> {
  const payloads = Array.from({ length: count }, (_, n) => ({ payload: n, tenant }));
  await one.mill.enqueueMany(mails, payloads);
}

/** A queue of which so many tasks may run at once. */
async function limited(concurrency: number): Promise<Queue> {
  const mails = newQueue();
  await one.mill.queues.define(mails);
  await one.mill.queues.setLimits(mails.name, { concurrency });
  return mails;
}

/** Tasks that a worker got from the first server. */
async function held(
  count: number,
  mails = newQueue(),
): Promise<{ first: RemoteHand; mails: ReturnType<typeof newQueue>; tasks: Task[] }> {
  const first = await hand(one, { queues: [mails.name] });
  await fill(mails, count);
  first.ready(count);
  return { first, mails, tasks: await first.gets(count) };
}

async function leasedBy(task: Task): Promise<string | undefined> {
  const { rows } = await one.database.pool.query<{ leased_by: string }>(
    "SELECT leased_by FROM tidemill.tasks WHERE id = $1",
    [tokenOf(task).taskId],
  );
  return rows[0]?.leased_by;
}

/** Until so many hellos wait for a row that somebody has locked. */
async function adopting(count: number): Promise<void> {
  await eventually(async () => {
    const { rows } = await one.database.pool.query(
      `SELECT pid FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event_type = 'Lock'
          AND query LIKE '%SET leased_by%'`,
    );
    expect(rows).toHaveLength(count);
  });
}

/** From now on: the ids of tasks whose lease is made to end sooner. */
async function shortened(): Promise<() => Promise<string[]>> {
  const { pool } = one.database;
  await pool.query(`
    CREATE TABLE shortened (id bigint);
    CREATE FUNCTION note_shortened() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
      INSERT INTO shortened VALUES (NEW.id);
      RETURN NEW;
    END $$;
    CREATE TRIGGER note_shortened BEFORE UPDATE ON tidemill.tasks FOR EACH ROW
      WHEN (NEW.lease_until < OLD.lease_until) EXECUTE FUNCTION note_shortened()`);
  return async () => {
    const { rows } = await pool.query<{ id: string }>("TABLE shortened");
    await pool.query("DROP TABLE shortened; DROP FUNCTION note_shortened CASCADE");
    return rows.map(({ id }) => id);
  };
}

const taskOf = ([task]: readonly Task[]): Task => {
  if (task === undefined) throw new Error("no task came");
  return task;
};

describe("a result", () => {
  it("is taken by any server, once, and told again to who asks again", async () => {
    const { first, tasks } = await held(1);
    const task = taskOf(tasks);
    const second = await hand(other);
    first.stream.close();
    expect(await second.act([task, complete({ by: "the other server" })])).toEqual(["completed"]);
    const back = await hand(one);
    expect(await back.act([task, complete()], [task, nack(0)])).toEqual([
      "completed",
      "TM_LEASE_LOST",
    ]);
    const { taskId } = tokenOf(task);
    expect(await one.mill.result(taskId)).toEqual({ by: "the other server" });
    const { rows } = await one.database.pool.query(
      "SELECT count(*)::int AS count FROM tidemill.task_history WHERE id = $1",
      [taskId],
    );
    expect(rows).toEqual([{ count: 1 }]);
  });

  it("is one of two that are said at the same time", async () => {
    const { first, tasks } = await held(20);
    const second = await hand(other);
    const [here, there] = await Promise.all([
      first.act(...tasks.map((task) => [task, complete()] as const)),
      second.act(...tasks.map((task) => [task, fail("no", true)] as const)),
    ]);
    for (const place of tasks.keys()) {
      expect([
        ["completed", "TM_LEASE_LOST"],
        ["TM_LEASE_LOST", "failed"],
      ]).toContainEqual([here[place], there[place]]);
    }
  });

  it("that is said twice in one message at another server is written once", async () => {
    const { tasks } = await held(2);
    const [a, b] = tasks;
    if (!a || !b) throw new Error("there are two");
    const second = await hand(other);
    const later = nack(60, "later");
    const states = await second.act([a, later], [a, later], [b, later], [b, complete()]);
    expect(states).toEqual(["scheduled", "scheduled", "scheduled", "TM_LEASE_LOST"]);
    const reasons = await one.mill.tasks.failures(tokenOf(a).taskId);
    expect(reasons.map(({ reason }) => reason)).toEqual(["later"]);
  });

  it("of an older claim is refused everywhere", async () => {
    const { first, mails, tasks } = await held(3);
    const [task, ...said] = tasks;
    if (!task) throw new Error("no task came");
    const second = await hand(other, { queues: [mails.name] });
    // One claim took all of them: what became of some must not hide the others.
    for (const one of said) expect(await second.complete(one)).toBe("completed");
    first.stream.close();
    const again = await second.get();
    expect(again).toMatchObject({ attempt: 2, lease: { token: { generation: 2 } } });
    expect(await second.complete(task)).toBe("TM_LEASE_LOST");
    expect(await (await hand(one)).complete(task)).toBe("TM_LEASE_LOST");
    expect(await second.complete(again)).toBe("completed");
  });

  it("of a pack that another server holds closed opens it", async () => {
    const mails = newQueue();
    const payloads = Array.from({ length: 60 }, (_, n) => ({ payload: n, tenant }));
    await one.mill.enqueueMany(mails, payloads);
    const { rows } = await one.database.pool.query<{ lane: number; ids: string[] }>(
      "SELECT lane, ids::text[] AS ids FROM tidemill.task_packs WHERE queue = $1",
      [mails.name],
    );
    const claimId = uuidv4();
    const claim = { claimId, workerId: uuidv4(), leaseSeconds: 60 };
    const lanes = rows.map(({ lane }) => ({ lane, floor: 0, take: 10 }));
    expect((await claimPacks(one.mill.engine.db, claim, lanes)).packs.length).toBeGreaterThan(0);
    const tokens = rows
      .flatMap(({ ids }) => ids)
      .map((taskId) => ({ taskId, generation: 1, claimId }));
    const second = await hand(other);
    const [some, rest] = [tokens.slice(0, 30), tokens.slice(30)];
    const forged = some.map((token) => ({ ...token, claimId: uuidv4() }));
    expect(
      new Set(await second.act(...forged.map((token) => [token, complete()] as const))),
    ).toEqual(new Set(["TM_LEASE_LOST"]));
    const states = [
      ...(await second.act(...some.map((token) => [token, complete()] as const))),
      ...(await second.act(...rest.map((token) => [token, fail("never", true)] as const))),
    ];
    expect(states).toEqual([...Array(30).fill("completed"), ...Array(30).fill("failed")]);
  });

  it("of another tenant is nobody's", async () => {
    const { first, tasks } = await held(1);
    const stranger = await hand(other, { token: GLOBEX_WORKER });
    const acts = [complete(), fail("no"), nack(0), abandon(), extend(9), progress(1)];
    const answers = await stranger.act(...acts.map((act) => [taskOf(tasks), act] as const));
    expect(new Set(answers)).toEqual(new Set(["TM_LEASE_LOST"]));
    expect(await first.complete(taskOf(tasks))).toBe("completed");
  });
});

it("hears every kind of act at another server", async () => {
  const { tasks } = await held(4);
  const second = await hand(other);
  const [a, b, c, d] = tasks;
  if (!a || !b || !c || !d) throw new Error("there are four");
  const requestId = second.send([
    [a, fail("no paper")],
    [b, nack(60, "later")],
    [c, abandon()],
    [d, progress({ done: 1 })],
    [d, extend(100)],
  ]);
  const acks = await second.acks(requestId);
  const states = acks.map(({ failure, state }) => failure?.code ?? state);
  expect(states).toEqual(["scheduled", "scheduled", "scheduled", "running", "running"]);
  expect(acks[1]?.delaySeconds).toBe(60);
  expect(acks[4]?.lease?.remainingMs).toBeGreaterThan(80_000);
  const reasons = await one.mill.tasks.failures(tokenOf(a).taskId);
  expect(reasons.map(({ reason }) => reason)).toEqual(["no paper"]);
  const again = await second.act([b, nack(60, "later")], [b, complete()]);
  expect(again).toEqual(["scheduled", "TM_LEASE_LOST"]);
  // As a claim has it that was lost in a crash of the database.
  const zombie = (task: Task): Task => ({
    ...task,
    lease: { ...task.lease, token: { ...tokenOf(task), claimId: uuidv4() } } as Task["lease"],
  });
  const words = [nack(60, "later"), fail("no paper"), abandon()];
  const late = [a, b, c].flatMap((task) => words.map((word) => [zombie(task), word] as const));
  expect(new Set(await second.act(...late))).toEqual(new Set(["TM_LEASE_LOST"]));
  expect(await second.complete(d)).toBe("completed");
});

describe("a worker that comes back to another server", () => {
  it("keeps what it names, and hears what becomes of it", async () => {
    const { first, mails, tasks } = await held(3);
    const [kept, cancelled, left] = tasks;
    if (!kept || !cancelled || !left) throw new Error("there are three");
    const endedLeases = await shortened();
    first.stream.close();
    const names = [tokenOf(kept), tokenOf(cancelled)];
    const second = await hand(other, { queues: [mails.name], held: names });
    // The first server has ended the leases of what it lost by then.
    const again = await second.get();
    expect(tokenOf(again)).toMatchObject({ taskId: tokenOf(left).taskId, generation: 2 });
    expect(new Set(await endedLeases())).toEqual(new Set([tokenOf(left).taskId]));
    await one.mill.tasks.cancel(tokenOf(cancelled).taskId, { reason: "not wanted" });
    await eventually(() => expect(second.all("cancel")).toHaveLength(1));
    await eventually(() => expect(second.all("renewed").length).toBeGreaterThan(0));
    expect(second.all("leaseLost")).toEqual([]);
    expect(await second.complete(kept)).toBe("completed");
    expect(await second.complete(again)).toBe("completed");
    expect((await one.mill.tasks.get(tokenOf(cancelled).taskId)).state).toBe("cancelled");
  });

  it("keeps as many as a stream may have", async () => {
    const server = { ...HANDED_OUT, graceSeconds: 30, leaseSeconds: 60 };
    const from = await scene({ server });
    const to = await scene({ server, database: from.database });
    const [mails, count] = [newQueue(), 2_500];
    const first = await hand(from, { queues: [mails.name] });
    const payloads = Array.from({ length: count }, (_, n) => ({ payload: n, tenant }));
    await from.mill.enqueueMany(mails, payloads);
    first.ready(count);
    const held = (await first.gets(count)).map(tokenOf);
    first.stream.close();
    const second = await hand(to, { queues: [mails.name], held });
    await eventually(() => {
      const kept = second.all("renewed").flatMap(({ leases }) => leases);
      expect(new Set(kept.map(({ token }) => token?.taskId)).size).toBe(count);
    });
    expect(second.all("leaseLost")).toEqual([]);
  });

  it("keeps those behind a task of the same key waiting for it", async () => {
    const mails = newQueue();
    const enqueue = (n: number, partitionKey: string) =>
      one.mill.enqueue(mails, n, { tenant, partitionKey });
    const first = await hand(one, { queues: [mails.name] });
    for (const n of [1, 2]) await enqueue(n, "order:1");
    const head = await first.get();
    expect(head).toMatchObject({ partitionKey: "order:1", attempt: 1 });
    first.stream.close();
    const second = await hand(other, { queues: [mails.name], held: [tokenOf(head)] });
    const others = ["order:2", "order:3", "order:4"];
    for (const key of others) await enqueue(1, key);
    second.ready(10);
    // They come when the second server has the keys of the tenant, and has looked for tasks.
    const tasks = await second.gets(3);
    expect(tasks.map(({ partitionKey }) => partitionKey).sort()).toEqual(others);
    expect(await second.complete(head)).toBe("completed");
    const next = (await second.gets(4))[3];
    expect(next).toMatchObject({ partitionKey: "order:1", attempt: 1 });
    expect(JSON.parse(next?.payload.toString() ?? "")).toBe(2);
  });

  it("keeps it in its slot of a limited queue, however long it runs there", async () => {
    const mails = await limited(1);
    const first = await hand(one, { queues: [mails.name] });
    await fill(mails, 2);
    const task = await first.get();
    first.stream.close();
    const second = await hand(other, { queues: [mails.name], held: [tokenOf(task)] });
    const third = await hand(one, { queues: [mails.name] });
    for (const worker of [second, third]) worker.ready(1);
    // By then the first server would have taken it for reaped, had nobody renewed it.
    await eventually(async () => {
      const { rows } = await one.database.pool.query<{ is_long_ago: boolean }>(
        `SELECT claimed_at < NOW() - INTERVAL '9 seconds' AS is_long_ago
           FROM tidemill.tasks WHERE id = $1`,
        [tokenOf(task).taskId],
      );
      expect(rows).toEqual([{ is_long_ago: true }]);
    });
    expect([...second.all("tasks"), ...third.all("tasks")]).toEqual([]);
    expect(await second.complete(task)).toBe("completed");
    await eventually(() => expect([...second.all("tasks"), ...third.all("tasks")]).toHaveLength(1));
  });

  it("leaves slots of what ended to others when the first server has stopped", async () => {
    const stopping = await scene({
      server: { ...HANDED_OUT, drainSeconds: 0.3 },
      database: one.database,
    });
    const mails = await limited(2);
    const first = await hand(stopping, { queues: [mails.name] });
    await fill(mails, 3);
    first.ready(2);
    const [ends, runs] = await first.gets(2);
    if (!ends || !runs) throw new Error("there are two");
    const before = await leasedBy(runs);
    const names = [tokenOf(ends), tokenOf(runs)];
    const second = await hand(other, { queues: [mails.name], held: names });
    for (const task of [ends, runs]) {
      await eventually(async () => expect(await leasedBy(task)).not.toBe(before));
    }
    await stopping.server.stop();
    second.ready(1);
    expect(await second.complete(ends)).toBe("completed");
    const [third] = await second.gets(1);
    expect(third).toMatchObject({ attempt: 1 });
    expect(await one.mill.tasks.get(tokenOf(runs).taskId)).toMatchObject({ state: "running" });
    for (const task of [runs, taskOf(second.tasks)]) {
      expect(await second.complete(task)).toBe("completed");
    }
  });

  it("loses it there when it goes without a word", async () => {
    const { first, mails, tasks } = await held(1);
    first.stream.close();
    const second = await hand(other, { queues: [mails.name], held: [tokenOf(taskOf(tasks))] });
    second.stream.close();
    const third = await hand(one, { queues: [mails.name] });
    expect(await third.get()).toMatchObject({ attempt: 2 });
  });

  it("keeps it when it is back at the first before the second forgets it", async () => {
    const { first, mails, tasks } = await held(2);
    const [kept, left] = tasks;
    if (!kept || !left) throw new Error("there are two");
    const before = await leasedBy(kept);
    first.stream.close();
    const names = [tokenOf(kept), tokenOf(left)];
    const second = await hand(other, { queues: [mails.name], held: names });
    await eventually(async () => expect(await leasedBy(kept)).not.toBe(before));
    second.stream.close();
    const third = await hand(one, { queues: [mails.name], held: [tokenOf(kept)] });
    // The second server has ended the leases of what it lost by then.
    const again = await third.get();
    expect(tokenOf(again)).toMatchObject({ taskId: tokenOf(left).taskId, generation: 2 });
    expect(await third.complete(kept)).toBe("completed");
    expect(third.all("leaseLost")).toEqual([]);
    expect(await third.complete(again)).toBe("completed");
  });

  it("keeps it when it came twice at the same time and one stream broke", async () => {
    const { first, mails, tasks } = await held(2);
    const [kept, left] = tasks;
    if (!kept || !left) throw new Error("there are two");
    const names = [tokenOf(kept), tokenOf(left)];
    const locker = await one.database.pool.connect();
    await locker.query("BEGIN");
    await locker.query("SELECT FROM tidemill.tasks WHERE id = $1 FOR UPDATE", [names[0]?.taskId]);
    const a = await hand(other, { queues: [mails.name], held: names });
    await adopting(1);
    const b = await hand(other, { queues: [mails.name], held: names.slice(0, 1) });
    await adopting(2);
    first.stream.close(); // Its server gives it up soon, and finds both waiting before it.
    await locker.query("ROLLBACK");
    locker.release();
    // Answered when the second has it: its hello comes first, with all that it brought.
    await b.act([kept, progress("here")]);
    a.stream.close();
    // The leases of what the first stream had have ended by then.
    const again = await b.get();
    expect(tokenOf(again)).toMatchObject({ taskId: tokenOf(left).taskId, generation: 2 });
    expect(await b.complete(kept)).toBe("completed");
    expect(await b.complete(again)).toBe("completed");
  });

  it.each(["breaks", "stays"])("keeps it when the first stops and its stream %s", async (how) => {
    const first = await scene({
      server: { ...HANDED_OUT, drainSeconds: 0.3 },
      database: one.database,
    });
    const mails = newQueue();
    const before = await hand(first, { queues: [mails.name] });
    await one.mill.enqueue(mails, 1, { tenant });
    const task = await before.get();
    const worker = await leasedBy(task);
    const second = await hand(other, { queues: [mails.name], held: [tokenOf(task)] });
    await eventually(async () => expect(await leasedBy(task)).not.toBe(worker));
    const stopped = first.server.stop();
    await eventually(() => expect(before.all("drain")).toHaveLength(1));
    if (how === "breaks") before.stream.close();
    await stopped;
    const { rows } = await one.database.pool.query(
      "SELECT claim_id FROM tidemill.task_claims WHERE claim_id = $1",
      [tokenOf(task).claimId],
    );
    expect(rows).toHaveLength(1);
    expect(await one.mill.tasks.get(tokenOf(task).taskId)).toMatchObject({ state: "running" });
    expect(await second.complete(task)).toBe("completed");
  });

  it("has no more time for a task than it had", async () => {
    const { first, tasks } = await held(1, newQueue({ timeoutSeconds: 3_600 }));
    const token = tokenOf(taskOf(tasks));
    first.stream.close();
    await one.database.pool.query(
      "UPDATE tidemill.tasks SET claimed_at = claimed_at - INTERVAL '1 hour' WHERE id = $1",
      [token.taskId],
    );
    const second = await hand(other, { held: [token] });
    await eventually(() => expect(second.all("leaseLost")).toEqual([{ tokens: [token] }]));
    // Its worker is told at once, and the database is with the next ends that are written.
    await eventually(async () => {
      const outcomes = await one.mill.tasks.failures(token.taskId);
      expect(outcomes.map(({ outcome }) => outcome)).toEqual(["timeout"]);
    });
  });
});

it("leaves its slot soon when its worker has gone, however long its lease", async () => {
  const patient = await scene({
    server: { ...HANDED_OUT, leaseSeconds: 60 },
    database: one.database,
  });
  const mails = await limited(1);
  const first = await hand(patient, { queues: [mails.name] });
  await fill(mails, 2);
  await first.get();
  first.stream.close();
  const second = await hand(patient, { queues: [mails.name] });
  second.ready(1);
  await eventually(() => expect(second.tasks).toHaveLength(1), { timeoutMs: 10_000 });
});

it("leaves the slots of a limited queue to the server at which it is ordered", async () => {
  const [mails, letters] = [newQueue(), newQueue()];
  await one.mill.queues.define(mails);
  await one.mill.queues.setLimits(mails.name, { concurrency: 1 });
  const first = await hand(one, { queues: [mails.name, letters.name] });
  await one.mill.enqueue(mails, 0, { tenant });
  expect(await first.complete(await first.get())).toBe("completed");
  first.ready(1, [letters.name]); // It wants something, and nothing of the limited queue.
  const second = await hand(other, { queues: [mails.name] });
  for (let n = 1; n <= 20; n += 1) {
    await one.mill.enqueue(mails, n, { tenant });
    expect(await second.complete(await second.get())).toBe("completed");
  }
});

it("holds a lease as long as the worker asks, and no longer than the task may take", async () => {
  const [long, timed] = [newQueue(), newQueue({ timeoutSeconds: 10 })];
  const patient = await hand(one, { queues: [long.name, timed.name], leaseSeconds: 600 });
  await one.mill.enqueue(long, 1, { tenant });
  const first = await patient.get();
  expect(first.lease?.remainingMs).toBeGreaterThan(500_000);
  await one.mill.enqueue(timed, 1, { tenant });
  const second = await patient.get();
  expect(second.lease?.remainingMs).toBeLessThan(10_000);
  expect(second.lease?.remainingMs).toBeGreaterThan(3_000);
  const { rows } = await one.database.pool.query<{ seconds: number }>(
    `SELECT date_part('epoch', lease_until - claimed_at) AS seconds
       FROM tidemill.tasks WHERE id = ANY ($1) ORDER BY id`,
    [[tokenOf(first).taskId, tokenOf(second).taskId]],
  );
  expect(rows[0]?.seconds).toBeGreaterThanOrEqual(600);
  expect(rows[1]?.seconds).toBeCloseTo(10, 3);
});
