import { setTimeout as delay } from "node:timers/promises";
import type { Ended, Token } from "../src/checker/history.ts";
import {
  connectWorker,
  LeaseLostError,
  nack,
  type Outcome,
  type Task,
  type TaskAck,
  type TaskContext,
} from "../src/client/index.ts";
import { Random } from "../test/support/random.ts";
import { endUnbegun, stopWhenTold } from "./ending.ts";
import { HistoryWriter } from "./history.ts";
import { logTo } from "./log.ts";
import type { ProcessSpec } from "./processes.ts";
import { CLIENT, remote, remoteLimited, remoteLines, WORKER_TOKEN, type Work } from "./scene.ts";

/** A worker without a database, as a process of its own. */
const spec = JSON.parse(process.argv[2] ?? "{}") as ProcessSpec;
const { folder, name, seed, servers = [] } = spec;
using history = new HistoryWriter(folder, name);
const random = new Random(seed);
/** By which claim each was given to us: an answer names the task alone. */
const tokens = new WeakMap<Task, Token>();

async function handle(task: Task<Work>, { token }: TaskContext): Promise<Outcome | undefined> {
  const claim = { id: token.taskId, generation: token.generation, claimId: token.claimId };
  tokens.set(task, claim);
  history.add({ op: "start", queue: task.queue, task: claim });
  await delay(random.below(20));
  return task.attempt === 1 && random.chance(0.01) ? nack(0, "not yet") : undefined;
}

/** What a server says of an end is its promise, as that of a COMMIT is. */
function onAck({ task, act, state, error }: TaskAck): void {
  const claim = tokens.get(task);
  if (claim === undefined || act !== "complete") return;
  history.add({ op: "end", task: claim, how: howOf(state, error) });
}

function howOf(state: TaskAck["state"], error: Error | undefined): Ended["how"] {
  if (state === "completed") return "committed";
  return error instanceof LeaseLostError ? "refused" : "unknown";
}

const worker = await connectWorker({
  ...CLIENT,
  url: servers,
  token: WORKER_TOKEN,
  handlers: [remote, remoteLines, remoteLimited].map((one) => one.handle(handle)),
  concurrency: 16,
  batchSize: 4,
  drainSeconds: 2,
  logger: logTo(process.stderr),
  onAck,
}).catch(endUnbegun);
const exitCode = stopWhenTold(worker);
process.send?.({ worker: null });
await worker.finished;
process.exitCode = await exitCode();
process.disconnect?.();
