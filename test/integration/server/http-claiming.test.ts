import { queryObjects } from "node:v8";
import { beforeAll, describe, expect, it } from "vitest";
import { queue } from "../../../src/index.ts";
import { ClaimedTask } from "../../../src/tasks/claimed-task.ts";
import { eventually } from "../../support/eventually.ts";
import {
  ACME_ADMIN,
  ACME_WORKER,
  GLOBEX_WORKER,
  LETTERS_HAND,
  READER,
  type Scene,
  scene,
} from "./scene.ts";

const tenant = "acme";
let one: Scene;
let other: Scene;

const server = { http: { port: 0 }, graceSeconds: 0.3, leaseSeconds: 30, drainSeconds: 5 };

beforeAll(async () => {
  one = await scene({ server, until: "file" });
  other = await scene({ server, until: "file", database: one.database });
});

interface Held {
  readonly id: string;
  readonly token: string;
  readonly attempt: number;
  readonly payload: unknown;
  readonly leaseUntil: string;
  readonly queue: string;
}

interface Answer {
  readonly status: number;
  readonly body: Record<string, unknown> & { readonly tasks: readonly Held[] };
}

async function call(at: Scene, path: string, body?: object, token = ACME_WORKER): Promise<Answer> {
  const { host, port } = at.server.address("http");
  const answer = await fetch(`http://${host}:${port}${path}`, {
    method: "POST",
    headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  const text = await answer.text();
  return { status: answer.status, body: (text === "" ? {} : JSON.parse(text)) as Answer["body"] };
}

/** Each test has a queue of its own. */
let queues = 0;
function newQueue(options: { timeoutSeconds?: number } = {}) {
  queues += 1;
  const backoff = { kind: "fixed", baseSeconds: 0.01 } as const;
  return queue(`queue-${queues}`, { backoff, ...options });
}

type Mails = ReturnType<typeof newQueue>;

async function claim(at: Scene, mails: Mails, more: object = {}): Promise<readonly Held[]> {
  const { status, body } = await call(at, "/v1/claims", { queues: [mails.name], ...more });
  expect(status, JSON.stringify(body)).toBe(200);
  return body.tasks;
}

async function claimOne(at: Scene, mails: Mails, more: object = {}): Promise<Held> {
  const [task] = await claim(at, mails, { waitSeconds: 20, ...more });
  if (task === undefined) throw new Error("no task came");
  return task;
}

async function read(at: Scene, path: string, token = READER): Promise<Record<string, unknown>> {
  const { host, port } = at.server.address("http");
  const headers = { authorization: `Bearer ${token}` };
  const answer = await fetch(`http://${host}:${port}${path}`, { headers });
  expect(answer.status).toBe(200);
  return (await answer.json()) as Record<string, unknown>;
}

const act = (at: Scene, { id, token }: Held, name: string, more: object = {}): Promise<Answer> =>
  call(at, `/v1/tasks/${id}/${name}`, { token, ...more });

const stateOf = async (id: string): Promise<string> => (await one.mill.tasks.get(id)).state;

describe("a claim by HTTP", () => {
  it("gives what is there at once, and nothing when nothing is", async () => {
    const mails = newQueue();
    await one.mill.enqueue(mails, 1, { tenant });
    await one.mill.enqueue(mails, 2, { tenant });
    const tasks = await claim(one, mails, { count: 5 });
    expect(tasks.map(({ payload }) => payload)).toEqual([1, 2]);
    expect(await claim(one, mails)).toEqual([]);
    expect(await claim(other, mails)).toEqual([]);
  });

  it("waits for work, as long as it says", async () => {
    const mails = newQueue();
    const waiting = claimOne(one, mails);
    await one.mill.enqueue(mails, 1, { tenant });
    expect(await waiting).toMatchObject({ attempt: 1, queue: mails.name });
    expect(await claim(one, mails, { waitSeconds: 0.2 })).toEqual([]);
  });

  it("is acted on at any server, by its token", async () => {
    const mails = newQueue();
    await one.mill.enqueueMany(
      mails,
      Array.from({ length: 5 }, (_, n) => ({ payload: n, tenant, maxAttempts: 2 })),
    );
    const tasks = await claim(one, mails, { count: 5, waitSeconds: 20 });
    const [a, b, c, d, e] = tasks;
    if (!a || !b || !c || !d || !e) throw new Error(`there are five, not ${tasks.length}`);
    const done = await act(other, a, "complete", { result: { n: 1 } });
    expect([done.status, done.body]).toEqual([200, { id: a.id }]);
    expect(await one.mill.result(a.id)).toEqual({ n: 1 });
    expect((await act(one, b, "fail", { reason: "never", retry: false })).status).toBe(200);
    expect(await stateOf(b.id)).toBe("failed");
    const later = await act(other, c, "nack", { delaySeconds: 60, reason: "later" });
    expect(later.body).toEqual({ id: c.id, delaySeconds: 60, isDead: false });
    expect((await act(other, d, "abandon")).status).toBe(200);
    expect(await claimOne(other, mails)).toMatchObject({ id: d.id, attempt: 1 });
    const longer = await act(other, e, "heartbeat", { extendSeconds: 600 });
    const until = Date.parse(String(longer.body["leaseUntil"]));
    expect(until).toBeGreaterThan(Date.parse(e.leaseUntil) + 300_000);
    expect((await act(other, e, "fail", { reason: "no paper" })).status).toBe(200);
    const again = await claimOne(one, mails);
    expect(again).toMatchObject({ id: e.id, attempt: 2 });
    const dead = await act(other, again, "nack", { reason: "still none" });
    expect(dead.body).toMatchObject({ isDead: true });
    for (const name of ["heartbeat", "abandon", "nack"]) {
      const late = await act(one, e, name);
      expect([late.status, late.body["code"]]).toEqual([409, "TM_LEASE_LOST"]);
    }
  });

  it("that went back is shown with the reason, as long as the task lives", async () => {
    const mails = newQueue();
    const { id } = await one.mill.enqueue(mails, 1, { tenant });
    const shown = async (): Promise<unknown[]> => [
      (await read(one, `/v1/tasks/${id}`))["reason"],
      (await read(other, `/v1/codeq/tasks/${id}`))["error"],
    ];
    expect(await shown()).toEqual([undefined, undefined]);
    const first = await claimOne(one, mails);
    expect((await act(one, first, "fail", { reason: "no paper" })).status).toBe(200);
    expect(await shown()).toEqual(["no paper", "no paper"]);
    const second = await claimOne(one, mails);
    expect(await shown()).toEqual(["no paper", "no paper"]);
    await act(other, second, "nack", { delaySeconds: 60, reason: "no ink" });
    expect(await shown()).toEqual(["no ink", "no ink"]);
    await one.mill.tasks.retry(id);
    await claimOne(one, mails);
    expect(await one.mill.tasks.cancel(id, { reason: "sold out" })).toBe("cancelling");
    expect(await shown()).toEqual(["sold out", "sold out"]);
  });

  it("leaves nothing of its tasks in the memory of the server", async () => {
    const mails = newQueue();
    const before = queryObjects(ClaimedTask, { format: "count" });
    const payloads = Array.from({ length: 20 }, (_, n) => ({ payload: n, tenant }));
    await one.mill.enqueueMany(mails, payloads);
    const tasks: Held[] = [];
    while (tasks.length < 20) {
      tasks.push(...(await claim(one, mails, { count: 20, waitSeconds: 5, leaseSeconds: 3_600 })));
    }
    await eventually(() =>
      expect(queryObjects(ClaimedTask, { format: "count" })).toBeLessThan(before + 10),
    );
    const timers = () => process.getActiveResourcesInfo().filter((one) => one === "Timeout").length;
    const waiting = timers();
    for (const task of tasks) expect((await act(one, task, "complete")).status).toBe(200);
    // One waited for the end of each lease.
    await eventually(() => expect(timers()).toBeLessThan(waiting - 15));
  });

  it("ends with its lease, whoever held it: a caller that is gone, or its server", async () => {
    const mails = newQueue();
    const going = await scene({ server, database: one.database });
    await one.mill.enqueue(mails, 1, { tenant });
    const task = await claimOne(going, mails, { leaseSeconds: 1 });
    await going.server.stop();
    const again = await claimOne(other, mails);
    expect(again).toMatchObject({ id: task.id, attempt: 2 });
    expect((await act(one, task, "complete")).status).toBe(409);
    expect((await act(one, again, "complete")).status).toBe(200);
    expect((await act(other, again, "complete")).status).toBe(200);
    expect((await act(other, again, "fail", { reason: "no" })).status).toBe(409);
  });

  it("does not outlast the time that the task may take", async () => {
    const mails = newQueue({ timeoutSeconds: 1.5 });
    await one.mill.enqueue(mails, 1, { tenant });
    const task = await claimOne(one, mails, { leaseSeconds: 60 });
    await act(one, task, "heartbeat", { extendSeconds: 60 });
    expect(await claimOne(other, mails)).toMatchObject({ id: task.id, attempt: 2 });
  });

  it("keeps those behind a task of the same key waiting for it", async () => {
    const mails = newQueue();
    const partitionKey = "order:1";
    for (const n of [1, 2]) await one.mill.enqueue(mails, n, { tenant, partitionKey });
    const head = await claimOne(one, mails);
    expect(head.payload).toBe(1);
    expect(await claim(one, mails)).toEqual([]);
    expect((await act(other, head, "complete")).status).toBe(200);
    expect(await claimOne(one, mails)).toMatchObject({ payload: 2, attempt: 1 });
  });

  it("that does not wait gets keyed tasks of a queue that was never asked for here", async () => {
    const mails = newQueue();
    await one.mill.enqueue(mails, 1, { tenant, partitionKey: "order:1" });
    expect(await claim(one, mails)).toMatchObject([{ payload: 1 }]);
    expect(await claim(one, mails)).toEqual([]);
  });

  it("is for its own tenant", async () => {
    const mails = newQueue();
    await one.mill.enqueue(mails, 1, { tenant });
    const body = { queues: [mails.name] };
    const stranger = await call(one, "/v1/claims", body, GLOBEX_WORKER);
    expect(stranger.body.tasks).toEqual([]);
    const task = await claimOne(one, mails);
    const path = `/v1/tasks/${task.id}/complete`;
    const taken = await call(one, path, { token: task.token }, GLOBEX_WORKER);
    expect(taken.status).toBe(409);
    expect(await stateOf(task.id)).toBe("running");
  });

  it("gives no more in one answer than fits, and the rest to the next", async () => {
    const mails = newQueue();
    const large = "x".repeat(900_000);
    await one.mill.enqueueMany(
      mails,
      Array.from({ length: 6 }, () => ({ payload: large, tenant })),
    );
    const got = new Set<string>();
    while (got.size < 6) {
      const some = await claim(one, mails, { count: 6, waitSeconds: 20 });
      expect(some.length).toBeLessThan(6);
      for (const { id, token } of some) {
        expect(token).toMatch(/^1\./); // It was never given back.
        got.add(id);
      }
    }
  });

  it("ends at once when the server goes", async () => {
    const going = await scene({ server, database: one.database });
    const waiting = claim(going, newQueue(), { waitSeconds: 60 });
    await eventually(async () => {
      const { rows } = await one.database.pool.query(
        "SELECT FROM tidemill.queues WHERE name = $1",
        [`queue-${queues}`],
      );
      expect(rows).toHaveLength(1);
    });
    await going.server.stop();
    expect(await waiting).toEqual([]);
  });
});

describe("a claim of CodeQ's clients by HTTP", () => {
  it("is acted on at any server by whoever claimed it", async () => {
    const mails = newQueue();
    await one.mill.enqueueMany(
      mails,
      Array.from({ length: 4 }, (_, n) => ({ payload: { n }, tenant })),
    );
    const commands = [mails.name];
    const first = await call(one, "/v1/codeq/tasks/claim", { commands, waitSeconds: 20 });
    expect(first.body).toMatchObject({ command: mails.name, status: "IN_PROGRESS" });
    const id = String(first.body["id"]);
    const path = `/v1/codeq/tasks/${id}`;
    // The engine counts in milliseconds, and rounds them.
    const withoutTimes = { createdAt: undefined, updatedAt: undefined };
    const found = await read(one, path);
    expect({ ...first.body, ...withoutTimes }).toEqual({ ...found, ...withoutTimes });
    for (const time of ["createdAt", "updatedAt"] as const) {
      const [told, stored] = [first.body[time], found[time]].map((at) => Date.parse(String(at)));
      expect(Math.abs((told ?? 0) - (stored ?? 0)), time).toBeLessThan(5);
    }
    expect((await call(other, `${path}/heartbeat`, { extendSeconds: 60 })).body).toEqual({
      ok: true,
    });
    const stranger = await call(other, `${path}/heartbeat`, {}, GLOBEX_WORKER);
    expect(stranger.status).toBe(404);
    const result = { status: "COMPLETED", result: { ok: true } };
    const done = await call(other, `${path}/result`, result);
    expect(done.body).toMatchObject({ taskId: id, status: "COMPLETED", result: { ok: true } });
    const late = await call(one, `${path}/result`, result);
    expect([late.status, late.body]).toEqual([409, { error: "not-in-progress" }]);
    const batch = await call(one, "/v1/codeq/tasks/claim/batch", { commands, count: 3 });
    const ids = (batch.body.tasks as readonly { id: string }[]).map((task) => task.id);
    expect(ids).toHaveLength(3);
    const [a, b, c] = ids.map((task) => `/v1/codeq/tasks/${task}`);
    expect((await call(other, `${a}/abandon`)).body).toEqual({ status: "requeued" });
    expect((await call(other, `${b}/nack`, { delaySeconds: 60 })).body).toEqual({
      status: "requeued",
      delaySeconds: 60,
    });
    const results = [{ taskId: ids[2], status: "FAILED", error: "no" }];
    const many = await call(other, "/v1/codeq/tasks/batch/results", { results });
    expect(many.body["results"]).toMatchObject([{ taskId: ids[2], result: { status: "FAILED" } }]);
    expect((await call(other, `${c}/abandon`)).status).toBe(409);
    const none = await call(one, "/v1/codeq/tasks/claim", { commands: ["nobody-asks"] });
    expect(none.status).toBe(204);
  });

  it("is put back as often as it may be, then it is dead, and counted so", async () => {
    const mails = newQueue();
    await one.mill.enqueue(mails, 1, { tenant, maxAttempts: 2 });
    const claiming = { commands: [mails.name], waitSeconds: 20 };
    const { body } = await call(one, "/v1/codeq/tasks/claim", claiming);
    const path = `/v1/codeq/tasks/${String(body["id"])}`;
    const counts = (): Promise<object> =>
      read(one, `/v1/codeq/admin/queues/${mails.name}`, ACME_ADMIN);
    const empty = { command: mails.name, ready: 0, delayed: 0, inProgress: 0, dlq: 0 };
    expect(await counts()).toEqual({ ...empty, inProgress: 1 });
    const back = await call(other, `${path}/nack`, { delaySeconds: 0, reason: "no paper" });
    expect(back.body).toEqual({ status: "requeued", delaySeconds: 0 });
    expect((await call(one, "/v1/codeq/tasks/claim", claiming)).body).toMatchObject({
      id: body["id"],
      attempts: 2,
    });
    const dead = await call(other, `${path}/nack`, { delaySeconds: 60, reason: "no ink" });
    expect([dead.status, dead.body]).toEqual([200, { status: "dlq", delaySeconds: 0 }]);
    expect(await read(one, path)).toMatchObject({
      status: "FAILED",
      lastKnownLocation: "DLQ_SET",
      attempts: 2,
      error: "no ink",
    });
    expect(await counts()).toEqual({ ...empty, dlq: 1 });
    const all = await read(one, "/v1/codeq/admin/queues", ACME_ADMIN);
    expect(all).toMatchObject({ [`${mails.name}:inProgress`]: 0, [`${mails.name}:dlq`]: 1 });
    expect((await call(one, `${path}/nack`, {})).status).toBe(409);
  });

  it("has a payload of bytes as base64", async () => {
    const mails = newQueue();
    const bytes = Buffer.from([0, 255, 7]);
    await one.mill.enqueue(mails, bytes, { tenant });
    const claiming = { commands: [mails.name], waitSeconds: 20 };
    const { body } = await call(one, "/v1/codeq/tasks/claim", claiming);
    expect(body["payload"]).toBe(bytes.toString("base64"));
    const found = await read(one, `/v1/codeq/tasks/${String(body["id"])}`);
    expect(found["payload"]).toBe(bytes.toString("base64"));
  });

  it("keeps no artifacts of a failed attempt, nor of a batch, nor too many", async () => {
    const mails = newQueue();
    await one.mill.enqueue(mails, 1, { tenant });
    const claiming = { commands: [mails.name], waitSeconds: 20 };
    const id = String((await call(one, "/v1/codeq/tasks/claim", claiming)).body["id"]);
    const path = `/v1/codeq/tasks/${id}/result`;
    const artifact = { name: "log", url: "https://files.example.com/1.log" };
    const many = { status: "COMPLETED", artifacts: Array.from({ length: 101 }, () => artifact) };
    expect((await call(one, path, many)).status).toBe(400);
    const failure = { status: "FAILED", error: "no paper", artifacts: [artifact] };
    expect((await call(one, path, failure)).body).toMatchObject({
      status: "FAILED",
      artifacts: [],
    });
    expect((await call(one, "/v1/codeq/tasks/claim", claiming)).body["id"]).toBe(id);
    const results = [
      { taskId: id, status: "COMPLETED", result: { ok: true }, artifacts: [artifact] },
    ];
    await call(other, "/v1/codeq/tasks/batch/results", { results });
    expect(await read(other, path)).toMatchObject({
      result: { status: "COMPLETED", result: { ok: true }, artifacts: [] },
    });
    expect(await one.mill.result(id)).toEqual({ ok: true });
  });

  it("is completed with artifacts, which are read beside the result", async () => {
    const mails = newQueue();
    await one.mill.enqueue(mails, 1, { tenant });
    const claiming = { commands: [mails.name], waitSeconds: 20 };
    const id = String((await call(one, "/v1/codeq/tasks/claim", claiming)).body["id"]);
    const path = `/v1/codeq/tasks/${id}/result`;
    const content = Buffer.from("pages").toString("base64");
    const refused = async (artifact: object): Promise<string> => {
      const said = await call(one, path, { status: "COMPLETED", artifacts: [artifact] });
      expect([artifact, said.status]).toEqual([artifact, 400]);
      return String(said.body["error"]);
    };
    expect(await refused({ name: "a" })).toContain("needs a url or contentBase64");
    expect(await refused({ name: "a", url: "here" })).toContain("url that is none");
    const both = { name: "a", url: "https://x.test", contentBase64: content };
    expect(await refused(both)).toContain("give one of them");
    expect(await refused({ name: "a", contentBase64: "@" })).toContain("not base64");
    const odd = { name: "a", contentBase64: content, contentType: "text/html;x,y" };
    expect(await refused(odd)).toContain("contentType");
    await refused({ url: "https://x.test" });
    const artifacts = [
      { name: "report", contentBase64: content, contentType: "application/pdf" },
      { name: "log", url: "https://files.example.com/1.log" },
    ];
    const kept = [
      { name: "report", url: `data:application/pdf;base64,${content}` },
      { name: "log", url: "https://files.example.com/1.log" },
    ];
    const done = await call(other, path, { status: "COMPLETED", result: { ok: true }, artifacts });
    expect(done.body).toMatchObject({ result: { ok: true }, artifacts: kept });
    expect(await read(other, path)).toMatchObject({
      result: { result: { ok: true }, artifacts: kept },
    });
    expect(await one.mill.result(id)).toEqual({ $artifacts: kept, result: { ok: true } });
  });
});

it("refuses acts by a token that is for other queues", async () => {
  const mails = newQueue();
  await one.mill.enqueue(mails, 1, { tenant });
  const task = await claimOne(one, mails);
  const { id, token } = task;
  const acts: [string, object][] = [
    [`/v1/tasks/${id}/heartbeat`, { token }],
    [`/v1/tasks/${id}/complete`, { token }],
    [`/v1/tasks/${id}/fail`, { token, reason: "no" }],
    [`/v1/tasks/${id}/nack`, { token }],
    [`/v1/tasks/${id}/abandon`, { token }],
    [`/v1/codeq/tasks/${id}/heartbeat`, {}],
    [`/v1/codeq/tasks/${id}/result`, { status: "COMPLETED" }],
    [`/v1/codeq/tasks/${id}/nack`, {}],
    [`/v1/codeq/tasks/${id}/abandon`, {}],
  ];
  for (const at of [one, other]) {
    for (const [path, body] of acts) {
      expect([path, (await call(at, path, body, LETTERS_HAND)).status]).toEqual([path, 403]);
    }
  }
  expect((await act(other, task, "complete")).status).toBe(200);
});

it("cuts what CodeQ's callers ask for to what is possible", async () => {
  const mails = newQueue();
  await one.mill.enqueue(mails, 1, { tenant });
  const many = Array.from({ length: 1_001 }, (_, n) => `none-${n}`);
  expect((await call(one, "/v1/codeq/tasks/claim", { commands: many })).status).toBe(400);
  const long = { commands: [mails.name], leaseSeconds: 1e12, waitSeconds: 20 };
  const { status, body } = await call(one, "/v1/codeq/tasks/claim", long);
  expect(status, JSON.stringify(body)).toBe(200);
  const id = String(body["id"]);
  const leaseOf = async (): Promise<number> => {
    const { rows } = await one.database.pool.query<{ seconds: number }>(
      `SELECT date_part('epoch', lease_until - NOW()) AS seconds
         FROM tidemill.tasks WHERE id = $1`,
      [id],
    );
    return rows[0]?.seconds ?? 0;
  };
  expect(await leaseOf()).toBeGreaterThan(86_000);
  expect(await leaseOf()).toBeLessThanOrEqual(86_400);
  const more = await call(other, `/v1/codeq/tasks/${id}/heartbeat`, { extendSeconds: 1e12 });
  expect(more.status).toBe(200);
  expect(await leaseOf()).toBeLessThanOrEqual(86_400);
});

it("describes its claims", async () => {
  const { host, port } = one.server.address("http");
  const document = (await (await fetch(`http://${host}:${port}/openapi.json`)).json()) as {
    readonly paths: Record<string, unknown>;
  };
  expect(Object.keys(document.paths)).toEqual(
    expect.arrayContaining(["/v1/claims", "/v1/tasks/{id}/complete", "/v1/codeq/tasks/claim"]),
  );
});
