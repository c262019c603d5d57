import { setTimeout as delay } from "node:timers/promises";
import { connectWorker } from "../../src/client/index.ts";
import { consumer, queue, runUntilSignal, type Stoppable, Tidemill } from "../../src/index.ts";

/** A worker as a program of its own, which exits with what `runUntilSignal` says. */
export interface StoppingSpec {
  readonly kind: "library" | "client" | "http-jobs";
  /** Of the database, or of the server's workers. */
  readonly url: string;
  readonly token?: string;
  readonly drainSeconds: number;
  /** How long a handler takes; never when it is not given. */
  readonly handlerMs?: number;
  readonly ports?: readonly number[];
  readonly leaseSeconds?: number;
  /** Calls of one host at once, of `http-jobs`. */
  readonly hostConcurrency?: number;
}

const say = (event: string): void => void process.stdout.write(`${event}\n`);
const spec = JSON.parse(process.argv[2] ?? "{}") as StoppingSpec;

const handler = queue("work").handle(async () => {
  say("running");
  if (spec.handlerMs === undefined) await new Promise(() => setInterval(() => {}, 1_000));
  await delay(spec.handlerMs);
  say("returned");
});

const BRISK = {
  heartbeatInterval: 200,
  heartbeatTimeout: 2_000,
  rebalanceInterval: 200,
  dispatcherStrategy: "notify",
} as const;

async function start(): Promise<Stoppable> {
  const { kind, url, token = "", drainSeconds, ports = [], leaseSeconds = 30 } = spec;
  if (kind === "client") {
    return await connectWorker({ url, token, handlers: [handler], drainSeconds });
  }
  const mill = await Tidemill.connect(url);
  const common = { ...BRISK, drainTimeout: drainSeconds * 1_000, leaseSeconds };
  if (kind === "library") {
    const idle = consumer("idle", { handle: () => Promise.resolve() });
    return await mill.startWorker({ ...common, handlers: [handler], consumers: [idle] });
  }
  const egress = {
    allowHttp: true,
    ports,
    allowHosts: ["hooks.test"],
    resolve: () => Promise.resolve(["127.0.0.1"]),
  };
  const { hostConcurrency = 8 } = spec;
  return await mill.startWorker({ ...common, httpJobs: { egress, hostConcurrency } });
}

const ended = runUntilSignal(await start());
say("started"); // From now on a signal is heard.
process.exit(await ended);
