import { setTimeout as delay } from "node:timers/promises";
import { connectProducer, type Queue, type RemoteNewTask } from "../src/client/index.ts";
import { endUnbegun } from "./ending.ts";
import { HistoryWriter } from "./history.ts";
import { logTo } from "./log.ts";
import type { ProcessSpec } from "./processes.ts";
import { CLIENT, PRODUCER_TOKEN, remote, remoteLimited, remoteLines, type Work } from "./scene.ts";

/** The load of those who have no database: what an answer is lost of goes again, by itself. */
const spec = JSON.parse(process.argv[2] ?? "{}") as ProcessSpec;
const { folder, name: proc, servers = [] } = spec;
using history = new HistoryWriter(folder, proc);
const stopping = new AbortController();
const producer = await connectProducer({
  ...CLIENT,
  url: servers,
  token: PRODUCER_TOKEN,
  batchTasks: 16, // Several creates are on their way when a server goes.
  withinSeconds: 60,
  logger: logTo(process.stderr),
}).catch(endUnbegun);

let count = 0;
const nameOf = (what: string): string => {
  count += 1;
  return `${proc}:${what}:${count}`;
};

async function every(perSecond: number, call: () => Promise<void>): Promise<void> {
  while (!stopping.signal.aborted) {
    await call();
    await delay(1_000 / perSecond, undefined, stopping).catch(() => {});
  }
}

type Named = RemoteNewTask<Work> & { readonly payload: Work };

/** Each for itself: what one is told says nothing of the others. */
async function enqueueEach(queue: Queue<Work>, tasks: readonly Named[]): Promise<void> {
  const about = { op: "enqueue", queue: queue.name } as const;
  const results = await producer.enqueueEach(queue, tasks).catch(() => []);
  for (const [place, { payload }] of tasks.entries()) {
    const id = results[place]?.id;
    const names = [payload.name];
    if (id === undefined) history.add({ ...about, phase: "unknown", names });
    else history.add({ ...about, phase: "ok", names, ids: [id] });
  }
}

const KEYS = 40;
let keyEpoch = 0;
/** All of them or none, one of each key. */
async function enqueueKeyed(): Promise<void> {
  const tasks = Array.from({ length: KEYS }, (_, n) => ({
    payload: { name: nameOf(remoteLines.name) },
    partitionKey: `${proc}:${keyEpoch}:${n}`,
  }));
  const names = tasks.map(({ payload }) => payload.name);
  const keys = tasks.map(({ partitionKey }) => partitionKey);
  const about = { op: "enqueue", queue: remoteLines.name, names, keys } as const;
  try {
    const stored = await producer.enqueueMany(remoteLines, tasks);
    history.add({ ...about, phase: "ok", ids: stored.map(({ id }) => id) });
  } catch {
    // A task whose fate is unknown may yet appear: its key is used no more.
    keyEpoch += 1;
    history.add({ ...about, phase: "unknown" });
  }
}

const some = (queue: Queue<Work>, size: number): Named[] =>
  Array.from({ length: size }, () => ({ payload: { name: nameOf(queue.name) } }));

process.once("SIGTERM", () => stopping.abort());
process.send?.({ worker: null });
await Promise.all([
  every(5, () => enqueueEach(remote, some(remote, 40))),
  every(20, () => enqueueEach(remote, some(remote, 1))),
  every(20, () => enqueueEach(remote, some(remote, 1))),
  every(4, () => enqueueEach(remoteLimited, some(remoteLimited, 10))),
  every(3, enqueueKeyed),
]);
await producer.close();
process.disconnect?.();
