import { setTimeout as pause } from "node:timers/promises";
import { queue, Tidemill } from "tidemill";
import { TidemillServer } from "tidemill/server";
import { listen } from "../support/spoken.ts";
import { TOKEN, WATCHED } from "./token.ts";

interface Options {
  readonly url: string;
  readonly port: number;
  readonly changesPerSecond: number;
}

const { url, port, changesPerSecond } = JSON.parse(process.argv.at(-1) ?? "{}") as Options;
/** A task is told of when it waits, when it runs and when it has ended. */
const CHANGES = 3;
const BURSTS_PER_SECOND = 10;

const mill = await Tidemill.connect(url);
const watched = queue<number>(WATCHED);
const server = new TidemillServer(mill, {
  host: "127.0.0.1",
  producer: false,
  worker: false,
  http: { port },
  metrics: false,
  deliverWebhooks: false,
  drainSeconds: 1,
  auth: { staticTokens: [{ token: TOKEN, tenant: "default", scopes: ["read"] }] },
});
await server.start();
await mill.startWorker({ handlers: [watched.handle(() => {})], dispatcherStrategy: "notify" });

let stopping = new AbortController();
let tasks = 0;
let startedAt = 0;
let pacedSeconds = 0;
const ends: Promise<unknown>[] = [];
let running: Promise<void> = Promise.resolve();

/** So many a second, in bursts, whatever became of those before: a slow feed gets no respite. */
async function run(): Promise<void> {
  startedAt = performance.now();
  while (!stopping.signal.aborted) {
    // Up to the next burst, or the last one of a short window would be missing.
    const seconds = (performance.now() - startedAt) / 1000 + 1 / BURSTS_PER_SECOND;
    const due = seconds * (changesPerSecond / CHANGES);
    const count = Math.max(0, Math.floor(due) - tasks);
    tasks += count;
    for (let n = 0; n < count; n += 1) {
      ends.push(mill.enqueue(watched, n).then((handle) => handle.result()));
    }
    await pause(1000 / BURSTS_PER_SECOND);
  }
  pacedSeconds = (performance.now() - startedAt) / 1000;
  await Promise.all(ends.splice(0));
}

await listen(async (line) => {
  if (line === "begin") {
    stopping = new AbortController();
    running = run();
    return {};
  }
  stopping.abort();
  await running;
  const rssMiB = process.memoryUsage.rss() / 1024 / 1024;
  return { changes: tasks * CHANGES, pacedSeconds, rssMiB };
});
await server.stop();
await mill.close();
process.exit(0);
