import { runUntilSignal, Tidemill } from "../../src/index.ts";
import { connectKafka, KafkaIngest, type KafkaIngestOptions } from "../../src/kafka/index.ts";

/**
 * What one process of a service does that takes jobs from Kafka and calls their targets: it reads
 * the topics and makes calls. Exits as `runUntilSignal` says.
 */
export interface JobProcessSpec {
  readonly url: string;
  readonly broker: string;
  readonly ingest: KafkaIngestOptions;
  /** Of the target; all hosts under hooks.test are this machine. */
  readonly port: number;
  readonly leaseSeconds: number;
  readonly drainSeconds: number;
}

const spec = JSON.parse(process.argv[2] ?? "{}") as JobProcessSpec;
const mill = await Tidemill.connect(spec.url);
const kafka = await connectKafka({ brokers: [spec.broker] });
const { drainSeconds } = spec;
const ingest = new KafkaIngest(mill, kafka, { drainSeconds, ...spec.ingest });
await ingest.start();
const worker = await mill.startWorker({
  heartbeatInterval: 200,
  heartbeatTimeout: 5_000,
  rebalanceInterval: 200,
  dispatcherStrategy: "notify",
  leaseSeconds: spec.leaseSeconds,
  drainTimeout: drainSeconds * 1_000,
  httpJobs: {
    breakerSeconds: 0.2,
    egress: {
      allowHttp: true,
      ports: [spec.port],
      allowHosts: ["*.hooks.test"],
      resolve: () => Promise.resolve(["127.0.0.1"]),
    },
  },
});
process.stdout.write(`${JSON.stringify({ event: "started", worker: worker.id })}\n`);

const code = await runUntilSignal(ingest, worker);
await kafka.close();
await mill.close();
process.exit(code);
