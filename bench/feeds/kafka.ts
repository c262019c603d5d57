import { setTimeout as delay } from "node:timers/promises";
import { httpQueue, type NewTask, queue, Tidemill } from "../../src/index.ts";
import { connectKafka, type KafkaClient, KafkaIngest } from "../../src/kafka/index.ts";
import { Broker } from "../../test/kafka/broker.ts";
import { missingJava } from "../../test/kafka/classpath.ts";
import { type Figure, median } from "../support/figure.ts";
import { type BenchServer, withClient } from "../support/server.ts";
import { BATCH, BATCHES_IN_FLIGHT, PAYLOAD_BYTES } from "../tasks/protocol.ts";

const CLIENTS = ["platformatic", "kafkajs"] as const;
type ClientName = (typeof CLIENTS)[number];

const PARTITIONS = 3;
const FULL = { rounds: 5, tasks: 200_000 };
const QUICK = { rounds: 3, tasks: 60_000 };
/** As an operator would run it, within the memory of a test. */
const JVM = ["-Xms256m", "-Xmx512m"];
const PRIORITIES = ["high", "normal", "low"] as const;
const LOOK_MS = 2;
const INGEST_MIN = 0.4;
/** What messages say: the least, or what Foreman's jobs do. */
type Shape = "plain" | "call";
const PREFIXES: Readonly<Record<Shape, string>> = { plain: "bench", call: "calls" };

const payload = (n: number): object => {
  const head = JSON.stringify({ n, pad: "" }).length;
  return { n, pad: "x".repeat(Math.max(0, PAYLOAD_BYTES - head)) };
};

/** How fast messages become tasks, beside the same tasks enqueued in bulk: same payloads, cores. */
export async function* kafkaFigures(server: BenchServer, quick: boolean): AsyncGenerator<Figure> {
  const missing = await missingJava();
  if (missing !== undefined) throw new Error(`the figures of Kafka need a broker: ${missing}`);
  const { rounds, tasks } = quick ? QUICK : FULL;
  const broker = await Broker.start(JVM);
  const bulk: number[] = [];
  const calls: number[] = [];
  const ingest = new Map<ClientName, number[]>(CLIENTS.map((client) => [client, []]));
  try {
    const topics = await fill(broker, tasks, "plain");
    const others = await fill(broker, tasks, "call");
    for (let round = 0; round < rounds; round += 1) {
      bulk.push(await enqueueAll(server, tasks));
      for (const client of CLIENTS) {
        const rate = await ingestAll(server, { broker, client, topics, tasks, round });
        ingest.get(client)?.push(rate);
      }
      const shape = { broker, client: "platformatic", topics: others, tasks, round } as const;
      calls.push(await ingestAll(server, { ...shape, shape: "call" }));
    }
  } finally {
    await broker.close();
  }
  const settings = { ...server.settings, rounds, tasks, topics: 3, partitions: PARTITIONS };
  const against = (client: ClientName, others: readonly number[]): number =>
    median((ingest.get(client) ?? []).map((rate, round) => rate / (others[round] ?? Number.NaN)));
  yield {
    figure: "feeds.kafka_vs_bulk_enqueue",
    value: against("platformatic", bulk),
    ours: median(ingest.get("platformatic") ?? []),
    anchor: median(bulk),
    unit: "of the bulk-enqueued tasks/s",
    bar: { atLeast: INGEST_MIN },
    settings: { ...settings, client: "platformatic" },
  };
  yield {
    figure: "feeds.kafka_calls_vs_bulk_enqueue",
    value: median(calls.map((rate, round) => rate / (bulk[round] ?? Number.NaN))),
    ours: median(calls),
    anchor: median(bulk),
    unit: "of the bulk-enqueued tasks/s, of messages with a target, an id and a priority",
    settings: { ...settings, client: "platformatic" },
  };
  yield {
    figure: "feeds.kafka_client_vs_kafkajs",
    value: against("platformatic", ingest.get("kafkajs") ?? []),
    ours: median(ingest.get("platformatic") ?? []),
    anchor: median(ingest.get("kafkajs") ?? []),
    unit: "of the tasks/s through kafkajs",
    settings,
  };
}

/** Once for all rounds: each reads them under a name of its own. */
async function fill(broker: Broker, tasks: number, shape: Shape): Promise<string[]> {
  const client = await connectKafka({ brokers: [broker.address] });
  const topics = PRIORITIES.map((priority) => `${PREFIXES[shape]}.jobs.${priority}`);
  await client.createTopics(
    topics.map((topic) => ({ topic, partitions: PARTITIONS, replicas: 1 })),
  );
  for (let n = 0; n < tasks; n += BATCH)
    await publish(client, { topics, from: n, count: Math.min(BATCH, tasks - n), shape });
  await client.close();
  return topics;
}

interface Some {
  readonly topics: readonly string[];
  readonly from: number;
  readonly count: number;
  readonly shape: Shape;
}

function jobOf(n: number, shape: Shape): object {
  if (shape === "plain") return { queue: "bench", payload: payload(n) };
  const target_url = `https://hooks.example.com/jobs/${n % 10}`;
  return { id: `job-${n}`, queue: "bench", target_url, priority: n % 10, payload: payload(n) };
}

async function publish(client: KafkaClient, { topics, from, count, shape }: Some): Promise<void> {
  await client.publish(
    Array.from({ length: count }, (_, place) => {
      const n = from + place;
      return {
        topic: topics[n % topics.length] ?? "",
        key: Buffer.from(String(n)),
        value: Buffer.from(JSON.stringify(jobOf(n, shape))),
        headers: [],
      };
    }),
  );
}

async function enqueueAll(server: BenchServer, tasks: number): Promise<number> {
  const url = await server.database();
  const mill = await Tidemill.connect(url);
  const bench = queue("bench");
  await mill.queues.ensure(bench.name);
  const begunMs = performance.now();
  let next = 0;
  const feed = async (): Promise<void> => {
    for (; next < tasks; ) {
      const from = next;
      next = Math.min(tasks, from + BATCH);
      const some: NewTask<object>[] = Array.from({ length: next - from }, (_, place) => ({
        payload: payload(from + place),
      }));
      await mill.enqueueMany(bench.name, some);
    }
  };
  await Promise.all(Array.from({ length: BATCHES_IN_FLIGHT }, feed));
  const rate = (tasks / (performance.now() - begunMs)) * 1000;
  await mill.close();
  await verify(url, tasks);
  await server.drop(url);
  return rate;
}

interface Run {
  readonly broker: Broker;
  readonly client: ClientName;
  readonly topics: readonly string[];
  readonly tasks: number;
  readonly round: number;
  /** Defaults to plain. */
  readonly shape?: Shape;
}

/** From the first message that is stored to the last, so that joining groups does not count. */
async function ingestAll(server: BenchServer, run: Run): Promise<number> {
  const { broker, client: name, topics, tasks, round, shape = "plain" } = run;
  const url = await server.database();
  const mill = await Tidemill.connect(url);
  if (shape === "call") await mill.queues.define(httpQueue("bench"));
  else await mill.queues.ensure("bench");
  const client = await connectKafka({ brokers: [broker.address], client: name });
  const group = `bench-${name}-${shape}-${round}`;
  const allowUnnoticedRecreation = name === "kafkajs";
  const options = { prefix: PREFIXES[shape], group, allowUnnoticedRecreation };
  const ingest = new KafkaIngest(mill, client, options);
  const stored = (): number =>
    topics.reduce(
      (sum, topic) => sum + ingest.metrics.messages.value({ topic, outcome: "stored" }),
      0,
    );
  await ingest.start();
  while (stored() === 0) await delay(LOOK_MS);
  const [first, begunMs] = [stored(), performance.now()];
  while (stored() < tasks) await delay(LOOK_MS);
  const rate = ((tasks - first) / (performance.now() - begunMs)) * 1000;
  await ingest.stop();
  await client.close();
  await mill.close();
  await verify(url, tasks);
  await server.drop(url);
  return rate;
}

/** A figure of a run that lost or doubled something would be worth nothing. */
async function verify(url: string, tasks: number): Promise<void> {
  const found = await withClient(url, async (client) => {
    const { rows } = await client.query<{ count: number; numbers: number }>(
      `SELECT count(*)::int AS count, count(DISTINCT payload)::int AS numbers
         FROM tidemill.live_tasks`,
    );
    return rows[0];
  });
  if (found?.count === tasks && found.numbers === tasks) return;
  throw new Error(`of ${tasks} tasks there are ${found?.count}, ${found?.numbers} of them once`);
}
