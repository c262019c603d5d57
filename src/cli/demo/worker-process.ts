import type { Logger } from "../../base/log.ts";
import type { ConnectOptions } from "../../worker/connect.ts";
import { Tidemill } from "../../worker/tidemill.ts";
import { UsageError } from "../errors.ts";
import type { DemoNames } from "../sql/demo.ts";
import { demoConsumers } from "./consumers.ts";
import { demoHandlers, type Refused } from "./handlers.ts";
import { CLUSTER, LEASE_SECONDS } from "./shop.ts";

/** What a worker process is told when it has started. Not by its arguments: it has a password. */
export interface WorkerOrder {
  readonly url: string;
  readonly connect: ConnectOptions;
  readonly names: DemoNames;
}

/** What it says. */
export type WorkerWord =
  | { readonly kind: "begun"; readonly workerId: string }
  | { readonly kind: "letter" }
  | { readonly kind: "refused"; readonly refused: Refused }
  | { readonly kind: "notice"; readonly text: string }
  | { readonly kind: "ended"; readonly givenBack: number };

export const DRAIN_MS = 4_000;
/** Small: many of these share one server. */
const CONNECTIONS = { poolSize: 4, batchConnections: 3 };
const CONCURRENCY = 16;

/**
 * A worker of the demo, as the only thing in its process: so that it can be killed and paused as
 * workers are in earnest. It ends at SIGTERM, and when the process that started it is gone.
 */
export async function runWorkerProcess(): Promise<void> {
  if (process.send === undefined) {
    throw new UsageError('this command is for "tidemill dev", which starts it');
  }
  // Ctrl-C reaches all processes of a terminal: in which order they end is decided by the first.
  process.on("SIGINT", () => {});
  process.once("disconnect", () => process.exit(1));
  const stop = new AbortController();
  process.once("SIGTERM", () => stop.abort());
  const { url, connect, names } = await nextOrder();
  const logger = noticing();
  const { poolSize, batchConnections } = CONNECTIONS;
  await using mill = await Tidemill.connect(url, { ...connect, logger, poolSize });
  const onLetter = (): void => tell({ kind: "letter" });
  const onRefused = (refused: Refused): void => tell({ kind: "refused", refused });
  const worker = mill.worker({
    ...CLUSTER,
    leaseSeconds: LEASE_SECONDS,
    drainTimeout: DRAIN_MS,
    batchConnections,
    concurrency: CONCURRENCY,
    consumers: demoConsumers(names),
    handlers: demoHandlers({ mill, names, onLetter, onRefused }),
  });
  await worker.begin();
  tell({ kind: "begun", workerId: worker.id });
  const asked = new Promise<void>((resolve) => {
    stop.signal.addEventListener("abort", () => resolve(), { once: true });
    if (stop.signal.aborted) resolve();
  });
  await Promise.race([asked, worker.finished]);
  const { givenBack } = await worker.stop();
  tell({ kind: "ended", givenBack });
  process.removeAllListeners("disconnect");
  process.disconnect();
}

function nextOrder(): Promise<WorkerOrder> {
  return new Promise((resolve) => {
    process.once("message", (order) => resolve(order as WorkerOrder));
  });
}

function tell(word: WorkerWord): void {
  if (process.connected) process.send?.(word);
}

/** The library's warnings, where the person looks. */
function noticing(): Logger {
  const ignore = (): void => {};
  const say = (fields: object, message: string): void => {
    const error: unknown = Reflect.get(fields, "error");
    const text = typeof error === "string" ? `${message}: ${error}` : message;
    tell({ kind: "notice", text });
  };
  return { debug: ignore, info: ignore, warn: say, error: say };
}
