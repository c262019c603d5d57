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
const BURSTS_PER_SECOND = 2;

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
let running: Promise<void> = Promise.resolve();

/** So many a second, in bursts, each waited for. */
async function run(): Promise<void> {
  startedAt = performance.now();
  while (!stopping.signal.aborted) {
    // Up to the next burst, or the last one of a short window would be missing.
    const seconds = (performance.now() - startedAt) / 1000 + 1 / BURSTS_PER_SECOND;
    const due = seconds * (changesPerSecond / CHANGES);
    const count = Math.max(0, Math.floor(due) - tasks);
    const handles = await Promise.all(
      Array.from({ length: count }, (_, n) => mill.enqueue(watched, n)),
    );
    tasks += count;
    await Promise.all(handles.map((handle) => handle.result()));
    await pause(1000 / BURSTS_PER_SECOND);
  }
}

await listen(async (line) => {
  if (line === "begin") {
    stopping = new AbortController();
    running = run();
    return {};
  }
  stopping.abort();
  await running;
  return { changes: tasks * CHANGES, seconds: (performance.now() - startedAt) / 1000 };
});
await server.stop();
await mill.close();
process.exit(0);
