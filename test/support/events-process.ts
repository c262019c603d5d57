import { runUntilSignal, Tidemill } from "../../src/index.ts";
import { connectKafka, publishEvents } from "../../src/kafka/index.ts";

/** A process that publishes events to Kafka, as a service of its own would. */
export interface EventsProcessSpec {
  readonly url: string;
  readonly broker: string;
  readonly topic: string;
}

const { url, broker, topic } = JSON.parse(process.argv[2] ?? "{}") as EventsProcessSpec;
const mill = await Tidemill.connect(url);
const kafka = await connectKafka({ brokers: [broker] });
const worker = await mill.startWorker({
  heartbeatInterval: 200,
  heartbeatTimeout: 1_000,
  rebalanceInterval: 200,
  dispatcherStrategy: "notify",
  batchSize: 20,
  consumers: [publishEvents("to_kafka", kafka, { topic })],
});
const code = await runUntilSignal(worker);
await kafka.close();
await mill.close();
process.exit(code);
