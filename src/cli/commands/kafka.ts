import { once } from "node:events";
import { refuseUnknown } from "../../base/options.ts";
import { type Stoppable, stopSignal } from "../../base/stop-signal.ts";
import { Supervisor } from "../../base/supervisor.ts";
import { VERSION } from "../../base/version.ts";
import { connectKafka } from "../../kafka/connect.ts";
import type { KafkaOptions } from "../../kafka/connect-options.ts";
import type { KafkaClient } from "../../kafka/source.ts";
import { HttpListener } from "../../server/http/listener.ts";
import { createMetricsPage } from "../../server/http/metrics-page.ts";
import { Tidemill } from "../../worker/tidemill.ts";
import { UsageError } from "../errors.ts";
import { connectOptions, type GlobalFlags, requireDatabaseUrl } from "../options.ts";
import { readJson } from "../serve/files.ts";
import { serveLogger } from "../serve/log.ts";
import { Redactor } from "../serve/redactor.ts";
import type { LogLevel, Place } from "../serve/settings.ts";
import { runUntilStopped } from "../serve/until-stopped.ts";

export interface KafkaFlags extends GlobalFlags {
  readonly config: string;
  readonly metrics?: Place;
  readonly logLevel?: LogLevel;
}

/** An ingest, or a publisher. */
export interface KafkaProgram extends Stoppable, AsyncDisposable {
  readonly metrics: { text(): string };
  start(): Promise<void>;
}

export interface KafkaProgramParts {
  /** What its options are called in the configuration. */
  readonly part: string;
  /** How the log calls it. */
  readonly name: string;
  /** What the log says when it has begun. */
  readonly begun: string;
  readonly make: (mill: Tidemill, client: KafkaClient, options: object) => KafkaProgram;
}

/** For what looks at queues; what runs has connections of its own. */
const POOL_SIZE = 3;
const METRICS_PORT = 9_464;

/** Until a signal, then it drains; or until it cannot go on. A second signal ends it at once. */
export async function runKafka(flags: KafkaFlags, parts: KafkaProgramParts): Promise<void> {
  const url = requireDatabaseUrl(flags);
  const { kafka, options } = readConfig(flags.config, parts.part);
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
      await using running = parts.make(mill, client, options);
      await using _metrics = await serveMetrics(flags.metrics, mill, running);
      // Whoever asks for a stop does not wait for a broker that is not there yet.
      await Promise.race([running.start(), asked(signal)]);
      if (!signal.aborted) logger.info({ version: VERSION, brokers: kafka.brokers }, parts.begun);
      await runUntilStopped(running, { name: parts.name, logger, signal });
    } finally {
      await client.close();
    }
  } finally {
    release();
  }
  // A client may hold on to a broker that hangs, and so keep the process.
  process.exit();
}

async function asked(signal: AbortSignal): Promise<void> {
  if (!signal.aborted) await once(signal, "abort");
}

interface KafkaConfig {
  readonly kafka: KafkaOptions;
  readonly options: object;
}

function readConfig(path: string, part: string): KafkaConfig {
  const given = readJson("--config", path);
  const isObject = (value: unknown): value is object =>
    typeof value === "object" && value !== null && !Array.isArray(value);
  if (!isObject(given)) throw new UsageError(`--config: ${path} must be an object`);
  refuseUnknown("config", given, ["kafka", part]);
  const { kafka, [part]: options } = given as Readonly<Record<string, unknown>>;
  if (isObject(kafka) && isObject(options)) return { kafka: kafka as KafkaOptions, options };
  throw new UsageError(`--config: ${path} must have "kafka" and "${part}", with their options`);
}

async function serveMetrics(
  metrics: Place | undefined,
  mill: Tidemill,
  running: KafkaProgram,
): Promise<AsyncDisposable | undefined> {
  if (metrics === undefined || metrics === false) return undefined;
  const fetch = createMetricsPage([mill.taskMetrics, running.metrics]);
  const { host = "127.0.0.1", port = METRICS_PORT } = metrics;
  const listener = new HttpListener({ host, port }, { name: "metrics", fetch });
  await listener.listen();
  return new Supervisor([listener]);
}
