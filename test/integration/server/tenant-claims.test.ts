import { afterEach, beforeAll, describe, expect, it, vi } from "vitest";
import { uuidv4 } from "../../../src/base/uuid.ts";
import { queue } from "../../../src/index.ts";
import { claimPacks } from "../../../src/tasks/sql/packs.ts";
import type { WorkerEvent } from "../../../src/wire/generated/codeq/worker.ts";
import type { LeaseToken } from "../../../src/wire/generated/tidemill/v1/worker.ts";
import { onCleanup } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { FeedStream } from "../../support/feed-stream.ts";
import { codeqStream, codeqWorker } from "../../support/stream-client.ts";
import { withoutClause } from "./forgetful.ts";
import { RemoteHand, tokenOf } from "./remote-hand.ts";
import {
  ACME,
  ACME_WORKER,
  codeqAcks,
  codeqCreate,
  codeqHello,
  GLOBEX_WORKER,
  READER,
  type Scene,
  scene,
} from "./scene.ts";

const SECRET = "globex-secret";
const MAILS = queue("mails");
/** Of another tenant's claims nothing changes by itself before the test is over. */
const SERVER = { http: { port: 0 }, worker: { port: 0 }, leaseSeconds: 600, drainSeconds: 5 };

let one: Scene;
/** Claims of globex: held, over with the task or without it, and of a task in a pack. */
let theirs: Record<"held" | "ended" | "back" | "packed", LeaseToken>;
let ours: LeaseToken;
/** Under which globex has made a task. */
const THEIR_KEY = "key-of-globex";
let keyed: string;
const OF_CLAIMS =
  /held|adopt|claim|token|tasks_find|whereabouts|keep|hand_over|topic|idempot|enqueue/;

interface Answer {
  readonly status: number;
  readonly text: string;
}

async function post(path: string, body: object, token = ACME_WORKER): Promise<Answer> {
  const { host, port } = one.server.address("http");
  const answer = await fetch(`http://${host}:${port}${path}`, {
    method: "POST",
    headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
    body: JSON.stringify(body),
  });
  return { status: answer.status, text: await answer.text() };
}

async function claimed(tenant: string, token: string): Promise<LeaseToken> {
  await one.mill.enqueue(MAILS, { SECRET }, { tenant, kind: SECRET });
  const { text } = await post("/v1/claims", { queues: ["mails"], waitSeconds: 20 }, token);
  const [task] = (JSON.parse(text) as { tasks: { id: string; token: string }[] }).tasks;
  const [generation, claimId] = task?.token.split(".") ?? [];
  if (task === undefined || claimId === undefined) throw new Error(`no task came: ${text}`);
  return { taskId: task.id, generation: Number(generation), claimId };
}

/** Of a pack that a worker elsewhere holds closed. */
async function packed(): Promise<LeaseToken> {
  const letters = queue("letters");
  const payloads = Array.from({ length: 20 }, () => ({ payload: { SECRET }, tenant: "globex" }));
  const [first] = await one.mill.enqueueMany(letters, payloads);
  const claimId = uuidv4();
  const { rows } = await one.database.pool.query<{ lane: number }>(
    "SELECT lane FROM tidemill.task_packs",
  );
  await claimPacks(one.mill.engine.db, { claimId, workerId: uuidv4(), leaseSeconds: 600 }, [
    { lane: rows[0]?.lane ?? 0, floor: 0, take: 20 },
  ]);
  return { taskId: first?.id ?? "", generation: 1, claimId };
}

beforeAll(async () => {
  one = await scene({ server: SERVER, until: "file" });
  const held = await claimed("globex", GLOBEX_WORKER);
  const say = async (token: LeaseToken, act: string, more = {}): Promise<LeaseToken> => {
    const path = `/v1/tasks/${token.taskId}/${act}`;
    const { status, text } = await post(path, { token: write(token), ...more }, GLOBEX_WORKER);
    expect(status, text).toBe(200);
    return token;
  };
  const ended = await say(await claimed("globex", GLOBEX_WORKER), "complete");
  const late = { delaySeconds: 600 };
  const back = await say(await claimed("globex", GLOBEX_WORKER), "nack", late);
  ours = await claimed("acme", ACME_WORKER);
  theirs = { held, ended, back, packed: await packed() };
  const options = { tenant: "globex", idempotencyKey: THEIR_KEY };
  keyed = (await one.mill.enqueue(queue("keyed"), { SECRET }, options)).id;
  await one.database.pool.query(
    `INSERT INTO tidemill.topic_policies (tenant, name, policy)
     VALUES ('globex', 'keyed', '{"maxAttempts": 77}')`,
  );
});

afterEach(() => void vi.restoreAllMocks());

const write = ({ generation, claimId }: LeaseToken): string => `${generation}.${claimId}`;

async function snapshot(): Promise<unknown> {
  const { rows } = await one.database.pool.query<{ all: unknown }>(
    `SELECT json_build_array(
       (SELECT json_agg(t ORDER BY id) FROM tidemill.tasks t WHERE tenant = 'globex'),
       (SELECT json_agg(t ORDER BY id) FROM tidemill.task_packs t WHERE tenant = 'globex'),
       (SELECT json_agg(t ORDER BY id) FROM tidemill.task_history t WHERE tenant = 'globex'),
       (SELECT json_agg(t ORDER BY id) FROM tidemill.dead_letters t WHERE tenant = 'globex')
     ) AS all`,
  );
  return rows[0]?.all;
}

const ACTS = {
  complete: {},
  fail: { reason: "no" },
  nack: { reason: "no" },
  abandon: {},
  heartbeat: {},
} as const;

const BY_ID = {
  heartbeat: {},
  abandon: {},
  nack: {},
  result: { status: "COMPLETED" },
} as const;

/** Everything that a worker of acme can say about a claim: over HTTP, and when it comes back. */
async function sayAll(tokens: readonly LeaseToken[]): Promise<void> {
  const calls = tokens.flatMap((token) =>
    Object.entries(ACTS).map(async ([act, more]) => {
      const path = `/v1/tasks/${token.taskId}/${act}`;
      const { status, text } = await post(path, { token: write(token), ...more });
      expect([path, status, text]).toEqual([path, 409, expect.stringContaining("TM_LEASE_LOST")]);
      expect(text).not.toContain(SECRET);
    }),
  );
  await Promise.all(calls);
  const hand = await RemoteHand.at(one).hello({ held: [...tokens] });
  await eventually(() =>
    expect(hand.all("leaseLost").flatMap((lost) => lost.tokens)).toHaveLength(tokens.length),
  );
  hand.stream.close();
}

/** CodeQ's callers need no token: whoever holds a task may act on it. */
async function sayById(statuses: readonly number[]): Promise<void> {
  const calls = Object.values(theirs).flatMap(({ taskId }) =>
    Object.entries(BY_ID).map(async ([act, more]) => {
      const path = `/v1/codeq/tasks/${taskId}/${act}`;
      const { status, text } = await post(path, more);
      expect(statuses, `${path}: ${text}`).toContain(status);
      expect(text).not.toContain(SECRET);
    }),
  );
  await Promise.all(calls);
}

/** On CodeQ's stream whoever has an id may say anything of it. */
async function sayByStream(): Promise<void> {
  const { host, port } = one.server.address("worker");
  const stream = codeqWorker(`${host}:${port}`);
  const say = (event: WorkerEvent["event"]): void => stream.send({ event });
  say({ $case: "hello", value: { token: ACME_WORKER, workerId: "hand" } });
  await stream.until(1);
  for (const { taskId } of Object.values(theirs)) {
    const result = { taskId, status: "COMPLETED", resultJson: Buffer.from("{}"), error: "" };
    say({ $case: "result", value: result });
    say({ $case: "resultBatch", value: { results: [result] } });
    say({ $case: "nack", value: { taskId, delaySeconds: 1, reason: "no" } });
    say({ $case: "heartbeat", value: { taskId, extendSeconds: 60 } });
    say({ $case: "abandon", value: { taskId } });
  }
  const answers = await stream.until(1 + 5 * Object.keys(theirs).length);
  const text = JSON.stringify(answers);
  expect(text).not.toContain('"ok":true');
  expect(text).not.toContain(SECRET);
  stream.close();
}

/** A task of one's own is handed over, kept by a worker that comes back, and ended. */
async function workOnOwn(): Promise<void> {
  const handed = await claimed("acme", ACME_WORKER);
  const path = `/v1/tasks/${handed.taskId}/complete`;
  expect((await post(path, { token: write(handed) })).status).toBe(200);
  const letters = queue("own-letters");
  const hand = await RemoteHand.at(one).hello({ queues: [letters.name] });
  await one.mill.enqueue(letters, 1, { tenant: "acme" });
  hand.ready(1);
  const task = await hand.get();
  const back = await RemoteHand.at(one).hello({ held: [tokenOf(task)] });
  await eventually(() => expect(back.all("renewed")).not.toEqual([]));
  expect(await back.complete(task)).toBe("completed");
  for (const { stream } of [hand, back]) stream.close();
}

/** Their key is nobody's here, and their policy holds for nobody else. */
async function createUnderTheirKey(): Promise<void> {
  const key = `own ${uuidv4()}`;
  for (const idempotencyKey of [THEIR_KEY, key, key]) {
    const json = { queue: "keyed", payload: { SECRET: "ours" }, idempotencyKey };
    const { status, text } = await post("/v1/tasks", json, ACME);
    expect([201, 409], text).toContain(status);
    expect(text).not.toContain(`"${keyed}"`);
  }
  const { host, port } = one.server.address("producer");
  const stream = await codeqHello(codeqStream(`${host}:${port}`));
  const more = { command: "keyed", payload: Buffer.from('{"SECRET":"ours"}') };
  codeqCreate(stream, { seq: 1n, idempotencyKey: THEIR_KEY, ...more });
  codeqCreate(stream, { seq: 2n, ...more });
  await stream.until(3);
  const [, created] = codeqAcks(stream);
  expect(codeqAcks(stream).map(({ taskId }) => taskId)).not.toContain(keyed);
  const { rows } = await one.database.pool.query<{ max_attempts: number }>(
    "SELECT max_attempts FROM tidemill.live_tasks WHERE id = $1 AND tenant = 'acme'",
    [created?.taskId],
  );
  expect(rows.map((row) => row.max_attempts === 77)).toEqual([false]);
  stream.close();
}

/** What somebody knows who does not know the claim: ids of tasks, and claims of their own. */
const guesses = (): LeaseToken[] =>
  Object.values(theirs).flatMap((token) =>
    [uuidv4(), ours.claimId].map((claimId) => ({ ...token, claimId })),
  );

describe("a claim of another tenant", () => {
  it("cannot be acted on, whatever is known of it", async () => {
    const before = await snapshot();
    await sayAll([...Object.values(theirs), ...guesses()]);
    await sayById([404]);
    expect(await snapshot()).toEqual(before);
  });

  it("cannot be guessed, whichever statement forgets its tenant, or all of them", async () => {
    const before = await snapshot();
    const { ended, back } = theirs;
    const work = async (): Promise<void> => {
      await sayAll([...guesses(), ended, back]);
      // That there is such a task is all that they may hear.
      await sayById([404, 403, 409]);
      await sayByStream();
      await workOnOwn();
      await createUnderTheirKey();
      const own = await post(`/v1/tasks/${ours.taskId}/heartbeat`, { token: write(ours) });
      expect(own.status, own.text).toBe(200);
    };
    const sent = await withoutClause([], work);
    const statements = [...sent].filter((name) => OF_CLAIMS.test(name));
    expect(statements.sort()).toEqual([
      "idempotency_read",
      "packs_open_by_token",
      "task_claim_of",
      "tasks_adopt",
      "tasks_extend_held",
      "tasks_find",
      "tasks_find_ended_claims",
      "tasks_find_held",
      "tasks_hand_over",
      "tasks_keep",
      "tasks_whereabouts",
      "topic_read_attempts",
    ]);
    for (const names of [...statements.map((name) => [name]), statements]) {
      await withoutClause(names, work);
      expect(await snapshot(), names.join()).toEqual(before);
    }
  });

  // One claim takes tasks of several tenants, whose workers then know the same claim id.
  it("that has the same id as one's own is compared twice", async () => {
    const { taskId, generation } = theirs.held;
    const share = async (claimId: string): Promise<void> => {
      const { pool } = one.database;
      await pool.query("UPDATE tidemill.tasks SET claim_id = $2 WHERE id = $1", [taskId, claimId]);
    };
    await share(ours.claimId);
    onCleanup(() => share(theirs.held.claimId));
    const before = await snapshot();
    const shared = { taskId, generation, claimId: ours.claimId };
    await sayAll([shared]);
    await withoutClause(["tasks_find_held"], () => sayAll([shared]));
    expect(await snapshot()).toEqual(before);
  });
});

it("tells nothing of another tenant's claims to a feed", async () => {
  const { host, port } = one.server.address("http");
  const feed = await FeedStream.ready(`http://${host}:${port}`, { token: READER });
  onCleanup(() => Promise.resolve(feed.close()));
  const held = await claimed("globex", GLOBEX_WORKER);
  const path = `/v1/tasks/${held.taskId}/fail`;
  await post(path, { token: write(held), reason: SECRET, retry: false }, GLOBEX_WORKER);
  const { id } = await one.mill.enqueue(MAILS, 1, { tenant: "acme" });
  await eventually(() => expect(feed.of("task").map(({ data }) => data["id"])).toEqual([id]));
  expect(JSON.stringify(feed.messages)).not.toContain(SECRET);
});
