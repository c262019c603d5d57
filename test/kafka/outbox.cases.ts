import { describe, expect, it } from "vitest";
import { completed, failed, queue } from "../../src/index.ts";
import {
  type KafkaClient,
  type KafkaMessage,
  KafkaTaskPublisher,
  listTaskPublications,
  type PublishTasksOptions,
  removeTaskPublication,
} from "../../src/kafka/index.ts";
import { startNode } from "../integration/cli/cli.ts";
import { onCleanup, type TestDatabase } from "../support/database.ts";
import type { EventsProcessSpec } from "../support/events-process.ts";
import { eventually } from "../support/eventually.ts";
import { program } from "../support/programs.ts";
import { endBySql, firstAppearances, idOf } from "./ends.ts";
import { type KafkaProcess, startProcess } from "./processes.ts";
import { type ClientName, type Scene, scene, used } from "./scene.ts";
import { headersOf, readTopic } from "./topics.ts";

const NAME = "ends";

interface Outbox extends Scene {
  readonly topic: string;
  publish(more?: Partial<PublishTasksOptions>, client?: KafkaClient): Promise<KafkaTaskPublisher>;
}

async function outbox(client?: ClientName): Promise<Outbox> {
  const here = await scene(used.broker, { partitions: 0, ...(client ? { client } : {}) });
  const topic = `${here.prefix}.ended`;
  await eventually(() => here.client.createTopics([{ topic, partitions: 1, replicas: 1 }]));
  return {
    ...here,
    topic,
    async publish(more = {}, kafka = here.client) {
      // Longer than this process may stand still: who lost its hold publishes again.
      const options = { name: NAME, topic, holdSeconds: 5, ...more };
      const publisher = new KafkaTaskPublisher(here.mill, kafka, options);
      onCleanup(() => publisher.stop());
      await publisher.start();
      return publisher;
    },
  };
}

const idsOf = (messages: readonly KafkaMessage[]): number[] => messages.map(idOf);

async function read(here: Outbox, ids: readonly number[]): Promise<KafkaMessage[]> {
  const wanted = new Set(ids);
  return await readTopic(here, here.topic, (messages) => {
    const found = new Set(idsOf(messages));
    return [...wanted].every((id) => found.has(id));
  });
}

const countTriggers = async ({ pool }: TestDatabase): Promise<number> =>
  (await pool.query("SELECT FROM pg_trigger WHERE tgname = 'tidemill_publish'")).rows.length;

const countEnds = async ({ pool }: TestDatabase): Promise<number> =>
  (await pool.query("SELECT FROM tidemill.task_ends")).rows.length;

describe.each<ClientName>(["platformatic", "kafkajs"])("ends of tasks, through %s", (client) => {
  it("are published whatever ended them, those of a key in the order of their ends", async () => {
    const here = await outbox(client);
    expect(await countTriggers(here.database)).toBe(0);
    await here.publish({ payload: true });
    const jobs = queue<{ n: number; act: string }>("jobs", { maxAttempts: 1 });
    const packed = queue<number>("packed");
    const worker = await here.mill.startWorker({
      handlers: [
        packed.handle(() => {}),
        jobs.handle(async ({ payload: { n, act } }, context) => {
          if (act === "fail") return failed("no good", { retry: false });
          if (act === "die") throw new Error("it broke");
          if (act === "commit") return await here.mill.transaction((tx) => context.complete(tx));
          return completed({ n });
        }),
      ],
      concurrency: 4,
    });
    const acts = ["work", "fail", "die", "commit", "work"];
    const handles = [];
    for (const [n, act] of acts.entries()) {
      handles.push(await here.mill.enqueue(jobs, { n, act }, { partitionKey: "one" }));
    }
    const pack = await here.mill.enqueueMany(
      packed,
      Array.from({ length: 150 }, (_, n) => ({ payload: n })),
    );
    const later = await here.mill.enqueue(jobs, { n: 9, act: "work" }, { delaySeconds: 900 });
    await here.mill.tasks.cancel(later.id, { reason: "not needed" });
    await here.database.pool.query(endBySql(1_000_000, "sql"));
    const ids = [...handles, ...pack, later].map((one) =>
      Number(typeof one === "string" ? one : one.id),
    );
    const messages = await read(here, [...ids, 1_000_000]);
    await worker.stop();
    expect(idsOf(messages).toSorted((a, b) => a - b)).toEqual(
      [...ids, 1_000_000].toSorted((a, b) => a - b),
    );
    const keyed = messages.filter(({ key }) => String(key) === "one");
    const told = keyed.map(({ value }) => JSON.parse(String(value)) as Record<string, unknown>);
    expect(told.map(({ state }) => state)).toEqual([
      "completed",
      "failed",
      "dead",
      "completed",
      "completed",
    ]);
    expect(told[0]).toMatchObject({
      id: handles[0]?.id,
      tenant: "default",
      queue: "jobs",
      partitionKey: "one",
      attempt: 1,
      result: { n: 0 },
      payload: { n: 0, act: "work" },
    });
    expect(told[2]).toMatchObject({ cause: "attempts_exhausted", reason: "it broke" });
    const cancelled = messages.find((one) => headersOf(one)["tidemill-task-id"] === later.id);
    expect(JSON.parse(String(cancelled?.value))).toMatchObject({
      state: "cancelled",
      reason: "not needed",
    });
    await eventually(async () => expect(await countEnds(here.database)).toBe(0));
    expect(await removeTaskPublication(here.mill, NAME)).toBe(true);
    expect(await countTriggers(here.database)).toBe(0);
  });
});

describe("ends of tasks", () => {
  it("wait for an older one that is not committed, and go on when it is rolled back", async () => {
    const here = await outbox();
    const publisher = await here.publish();
    const { pool } = here.database;
    const held = (): number => publisher.metrics.heldSeconds.value({ publication: NAME }) ?? 0;
    const slow = await here.database.session();
    await slow.query("BEGIN");
    await slow.query(endBySql(1));
    await pool.query(endBySql(2));
    await eventually(() => expect(held()).toBeGreaterThan(0));
    await slow.query("COMMIT");
    expect(idsOf(await read(here, [1, 2]))).toEqual([1, 2]);
    await slow.query("BEGIN");
    await slow.query(endBySql(3));
    await pool.query(endBySql(4));
    await eventually(() => expect(held()).toBeGreaterThan(0));
    await slow.query("ROLLBACK");
    // A transaction that has a number and does nothing with tasks is nobody to wait for.
    await slow.query("BEGIN; SELECT pg_current_xact_id()");
    const other = await here.database.session();
    await other.query("BEGIN");
    await other.query(endBySql(5));
    await other.query("ROLLBACK");
    await pool.query(endBySql(6));
    expect(idsOf(await read(here, [4, 6]))).toEqual([1, 2, 4, 6]);
    await slow.query("ROLLBACK");
  });

  it("are all there when many transactions commit and roll back at once", async () => {
    const here = await outbox();
    await here.publish({ batchTasks: 7 });
    const sessions = await Promise.all(Array.from({ length: 6 }, () => here.database.session()));
    const kept: number[] = [];
    await Promise.all(
      sessions.map(async (session, place) => {
        for (let n = 0; n < 40; n += 1) {
          const id = n * sessions.length + place + 1;
          await session.query("BEGIN");
          await session.query(endBySql(id, `key ${place}`));
          if (n % 3 === 0) await session.query(endBySql(id + 10_000, `key ${place}`));
          const isKept = (n + place) % 4 !== 0;
          await session.query(isKept ? "COMMIT" : "ROLLBACK");
          if (isKept) kept.push(id, ...(n % 3 === 0 ? [id + 10_000] : []));
        }
      }),
    );
    const messages = await read(here, kept);
    expect(idsOf(messages).toSorted((a, b) => a - b)).toEqual(kept.toSorted((a, b) => a - b));
    const positions = messages.map((one) => BigInt(headersOf(one)["tidemill-end-position"] ?? 0));
    expect(positions).toEqual(positions.toSorted((a, b) => Number(a - b)));
    for (const [place] of sessions.entries()) {
      const ofKey = idsOf(messages.filter(({ key }) => String(key) === `key ${place}`));
      expect(ofKey.map((id) => id % 10_000)).toEqual(
        ofKey.map((id) => id % 10_000).toSorted((a, b) => a - b),
      );
    }
  });

  it("are kept while nobody publishes, longer than history, and only for who asked", async () => {
    const here = await outbox();
    const { pool } = here.database;
    await pool.query(endBySql(1));
    const first = await here.publish({ queues: ["sql"] });
    await pool.query(endBySql(2));
    await read(here, [2]);
    await first.stop();
    await pool.query(endBySql(3));
    await pool.query(endBySql(4).replace("'sql'", "'others'"));
    await pool.query("DELETE FROM tidemill.task_history");
    expect(await countEnds(here.database)).toBe(1);
    const [away] = await listTaskPublications(here.mill);
    expect(away).toMatchObject({ name: NAME, isHeld: false, waiting: 1n, queues: ["sql"] });
    await here.publish({ queues: ["sql"] });
    expect(idsOf(await read(here, [3]))).toEqual([2, 3]);
  });

  it("are published by one process at a time, and by another one when it stops", async () => {
    const here = await outbox();
    const [one, other] = [await here.publish(), await here.publish()];
    const isPublishing = ({ metrics }: KafkaTaskPublisher): number | undefined =>
      metrics.isPublishing.value({ publication: NAME });
    await here.database.pool.query(endBySql(1));
    await read(here, [1]);
    const [active, idle] = isPublishing(one) === 1 ? [one, other] : [other, one];
    expect([isPublishing(active), isPublishing(idle) ?? 0]).toEqual([1, 0]);
    await active.stop();
    await here.database.pool.query(endBySql(2));
    expect(idsOf(await read(here, [2]))).toEqual([1, 2]);
    expect(isPublishing(idle)).toBe(1);
    await removeTaskPublication(here.mill, NAME);
    await expect(idle.finished).rejects.toThrow('publication "ends" was removed');
    await here.database.pool.query(endBySql(3));
    expect(await countEnds(here.database)).toBe(0);
  });

  it("are not taken for published by a process that others have replaced", async () => {
    const here = await outbox();
    let begin: () => void = () => {};
    let release: () => void = () => {};
    const begun = new Promise<void>((resolve) => void (begin = resolve));
    const released = new Promise<void>((resolve) => void (release = resolve));
    const slow: KafkaClient = Object.create(here.client, {
      publish: {
        async value(messages: Parameters<KafkaClient["publish"]>[0]) {
          begin();
          await released;
          return await here.client.publish(messages);
        },
      },
      describeTopics: { value: (topics: string[]) => here.client.describeTopics(topics) },
    }) as KafkaClient;
    await here.publish({}, slow);
    const { pool } = here.database;
    await pool.query(endBySql(1));
    await begun;
    const taken = "UPDATE tidemill.task_publications SET generation = generation + 1,";
    await pool.query(`${taken} holder = gen_random_uuid(), held_until = NOW() + '1 hour'`);
    release();
    await read(here, [1]);
    const { rows } = await pool.query("SELECT position FROM tidemill.task_publications");
    expect(rows).toEqual([{ position: "0" }]);
    expect(await countEnds(here.database)).toBe(1);
    await pool.query("UPDATE tidemill.task_publications SET held_until = NOW()");
    await eventually(async () => expect(await countEnds(here.database)).toBe(0));
    const messages = await readTopic(here, here.topic, (some) => some.length === 2);
    expect(idsOf(messages)).toEqual([1, 1]); // At least once.
  });

  it("are lost by no crash of publishers, and no cut connection", async () => {
    const here = await outbox();
    const options = { name: NAME, topic: here.topic, holdSeconds: 1, batchTasks: 50 };
    const start = (): Promise<KafkaProcess> => startProcess(here, "publish", options);
    const { pool } = here.database;
    const position = async (): Promise<number> => {
      const text = "SELECT position::int FROM tidemill.task_publications";
      return (await pool.query<{ position: number }>(text)).rows[0]?.position ?? 0;
    };
    let last = 0;
    const end = async (count: number): Promise<void> => {
      for (const to = last + count; last < to; )
        await pool.query(endBySql((last += 1), `${last % 5}`));
    };
    let running = await start();
    for (let kills = 0; kills < 2; kills += 1) {
      await end(300);
      const half = last - 150;
      await eventually(async () => expect(await position()).toBeGreaterThan(half), { everyMs: 2 });
      await running.kill("SIGKILL");
      await end(100);
      running = await start();
    }
    await end(100);
    await pool.query(
      `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND application_name LIKE 'tidemill%'`,
    );
    await eventually(async () => expect(await position()).toBe(last));
    expect(await running.kill("SIGTERM"), running.log()).toBe(0);
    const messages = await read(
      here,
      Array.from({ length: last }, (_, n) => n + 1),
    );
    const byKey = firstAppearances(messages);
    expect([...byKey.values()].flat()).toHaveLength(last);
    for (const ids of byKey.values()) expect(ids).toEqual(ids.toSorted((a, b) => a - b));
  });
});

describe("events", () => {
  it("are lost by no crash of their publisher, are in order, and tell their trace", async () => {
    const here = await outbox();
    const { mill, broker, topic } = here;
    const { pool, url } = here.database;
    const spec: EventsProcessSpec = { url, broker: broker.address, topic };
    const start = (): ReturnType<typeof startNode> =>
      startNode([program("test/support/events-process.ts"), JSON.stringify(spec)]);
    const traceparent = `00-${"a".repeat(32)}-${"b".repeat(16)}-01`;
    const append = async (from: number, to: number): Promise<void> => {
      for (let n = from; n < to; n += 1) {
        const trace =
          n % 2 === 0
            ? { metadata: { traceparent, tracestate: "a=b" } }
            : { traceId: traceparent, metadata: { traceparent: "nonsense" } };
        const event = { type: "Counted", data: { n }, ...trace };
        await mill.append({ type: "Order", id: String(n % 3) }, [event]);
      }
    };
    const victim = start();
    await append(0, 30);
    await eventually(() => mill.waitFor("to_kafka", { position: 30n }));
    broker.freeze();
    onCleanup(async () => broker.wake());
    await append(30, 60);
    // A batch is open, and waits for an answer.
    const waiting = `SELECT FROM pg_stat_activity
                      WHERE datname = current_database() AND state = 'idle in transaction'
                        AND state_change < clock_timestamp() - INTERVAL '0.1 second'`;
    await eventually(async () => expect((await pool.query(waiting)).rowCount).toBe(1));
    victim.child.kill("SIGKILL");
    await victim.ended;
    broker.wake();
    await append(60, 90);
    start();
    const position = "tidemill-event-position";
    const messages = await readTopic(here, topic, (some) => {
      return new Set(some.map((one) => headersOf(one)[position])).size === 90;
    });
    const numberOf = ({ value }: KafkaMessage): number =>
      (JSON.parse(String(value)) as { data: { n: number } }).data.n;
    const byKey = firstAppearances(messages, numberOf);
    for (const key of [0, 1, 2]) {
      const inOrder = Array.from({ length: 30 }, (_, at) => at * 3 + key);
      expect(byKey.get(String(key))).toEqual(inOrder);
    }
    for (const one of messages) {
      const { traceparent: parent, tracestate: state } = headersOf(one);
      expect([parent, state]).toEqual([traceparent, numberOf(one) % 2 === 0 ? "a=b" : undefined]);
    }
  });
});
