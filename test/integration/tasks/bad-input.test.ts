import { describe, expect, it } from "vitest";
import {
  ConfigError,
  InvalidInputError,
  type QueueOptions,
  queue,
  type TaskOptions,
  type Tidemill,
} from "../../../src/index.ts";
import { type TestDatabase, testDatabase } from "../../support/database.ts";
import { inTransaction, readStored } from "./scene.ts";

const MAILS = queue("mails", { payloadBytesMax: 100 });
const NOTHING = { tasks: 0, tally: 0, keys: 0 };

/** Options as somebody without types would write them. */
const untyped = (options: Record<string, unknown>): TaskOptions => options;

const REFUSED: readonly (readonly [string, unknown, Record<string, unknown>, RegExp])[] = [
  ["a payload over the limit", "x".repeat(99), {}, /101 bytes, over the 100 .*payloadBytesMax/],
  ["umlauts over the limit", "ü".repeat(50), {}, /102 bytes, over the 100 .*payloadBytesMax/],
  ["bytes over the limit", Buffer.alloc(101), {}, /over the 100 .*enqueue a reference/],
  ["a negative delay", 1, { delaySeconds: -1 }, /delaySeconds must be a number from 0 .*not -1/],
  ["no number as delay", 1, { delaySeconds: Number.NaN }, /delaySeconds must be a number from 0/],
  ["an endless delay", 1, { delaySeconds: Infinity }, /delaySeconds must be a number from 0/],
  ["a delay as text", 1, { delaySeconds: "5" }, /delaySeconds must be a number from 0/],
  ["priority 10", 1, { priority: 10 }, /priority must be a whole number from 0 to 9.*not 10/],
  ["priority -1", 1, { priority: -1 }, /priority must be a whole number from 0 to 9.*not -1/],
  ["priority 1.5", 1, { priority: 1.5 }, /priority must be .*"high", "normal" or "low"/],
  ["priority urgent", 1, { priority: "urgent" }, /priority must be .*not "urgent"/],
  ["an empty key", 1, { partitionKey: "" }, /partitionKey must be a text that is not empty/],
  ["a long key", 1, { partitionKey: "ü".repeat(513) }, /partitionKey .* at most 1024 bytes/],
  ["half a character", 1, { partitionKey: "a\ud800" }, /partitionKey must not hold half a char/],
  ["a separator in a key", 1, { partitionKey: "a\u001eb" }, /partitionKey must not hold/],
  ["a separator in a kind", 1, { kind: "a\u001db" }, /kind must not hold/],
  ["a key that is no text", 1, { partitionKey: 7 }, /partitionKey must be a text/],
  ["no date", 1, { runAt: "tomorrow" }, /runAt must be a Date or an ISO 8601 text.*"tomorrow"/],
  ["an invalid date", 1, { runAt: new Date(Number.NaN) }, /runAt must be a Date or an ISO 8601/],
  ["a date before our era", 1, { runAt: new Date(-1e14) }, /runAt must be a Date or an ISO 8601/],
  ["runAt and delay", 1, { runAt: new Date(), delaySeconds: 1 }, /runAt or delaySeconds, not both/],
  ["an option with a typo", 1, { delaySecond: 1 }, /unknown .*"delaySecond".*"delaySeconds"\?/],
  ["an unknown option", 1, { colour: "red" }, /unknown task option "colour"; known are .*kind/],
  ["maxAttempts 0", 1, { maxAttempts: 0 }, /maxAttempts must be a whole number of at least 1/],
  ["half an attempt", 1, { maxAttempts: 1.5 }, /maxAttempts must be a whole number/],
  ["an empty tenant", 1, { tenant: "" }, /tenant must be a text that is not empty/],
  ["a long tenant", 1, { tenant: "t".repeat(201) }, /tenant must have at most 200 bytes/],
  ["an empty kind", 1, { kind: "" }, /kind must be a text that is not empty/],
  ["an empty idempotency key", 1, { idempotencyKey: "" }, /idempotencyKey must be a text/],
  ["no window", 1, { idempotencyKey: "k", idempotencySeconds: 0 }, /idempotencySeconds must be/],
  ["a webhook by ftp", 1, { webhook: "ftp://x" }, /webhook must be an http or https URL/],
  ["a webhook by name", 1, { webhook: "example.org" }, /webhook must be .*"example.org"/],
  ["a timeout of 0", 1, { timeoutSeconds: 0 }, /timeoutSeconds must be a number of at least/],
  ["an odd backoff", 1, { backoff: { kind: "slow" } }, /backoff.kind must be "fixed" or .*"slow"/],
  ["a big integer", 1n, {}, /payload cannot be written as JSON: .*BigInt/],
  ["a function", () => 1, {}, /payload cannot be written as JSON/],
  ["a trace with a zero byte", 1, { traceParent: "00-\u0000" }, /traceParent must/],
  ["a content type with a zero byte", Buffer.of(1), { contentType: "a\u0000" }, /contentType must/],
];

const circular = (): object => {
  const one: { self?: object } = {};
  one.self = one;
  return one;
};

describe("enqueue refuses with words, and stores nothing:", () => {
  it("every option that cannot be", async () => {
    const { database, mill } = await scene();
    const faults: unknown[] = [];
    for (const [what, payload, options, message] of REFUSED) {
      const error = await refusalOf(mill.enqueue(MAILS, payload, untyped(options)));
      if (!isOurs(error) || !message.test(error.message)) faults.push([what, String(error)]);
      const good = { payload: 1, idempotencyKey: "good" };
      const bad = { payload, ...untyped(options) };
      const bulk = await refusalOf(mill.enqueueMany(MAILS, [good, bad]));
      if (!isOurs(bulk) || !bulk.message.startsWith("task 1: ")) faults.push([what, String(bulk)]);
      const stored = await readStored(database);
      if (stored.tasks + stored.tally + stored.keys > 0) faults.push([what, stored]);
      await database.pool.query("TRUNCATE tidemill.tasks, tidemill.task_tally");
    }
    expect(faults).toEqual([]);
  });

  it("but does not blame a task of many when its lane cannot be made now", async () => {
    const { database, mill } = await scene();
    const other = await database.session();
    await other.query("BEGIN");
    await other.query("LOCK TABLE tidemill.task_lanes");
    const tasks = [1, 2].map((payload) => ({ payload, priority: 8 as const }));
    await expect(mill.enqueueMany(MAILS, tasks)).rejects.toMatchObject({ retryable: true });
    await other.query("ROLLBACK");
    expect(await readStored(database)).toEqual(NOTHING);
    expect(await mill.enqueueMany(MAILS, tasks)).toHaveLength(2);
  });

  it("a payload that holds itself", async () => {
    const { database, mill } = await scene();
    await expect(mill.enqueue(MAILS, circular())).rejects.toThrow(
      /payload cannot be written as JSON: .*circular/,
    );
    expect(await readStored(database)).toEqual(NOTHING);
  });

  it("an option of the call that it does not have", async () => {
    const { database, mill } = await scene();
    const options = { transaction: database.pool } as object;
    await expect(mill.enqueueMany(MAILS, [{ payload: 1 }], options)).rejects.toThrow(
      /unknown enqueue option "transaction"; known are tx/,
    );
    const tx = {} as { query: () => Promise<{ rows: unknown[] }> };
    await expect(mill.enqueue(MAILS, 1, { tx })).rejects.toThrow(/tx must have query\(text/);
    expect(await readStored(database)).toEqual(NOTHING);
  });

  it("a queue that nobody registered", async () => {
    const database = await testDatabase();
    const mill = await database.connect();
    await expect(mill.enqueue("nowhere", 1)).rejects.toThrow(
      /there is no queue "nowhere"; none is registered yet: a worker that handles it/,
    );
    await mill.enqueue(queue("mails"), 1, { delaySeconds: 60 });
    await expect(mill.enqueue("mail", 1)).rejects.toThrow(
      /there is no queue "mail"; registered are "mails"/,
    );
    expect(await readStored(database)).toMatchObject({ tasks: 1, tally: 1 });
  });

  it("anything in a transaction that has failed", async () => {
    const { database, mill } = await scene();
    await inTransaction(database, "ROLLBACK", async (tx) => {
      await expect(tx.query("SELECT 1 / 0")).rejects.toThrow("division by zero");
      const enqueued = mill.enqueue(MAILS, 1, { tx, idempotencyKey: "k" });
      await expect(enqueued).rejects.toThrow(/current transaction is aborted/);
    });
    expect(await readStored(database)).toEqual(NOTHING);
  });
});

async function scene(): Promise<{ database: TestDatabase; mill: Tidemill }> {
  const database = await testDatabase();
  return { database, mill: await database.connect() };
}

async function refusalOf(refused: Promise<unknown>): Promise<unknown> {
  return await refused.then(
    () => "accepted",
    (error: unknown) => error,
  );
}

const isOurs = (error: unknown): error is Error =>
  error instanceof InvalidInputError || error instanceof ConfigError;

const REFUSED_BY_SQL: readonly (readonly [string, string, RegExp])[] = [
  ["an unknown queue", "'nowhere', '1'", /there is no queue "nowhere"/],
  ["a NULL payload", "'mails', NULL", /payload must not be NULL; use 'null'::jsonb/],
  ["a large payload", `'mails', to_jsonb(repeat('x', 99))`, /101 bytes, over the limit of queue/],
  ["a negative delay", "'mails', '1', delay_seconds => -1", /delay_seconds must not be negative/],
  ["an endless delay", "'mails', '1', delay_seconds => 'Infinity'", /delay_seconds|out of range/],
  ["priority 10", "'mails', '1', priority => 10", /priority must be from 0 to 9, not 10/],
  ["priority -1", "'mails', '1', priority => -1", /priority must be from 0 to 9, not -1/],
  ["an empty key", "'mails', '1', partition_key => ''", /partition_key must have 1 to 1024 bytes/],
  ["a long key", "'mails', '1', partition_key => repeat('ü', 513)", /1 to 1024 bytes/],
  ["a separator", "'mails', '1', partition_key => chr(30)", /partition_key must .*no U\+001D/],
  ["two times", "'mails', '1', run_at => NOW(), delay_seconds => 1", /delay_seconds, not both/],
  ["max_attempts 0", "'mails', '1', max_attempts => 0", /max_attempts must be at least 1/],
  ["an empty tenant", "'mails', '1', tenant => ''", /tenant must have 1 to 200 bytes/],
  ["no tenant", "'mails', '1', tenant => NULL", /tenant must have 1 to 200 bytes/],
  ["an empty kind", "'mails', '1', kind => ''", /kind must/],
  ["an empty idempotency key", "'mails', '1', idempotency_key => ''", /idempotency_key must/],
];

describe("tidemill.enqueue", () => {
  it("refuses with words what the library refuses, and stores nothing", async () => {
    const { database, mill } = await scene();
    await refusalOf(mill.enqueue(MAILS, 1, { priority: 99 })); // Registers it.
    const faults: unknown[] = [];
    for (const [what, call, message] of REFUSED_BY_SQL) {
      const error = await refusalOf(database.pool.query(`SELECT tidemill.enqueue(${call})`));
      if (!(error instanceof Error) || !message.test(error.message))
        faults.push([what, String(error)]);
      const stored = await readStored(database);
      if (stored.tasks + stored.tally + stored.keys > 0) faults.push([what, stored]);
      await database.pool.query(
        "TRUNCATE tidemill.tasks, tidemill.task_tally, tidemill.task_idempotency",
      );
    }
    expect(faults).toEqual([]);
  });
});

const odd = (options: Record<string, unknown>): QueueOptions => options;

describe("a definition is refused with words when it has", () => {
  it.each<readonly [string, string, Record<string, unknown>, RegExp]>([
    ["no name", "", {}, /a queue needs a name that is not empty/],
    ["a long name", "n".repeat(201), {}, /a name of at most 200 bytes/],
    ["a zero byte", "a\u0000", {}, /a name of at most 200 bytes/],
    ["a typo", "q", { maxAttempt: 1 }, /unknown queue "q" option "maxAttempt".*"maxAttempts"\?/],
    ["maxAttempts 0", "q", { maxAttempts: 0 }, /maxAttempts of queue "q" must be a whole number/],
    [
      "an odd onFailure",
      "q",
      { onFailure: "stop" },
      /onFailure of queue "q" must be "continue" or/,
    ],
    ["an odd backoff", "q", { backoff: { kind: "x" } }, /backoff.kind must be "fixed"/],
    ["a mixed backoff", "q", { backoff: { baseSeconds: 9, maxSeconds: 1 } }, /raise the first or/],
    ["no validator", "q", { schema: {} }, /schema of queue "q" must be a Standard Schema/],
    ["no result validator", "q", { resultSchema: 1 }, /resultSchema of queue "q" must be a Stand/],
    ["a timeout of 0", "q", { timeoutSeconds: 0 }, /timeoutSeconds of queue "q" must be a number/],
    ["keyConcurrency 0", "q", { keyConcurrency: 0 }, /keyConcurrency of queue "q" must be a whole/],
    ["an empty key space", "q", { keySpace: "" }, /a key space needs a name/],
    ["priority 11", "q", { priority: 11 }, /priority must be a whole number from 0 to 9/],
    ["a weight of 0", "q", { tenantWeights: { a: 0 } }, /tenantWeights.a of queue "q" must be/],
    ["an unknown limit", "q", { limits: { rates: 1 } }, /unknown limits of queue "q".*"rate"\?/],
    ["a rate of 0", "q", { limits: { rate: { count: 0 } } }, /limits.rate.count of queue "q"/],
    [
      "half a slot",
      "q",
      { limits: { concurrency: 0.5 } },
      /limits.concurrency of queue "q" must be/,
    ],
  ])("%s", (_what, name, options, message) => {
    expect(() => queue(name, odd(options))).toThrow(message);
  });
});

describe("a worker is refused with words when it has", () => {
  it("two handlers for one queue, no function or an odd concurrency", async () => {
    const { mill } = await scene();
    const one = queue("q").handle(() => undefined);
    const two = queue("q").handle(() => undefined);
    expect(() => mill.worker({ handlers: [one, two] })).toThrow('two handlers for queue "q"');
    expect(() => mill.worker({ handlers: [] })).toThrow(/at least one consumer or handler/);
    const none = undefined as never;
    expect(() => queue("q").handle(none)).toThrow('queue "q": handle needs a function');
    expect(() => mill.worker({ handlers: [none] })).toThrow(/handler at index 0 is not one: use/);
    expect(() => queue("q").handle(() => undefined, { concurrency: 0 })).toThrow(
      /concurrency must be a whole number of at least 1/,
    );
    expect(() => mill.worker({ handlers: [one], concurrency: 0 })).toThrow(/concurrency must be/);
    expect(() => mill.worker({ handlers: [one], leaseSeconds: 0.5 })).toThrow(/leaseSeconds must/);
  });

  it("a key space other than the one its queue was registered with", async () => {
    const database = await testDatabase();
    const mill = await database.connect();
    await mill.enqueue(queue("mails", { keySpace: "a" }), 1);
    const moved = queue("mails", { keySpace: "b" });
    const refusal = /registered with key space "a", not "b".*use a new queue name/;
    await expect(mill.enqueue(moved, 1)).rejects.toThrow(refusal);
    const handlers = [moved.handle(() => undefined)];
    await expect(mill.startWorker({ handlers })).rejects.toThrow(refusal);
  });
});

describe("a question or an act is refused with words", () => {
  it("about ids, pages and queues that cannot be", async () => {
    const { mill } = await scene();
    for (const id of ["", "0", "-1", "1.5", "abc", "9".repeat(19)]) {
      await expect(mill.tasks.get(id)).rejects.toThrow(/a task id is a number such as "4711"/);
      await expect(mill.tasks.cancel(id)).rejects.toThrow(/a task id is a number/);
      await expect(mill.result(id)).rejects.toThrow(/a task id is a number/);
    }
    await expect(mill.tasks.get("4711")).rejects.toThrow(/there is no task 4711/);
    await expect(mill.tasks.retry("4711")).rejects.toThrow(/there is no task 4711/);
    await expect(mill.tasks.cancel("4711")).rejects.toThrow(/there is no task 4711/);
    await expect(mill.tasks.why("4711")).rejects.toThrow(/there is no task 4711/);
    await expect(mill.tasks.list({ limit: 0 })).rejects.toThrow(/limit must be a whole number/);
    await expect(mill.tasks.list({ state: "done" as "dead" })).rejects.toThrow(/state must be/);
    await expect(mill.tasks.list({ before: "x" })).rejects.toThrow(/a task id is a number/);
    await expect(mill.queues.pause("nowhere")).rejects.toThrow(/there is no queue "nowhere"/);
    await expect(mill.queues.setLimits("nowhere", {})).rejects.toThrow(/there is no queue/);
    await expect(mill.queues.pauseKey("nowhere", "k")).rejects.toThrow(/there is no queue/);
  });

  it("about dead letters", async () => {
    const { mill } = await scene();
    await expect(mill.deadLetters.list({ limit: 0 })).rejects.toThrow(/limit must be a whole/);
    await expect(mill.deadLetters.list({ limit: 5_000 })).rejects.toThrow(/limit must be a whole/);
    await expect(mill.deadLetters.list({ before: "x" })).rejects.toThrow(/a task id is a number/);
    await expect(mill.deadLetters.edit("4711", {})).rejects.toThrow(/there is no dead letter 4711/);
    await expect(mill.deadLetters.edit("4711", circular())).rejects.toThrow(/circular/);
    await expect(mill.deadLetters.redrive({ ids: ["x"] })).rejects.toThrow(/a task id is a number/);
    await expect(mill.deadLetters.redrive({ cause: "x" as "worker_lost" })).rejects.toThrow(
      /cause must be "attempts_exhausted" or/,
    );
    await expect(mill.deadLetters.purge({ id: "1" } as object)).rejects.toThrow(/"ids"\?/);
  });

  it("about keys that no task can have", async () => {
    const { mill } = await scene();
    const refusal = { name: "InvalidInputError" };
    await expect(mill.queues.pauseKey(MAILS, "")).rejects.toMatchObject(refusal);
    await expect(mill.queues.pauseKey(MAILS, "k\u0000")).rejects.toMatchObject(refusal);
    const until = new Date(Number.NaN);
    await expect(mill.queues.pauseKey(MAILS, "k", { until })).rejects.toThrow(
      /until must be a valid/,
    );
  });
});
