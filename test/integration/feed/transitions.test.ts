import { randomUUID } from "node:crypto";
import { beforeAll, describe, expect, it } from "vitest";
import {
  completed,
  failed,
  nack,
  type Outcome,
  queue,
  type TaskContext,
  type Tidemill,
} from "../../../src/index.ts";
import { abandonFor } from "../../../src/tasks/outcome.ts";
import { deleteEnded } from "../../../src/tasks/sql/act.ts";
import { claimTasks, undoClaim } from "../../../src/tasks/sql/claim.ts";
import { claimPacks, completePacks } from "../../../src/tasks/sql/packs.ts";
import { eventually } from "../../support/eventually.ts";
import type { FeedStream } from "../../support/feed-stream.ts";
import { BRISK, range } from "../tasks/scene.ts";
import { type FeedScene, feedScene } from "./scene.ts";

/** What the handler is to do at each attempt. */
type Script = readonly string[];
const ACTS = queue<Script>("acts", {
  backoff: { kind: "fixed", baseSeconds: 0.05 },
  maxAttempts: 3,
});
const IDLE = queue<number>("idle");
const LEASED = queue<number>("leased", { maxAttempts: 3 });

async function act(
  step: string | undefined,
  context: TaskContext,
  mill: Tidemill,
): Promise<Outcome | undefined> {
  if (step === "throw") throw new Error("it failed");
  if (step === "refuse") return failed("not this", { retry: false });
  if (step === "nack") return nack(0, "not now");
  if (step === "abandon") return abandonFor(60); // It does not run again meanwhile.
  if (step === "own") {
    await mill.transaction(async (tx) => {
      await context.complete(tx);
    });
    return undefined;
  }
  if (step === "wait") {
    await new Promise((resolve) => context.signal.addEventListener("abort", resolve));
    return failed("stopped", { retry: false });
  }
  return completed();
}

interface Watched {
  readonly scene: FeedScene;
  readonly feed: FeedStream;
}

let scene: FeedScene;

beforeAll(async () => {
  scene = await feedScene("file");
  const { mill } = scene;
  const handler = ACTS.handle(async ({ payload, attempt }, context) =>
    act(payload[attempt - 1], context, mill),
  );
  await mill.startWorker({ ...BRISK, handlers: [handler], leaseSeconds: 10 });
  await mill.enqueue(IDLE, 0);
  await mill.enqueue(LEASED, 0);
});

const laneOf = async (name: string): Promise<number> => {
  const { rows } = await scene.database.pool.query<{ lane: number }>(
    "SELECT lane FROM tidemill.task_lanes WHERE queue = $1 AND priority >= 0",
    [name],
  );
  return rows[0]?.lane ?? 0;
};

const claimRequest = (leaseSeconds: number) => ({
  claimId: randomUUID(),
  workerId: randomUUID(),
  leaseSeconds,
  proofs: [],
  isBesideOthers: true,
});

async function told(feed: FeedStream, id: string, expected: readonly string[]): Promise<void> {
  await eventually(() => expect(feed.states(id)).toEqual(expected));
}

const RUN = ["pending", "running", "completed"];
const enqueue = async (script: Script, options = {}): Promise<string> =>
  (await scene.mill.enqueue(ACTS, script, options)).id;

/** Each makes one task, does what it is named for, and gives its id and the states it had. */
const PATHS: readonly (readonly [string, (watched: Watched) => Promise<[string, string[]]>])[] = [
  ["an enqueue", async () => [await enqueue([]), RUN]],
  ["an enqueue with a key", async () => [await enqueue([], { partitionKey: "k" }), RUN]],
  [
    "an enqueue in a transaction of the caller",
    async ({ scene: { mill } }) => {
      const { id } = await mill.transaction((tx) => mill.enqueue(ACTS, [], { tx }));
      return [id, RUN];
    },
  ],
  [
    "an enqueue by SQL",
    async ({ scene: { database } }) => {
      const { rows } = await database.pool.query<{ id: string }>(
        "SELECT tidemill.enqueue('acts', '[]')::text AS id",
      );
      return [rows[0]?.id ?? "", RUN];
    },
  ],
  [
    "a delayed enqueue by SQL",
    async ({ scene: { database } }) => {
      const { rows } = await database.pool.query<{ id: string }>(
        "SELECT tidemill.enqueue('acts', '[]', delay_seconds => 0.1)::text AS id",
      );
      return [rows[0]?.id ?? "", ["scheduled", ...RUN]];
    },
  ],
  [
    "an enqueue by HTTP",
    async ({ scene: { post } }) => [
      String((await post("/v1/tasks", { queue: "acts", payload: [] }))["id"]),
      RUN,
    ],
  ],
  ["a delay", async () => [await enqueue([], { delaySeconds: 0.1 }), ["scheduled", ...RUN]]],
  [
    "a schedule",
    async ({ scene: { mill } }) => {
      await mill.schedules.put("yearly", { cron: "0 0 1 1 *", queue: ACTS, payload: [] });
      return [(await mill.schedules.runNow("yearly")).id, RUN];
    },
  ],
  [
    "a failure that is retried",
    async () => [await enqueue(["throw"]), ["pending", "running", "scheduled", ...RUN]],
  ],
  [
    "a failure with a key",
    async () => [
      await enqueue(["throw"], { partitionKey: "f" }),
      ["pending", "running", "pending", "running", "completed"],
    ],
  ],
  ["a nack", async () => [await enqueue(["nack"]), ["pending", "running", ...RUN]]],
  [
    "an abandon",
    async ({ scene: { mill }, feed }) => {
      const id = await enqueue(["abandon", "wait"]);
      await told(feed, id, ["pending", "running", "scheduled"]);
      await mill.tasks.cancel(id);
      return [id, ["pending", "running", "scheduled", "cancelled"]];
    },
  ],
  ["a completion in the handler's transaction", async () => [await enqueue(["own"]), RUN]],
  [
    "a refusal, and a retry by hand",
    async ({ scene: { mill }, feed }) => {
      const id = await enqueue(["refuse"]);
      await told(feed, id, ["pending", "running", "failed"]);
      await mill.tasks.retry(id);
      return [id, ["pending", "running", "failed", "pending", "running", "failed"]];
    },
  ],
  [
    "a death, a redrive and another death, and a purge",
    async ({ scene: { mill }, feed }) => {
      const id = await enqueue(["throw"], { maxAttempts: 1 });
      const died = ["pending", "running", "dead"];
      await told(feed, id, died);
      await mill.deadLetters.redrive({ ids: [id] });
      await told(feed, id, [...died, ...died]);
      await mill.deadLetters.purge({ ids: [id] });
      return [id, [...died, ...died, "purged"]];
    },
  ],
  [
    "a cancel of a task that waits",
    async ({ scene: { mill } }) => {
      const { id } = await mill.enqueue(IDLE, 1);
      await mill.tasks.cancel(id, { reason: "changed my mind" });
      return [id, ["pending", "cancelled"]];
    },
  ],
  [
    "a cancel of a task that runs",
    async ({ scene: { mill }, feed }) => {
      const id = await enqueue(["wait"]);
      await told(feed, id, ["pending", "running"]);
      await mill.tasks.cancel(id);
      return [id, ["pending", "running", "cancelled"]];
    },
  ],
  [
    "a retry of a task that is not due",
    async ({ scene: { mill } }) => {
      const id = await enqueue([], { delaySeconds: 3_600 });
      await mill.tasks.retry(id);
      return [id, ["scheduled", ...RUN]];
    },
  ],
  [
    "a claim and an end by HTTP",
    async ({ scene: { post } }) => {
      const { id } = await post("/v1/tasks", { queue: "remote", payload: {} });
      const { tasks } = await post("/v1/claims", { queues: ["remote"], waitSeconds: 10 });
      const [held] = tasks as { id: string; token: string }[];
      expect(held?.id).toBe(id);
      await post(`/v1/tasks/${String(id)}/complete`, { token: held?.token });
      return [String(id), RUN];
    },
  ],
  [
    "a claim that is taken back",
    async ({ scene: { mill } }) => {
      const { db } = mill.engine;
      const { id } = await mill.enqueue(IDLE, 2);
      const lane = await laneOf("idle");
      const request = claimRequest(30);
      await claimTasks(db, request, [{ lane, floor: 0, take: 100 }]);
      await undoClaim(db, request.claimId);
      return [id, ["pending", "running", "pending"]];
    },
  ],
  [
    "the loss of a worker",
    async ({ scene: { mill } }) => {
      const { id } = await mill.enqueue(LEASED, 1);
      const lane = await laneOf("leased");
      await claimTasks(mill.engine.db, claimRequest(0.2), [{ lane, floor: 0, take: 100 }]);
      return [id, ["pending", "running", "pending"]];
    },
  ],
  [
    "a pack that completes as one",
    async ({ scene: { mill } }) => {
      const { db } = mill.engine;
      const bulk = queue<number>("bulk");
      const handles = await mill.enqueueMany(
        bulk,
        range(50).map((payload) => ({ payload })),
      );
      const { claimId, workerId } = claimRequest(30);
      const lane = await laneOf("bulk");
      const request = { claimId, workerId, leaseSeconds: 30 };
      const { packs } = await claimPacks(db, request, [{ lane, floor: 0, take: 5 }]);
      expect(packs).toHaveLength(1);
      const [first] = handles;
      const done = [{ id: first?.id ?? "", claimId, results: [] }];
      expect((await completePacks(db, done, [])).done.size).toBe(1);
      return [handles[31]?.id ?? "", RUN];
    },
  ],
  [
    "a purge of history",
    async ({ scene: { mill }, feed }) => {
      const id = await enqueue([], { tenant: "default" });
      await told(feed, id, RUN);
      const scope = { tenant: "default", queues: ["acts"] };
      await deleteEnded(mill.engine.db, { olderThanMs: 0 }, 1_000, scope);
      return [id, [...RUN, "purged"]];
    },
  ],
];

describe("every change of a task is told once and in order:", () => {
  it.each(PATHS)("%s", async (_, walk) => {
    const feed = await scene.listen();
    const [id, expected] = await walk({ scene, feed });
    await told(feed, id, expected);
  });

  it("with who holds it, how often it was tried, and why", async () => {
    const feed = await scene.listen();
    const id = await enqueue(["refuse"]);
    await told(feed, id, ["pending", "running", "failed"]);
    const [pending, running, ended] = feed.task(id);
    const common = { id, queue: "acts", tenant: "default", at: expect.any(String) as string };
    expect(pending).toEqual({ ...common, state: "pending", attempt: 0 });
    expect(running).toEqual({ ...running, ...common, state: "running", attempt: 1 });
    expect(ended).toEqual({ ...running, at: ended?.["at"], state: "failed", reason: "not this" });
    expect(running?.["worker"]).toMatch(/^[0-9a-f-]{36}$/);
  });
});
