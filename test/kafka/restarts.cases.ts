import { expect, it } from "vitest";
import {
  connectKafka,
  type KafkaMessage,
  KafkaTaskPublisher,
  publishEvents,
} from "../../src/kafka/index.ts";
import { onCleanup } from "../support/database.ts";
import { eventually } from "../support/eventually.ts";
import { endBySql, firstAppearances } from "./ends.ts";
import { type ClientName, type Scene, scene, used } from "./scene.ts";
import { headersOf, readTopic } from "./topics.ts";

/** A machine that is busy with other tests takes long to start a broker twice. */
const TEST_MS_MAX = 180_000;
/** A member whose broker was away is back when its group has given it up. */
const REJOIN_MS_MAX = 45_000;
const KEYS = 3;
/** Of events, and of ends of tasks. */
const ROUND = 30;

/** All that goes through one client, each way. */
interface Traffic extends Scene {
  readonly jobs: string;
  readonly events: string;
  readonly ends: string;
  /** Numbers of jobs that the broker said it has. */
  readonly acknowledged: Set<number>;
  /** Publishes jobs of numbers of their own. */
  send(count: number): Promise<void>;
  /** Appends events, and ends tasks. */
  happen(count: number): Promise<void>;
  /** Something is being stored, and something published: neither can end. */
  holdUp(): Promise<{ release(): Promise<void>; isPublishing(): Promise<void> }>;
  /** Everybody has noticed that the broker is away. */
  isNoticed(): void;
}

async function traffic(client: ClientName): Promise<Traffic> {
  const here = await scene(used.broker, { client, partitions: 1 });
  const { mill, database, prefix } = here;
  const [jobs, events, ends] = [`${prefix}.jobs.normal`, `${prefix}.events`, `${prefix}.ends`];
  const topics = [events, ends].map((topic) => ({ topic, partitions: 1, replicas: 1 }));
  await here.client.createTopics(topics);
  const publisher = new KafkaTaskPublisher(mill, here.client, { name: "ends", topic: ends });
  onCleanup(() => publisher.stop());
  await publisher.start();
  await mill.startWorker({
    consumers: [publishEvents("to_kafka", here.client, { topic: events })],
    heartbeatInterval: 200,
    heartbeatTimeout: 10_000, // It is the broker that is away, not the worker.
    rebalanceInterval: 200,
    maxConsecutiveFailures: 1,
  });
  const ingest = await here.ingest({ topics: [{ topic: jobs }], prefix: undefined as never });
  const producer = await connectKafka({ brokers: [used.broker.address], client });
  onCleanup(() => producer.close());
  const acknowledged = new Set<number>();
  let [sent, happened] = [0, 0];
  const send = async (count: number): Promise<void> => {
    const from = sent;
    sent += count;
    await here.produce("normal", count, from, producer);
    for (let n = from; n < from + count; n += 1) acknowledged.add(n);
  };
  return {
    ...here,
    jobs,
    events,
    ends,
    acknowledged,
    send,
    async happen(count) {
      for (const to = happened + count; happened < to; happened += 1) {
        const key = String(happened % KEYS);
        const event = { type: "Counted", data: { n: happened } };
        await mill.append({ type: "Order", id: key }, [event]);
        await database.pool.query(endBySql(happened, key));
      }
    },
    async holdUp() {
      const seen = async (text: string): Promise<void> =>
        await eventually(async () => expect((await database.pool.query(text)).rowCount).toBe(1), {
          timeoutMs: REJOIN_MS_MAX,
        });
      await send(1);
      await seen("SELECT FROM tidemill.kafka_offsets"); // There is something to lock.
      const blocker = await database.session();
      await blocker.query("BEGIN");
      await blocker.query("SELECT FROM tidemill.kafka_offsets FOR UPDATE");
      await send(100);
      await seen(
        `SELECT FROM pg_stat_activity WHERE datname = current_database()
            AND wait_event_type = 'Lock' AND query LIKE '%kafka_offsets%' LIMIT 1`,
      );
      return {
        release: async () => void (await blocker.query("ROLLBACK")),
        isPublishing: () =>
          seen("SELECT FROM tidemill.task_publications WHERE intended IS NOT NULL"),
      };
    },
    isNoticed() {
      const doing = { topic: jobs, doing: "read" };
      const outcome = { consumer: "to_kafka", outcome: "unavailable" };
      expect(ingest.metrics.failures.value(doing)).toBeGreaterThan(0);
      expect(publisher.metrics.failures.value({ publication: "ends" })).toBeGreaterThan(0);
      expect(mill.metrics.batches.value(outcome)).toBeGreaterThan(0);
    },
  };
}

/** Exactly what the topic has became tasks, each once; and it has all that was promised. */
async function expectJobs(here: Traffic): Promise<void> {
  const [range] = await here.client.listOffsets(here.jobs, 1);
  const count = Number(range?.latest);
  await here.expectExactly(count);
  const numberOf = ({ value }: KafkaMessage): number =>
    (JSON.parse(String(value)) as { payload: { n: number } }).payload.n;
  const messages = await readTopic(here, here.jobs, (some) => some.length >= count);
  const { rows } = await here.database.pool.query<{ n: number }>(
    "SELECT (payload::jsonb->>'n')::int AS n FROM tidemill.live_tasks ORDER BY 1",
  );
  const stored = rows.map(({ n }) => n);
  expect(stored).toEqual(messages.map(numberOf).toSorted((a, b) => a - b));
  expect([...here.acknowledged].filter((n) => !stored.includes(n))).toEqual([]);
}

/** None is missing, and those of a key are in order. */
async function expectPublished(here: Traffic, topic: string, position: string): Promise<void> {
  const count = 3 * ROUND;
  const seen = await readTopic(here, topic, (some) => {
    return new Set(some.map((one) => headersOf(one)[position])).size === count;
  });
  const numberOf = ({ value }: KafkaMessage): number => {
    type Told = { readonly id: string; readonly data?: { readonly n: number } };
    const { data, id } = JSON.parse(String(value)) as Told;
    return data?.n ?? Number(id);
  };
  const byKey = firstAppearances(seen, numberOf);
  for (let key = 0; key < KEYS; key += 1) {
    const inOrder = Array.from({ length: count / KEYS }, (_, at) => at * KEYS + key);
    expect(byKey.get(String(key))).toEqual(inOrder);
  }
}

it(
  "a broker that is killed, or restarted, loses and doubles nothing that it took",
  async () => {
    const both = await Promise.all([traffic("platformatic"), traffic("kafkajs")]);
    const all = async (work: (here: Traffic) => Promise<unknown>): Promise<void> =>
      void (await Promise.all(both.map(work)));
    await all((here) => here.happen(ROUND));
    for (const signal of ["SIGKILL", "SIGTERM"] as const) {
      const held = await Promise.all(both.map((here) => here.holdUp()));
      onCleanup(async () => used.broker.wake());
      used.broker.freeze(); // What is sent from here on has no answer when it is killed.
      const unanswered = both.map((here) => here.send(50).catch(() => {}));
      await all((here) => here.happen(ROUND));
      await Promise.all(held.map((one) => one.isPublishing()));
      await used.broker.kill(signal);
      await Promise.all(held.map((one) => one.release()));
      if (signal === "SIGKILL") await eventually(() => both[0].isNoticed());
      await used.broker.run();
      await Promise.all(unanswered);
      await all((here) => eventually(() => here.send(50)));
    }
    await all(async (here) => {
      await expectJobs(here);
      await expectPublished(here, here.events, "tidemill-event-position");
      await expectPublished(here, here.ends, "tidemill-end-position");
    });
    const [first] = await readTopic(both[0], both[0].events, (some) => some.length > 0);
    expect(JSON.parse(String(first?.value))).toMatchObject({
      position: "1",
      stream: { type: "Order", id: "0" },
      streamVersion: "1",
      type: "Counted",
      data: { n: 0 },
    });
  },
  TEST_MS_MAX,
);
