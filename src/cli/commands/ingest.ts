import { once } from "node:events";
import { refuseUnknown } from "../../base/options.ts";
import { stopSignal } from "../../base/stop-signal.ts";
import { Supervisor } from "../../base/supervisor.ts";
import { VERSION } from "../../base/version.ts";
import { connectKafka } from "../../kafka/connect.ts";
import type { KafkaOptions } from "../../kafka/connect-options.ts";
import { KafkaIngest } from "../../kafka/ingest.ts";
import type { KafkaIngestOptions } from "../../kafka/ingest-options.ts";
import { HttpListener } from "../../server/http/listener.ts";
import { createMetricsPage } from "../../server/http/metrics-page.ts";
import { Tidemill } from "../../worker/tidemill.ts";
import { UsageError } from "../errors.ts";
import { connectOptions, type GlobalFlags, requireDatabaseUrl } from "../options.ts";
import { readJson } from "../serve/files.ts";
import { serveLogger } from "../serve/log.ts";
import { Redactor } from "../serve/redactor.ts";
import type { LogLevel, Place } from "../serve/settings.ts";

export interface IngestFlags extends GlobalFlags {
  readonly config: string;
  readonly metrics?: Place;
  readonly logLevel?: LogLevel;
}

interface IngestConfig {
  readonly kafka: KafkaOptions;
  readonly ingest: KafkaIngestOptions;
}

/** For what looks at queues; transactions of the ingest have connections of their own. */
const POOL_SIZE = 3;
const METRICS_PORT = 9_464;

/** `tidemill ingest kafka`: until a signal, then the transactions under way end. */
export async function runKafkaIngest(flags: IngestFlags): Promise<void> {
  const url = requireDatabaseUrl(flags);
  const { kafka, ingest: options } = readConfig(flags.config);
  const secrets = [URL.canParse(url) ? new URL(url).password : "", kafka.sasl?.password ?? ""];
  const logger = serveLogger(flags.logLevel ?? "info", new Redactor(secrets));
  const { signal, release } = stopSignal();
  try {
    await using mill = await Tidemill.connect(url, {
      ...connectOptions(flags),
      poolSize: POOL_SIZE,
      logger,
    });
    const client = await connectKafka(kafka);
    try {
      await using ingest = new KafkaIngest(mill, client, options);
      await using _metrics = await serveMetrics(flags.metrics, mill, ingest);
      await ingest.start();
      logger.info({ version: VERSION, brokers: kafka.brokers }, "ingesting");
      if (!signal.aborted) await once(signal, "abort");
      logger.info({}, "draining");
      await ingest.stop();
    } finally {
      await client.close();
    }
    logger.info({}, "stopped");
  } finally {
    release();
  }
}

function readConfig(path: string): IngestConfig {
  const given = readJson("--config", path);
  const isObject = (value: unknown): value is object =>
    typeof value === "object" && value !== null && !Array.isArray(value);
  if (!isObject(given)) throw new UsageError(`--config: ${path} must be an object`);
  refuseUnknown("config", given, ["kafka", "ingest"]);
  const { kafka, ingest }: { kafka?: unknown; ingest?: unknown } = given;
  if (isObject(kafka) && isObject(ingest)) {
    return { kafka: kafka as KafkaOptions, ingest };
  }
  throw new UsageError(`--config: ${path} must have "kafka" and "ingest", with their options`);
}

async function serveMetrics(
  metrics: Place | undefined,
  mill: Tidemill,
  ingest: KafkaIngest,
): Promise<AsyncDisposable | undefined> {
  if (metrics === undefined || metrics === false) return undefined;
  const fetch = createMetricsPage([mill.taskMetrics, ingest.metrics]);
  const { host = "127.0.0.1", port = METRICS_PORT } = metrics;
  const listener = new HttpListener({ host, port }, { name: "metrics", fetch });
  await listener.listen();
  return new Supervisor([listener]);
}
