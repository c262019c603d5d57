import { readSync } from "node:fs";
import { createInterface } from "node:readline";
import { setTimeout as delay } from "node:timers/promises";
import pg from "pg";
import {
  completed,
  type Outcome,
  type QueueOptions,
  queue,
  type Task,
  type TaskContext,
  Tidemill,
  type WorkerOptions,
} from "../../src/index.ts";

/** Workers of one queue as a program of its own: says in JSON lines what becomes of them. */
export interface TaskProcessSpec {
  readonly url: string;
  readonly queue: string;
  readonly queueOptions: QueueOptions;
  readonly options: Omit<WorkerOptions, "consumers" | "handlers" | "logger">;
  /** Workers in this process. */
  readonly workers: number;
  /** Whether tasks that wait for the gate find it open. A line on standard input opens it. */
  readonly isOpen: boolean;
}

/** What a handler of these processes is told to do, after it wrote down that it started. */
export interface TaskOrder {
  readonly n?: number;
  readonly act: "work" | "wait" | "block" | "complete-in-transaction" | "exit" | "kill";
  /** How long the work takes. */
  readonly ms?: number;
}

/** Where a handler that blocks its process reads that it may go on. */
const RELEASE = 3;

const say = (line: object): void => {
  process.stdout.write(`${JSON.stringify(line)}\n`);
};

const spec = JSON.parse(process.argv[2] ?? "{}") as TaskProcessSpec;
const pool = new pg.Pool({ connectionString: spec.url, max: 4 });
pool.on("error", () => {});

let openGate: () => void = () => {};
const gate = new Promise<void>((resolve) => {
  openGate = resolve;
});
if (spec.isOpen) openGate();
const commands = createInterface({ input: process.stdin });
commands.on("line", () => openGate());

async function recordStart(task: Task<TaskOrder>, context: TaskContext): Promise<string> {
  const { generation, claimId } = context.token;
  const { rows } = await pool.query<{ id: string }>(
    `INSERT INTO runs (task_id, n, key, generation, claim_id, worker, attempt)
     VALUES ($1, $2, $3, $4, $5, $6, $7) RETURNING id`,
    [
      task.id,
      task.payload.n ?? null,
      task.partitionKey ?? null,
      generation,
      claimId,
      context.workerId,
      task.attempt,
    ],
  );
  return rows[0]?.id ?? "";
}

const recordEnd = async (run: string): Promise<void> => {
  await pool.query("UPDATE runs SET ended = clock_timestamp() WHERE id = $1", [run]);
};

function tellOfAbort(task: Task, context: TaskContext): void {
  const { signal, token } = context;
  signal.addEventListener("abort", () => {
    const { name } = signal.reason as Error;
    say({ event: "aborted", task: task.id, generation: token.generation, name });
  });
}

async function completeInTransaction(context: TaskContext): Promise<void> {
  const client = await pool.connect();
  try {
    await client.query("BEGIN");
    await client.query("INSERT INTO effects (task_id, generation, worker) VALUES ($1, $2, $3)", [
      context.token.taskId,
      context.token.generation,
      context.workerId,
    ]);
    await context.complete(client, { by: context.workerId });
    await client.query("COMMIT");
    say({ event: "committed", generation: context.token.generation });
  } catch (error) {
    await client.query("ROLLBACK");
    say({ event: "refused", name: (error as Error).name, generation: context.token.generation });
    throw error;
  } finally {
    client.release();
  }
}

async function handle(task: Task<TaskOrder>, context: TaskContext): Promise<Outcome | undefined> {
  const { act, ms } = task.payload;
  const run = await recordStart(task, context);
  if (act === "exit") process.exit(1);
  if (act === "kill") process.kill(process.pid, "SIGKILL");
  if (act === "block") {
    say({ event: "blocked", task: task.id, ...context.token });
    readSync(RELEASE, Buffer.alloc(1)); // Nothing else of this process runs, no timer, no renewal.
    return completed({ by: context.workerId });
  }
  if (ms !== undefined) await delay(ms);
  if (act === "wait" || act === "complete-in-transaction") {
    tellOfAbort(task, context);
    say({ event: "waiting", task: task.id, ...context.token });
    await gate;
  }
  if (act === "complete-in-transaction") {
    await completeInTransaction(context);
    return undefined;
  }
  await recordEnd(run);
  if (act === "wait") say({ event: "returned", task: task.id });
  return completed({ by: context.workerId });
}

const mill = await Tidemill.connect(spec.url);
const handler = queue<TaskOrder>(spec.queue, spec.queueOptions).handle(handle);
const workers = Array.from({ length: spec.workers }, () =>
  mill.worker({ ...spec.options, handlers: [handler] }),
);
process.once("SIGTERM", () => {
  say({ event: "stopping" });
  for (const worker of workers) void worker.stop();
});
const running = workers.map((worker) => worker.start());
say({ event: "starting", ids: workers.map((worker) => worker.id) });
const ended = await Promise.allSettled(running);
for (const one of ended) {
  if (one.status === "fulfilled") continue;
  const { name, message } = one.reason as Error;
  say({ event: "failed", name, message });
  process.exitCode = 1;
}
say({ event: "stopped" });
commands.close();
await pool.end();
await mill.close();
const left = process.getActiveResourcesInfo();
say({ event: "left", timers: left.filter((one) => one === "Timeout").length });
