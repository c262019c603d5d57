import { setTimeout as delay } from "node:timers/promises";
import pg from "pg";
import type { Ended, Token } from "../src/checker/history.ts";
import { LeaseLostError, type Task, type TaskContext, Tidemill } from "../src/index.ts";
import { Begins } from "./begins.ts";
import { endRemoved, endUnbegun, stopWhenTold } from "./ending.ts";
import { HistoryWriter } from "./history.ts";
import { logTo } from "./log.ts";
import type { Blocking, ProcessSpec } from "./processes.ts";
import {
  BEHIND_POOLER,
  consumersOf,
  EAGER,
  flaky,
  limited,
  lines,
  orders,
  POISON_CODE,
  plain,
  ticks,
  WORKER,
  type Work,
} from "./scene.ts";

/** A worker as a process of its own. */
const spec = JSON.parse(process.argv[2] ?? "{}") as ProcessSpec;
const { url, folder, name, seed, isPooled, isEager = false } = spec;
using history = new HistoryWriter(folder, name);
const pool = new pg.Pool({
  connectionString: url,
  max: 8,
  connectionTimeoutMillis: 2_000,
  query_timeout: 4_000,
});
pool.on("error", () => {});
pool.on("connect", (client) => client.on("error", () => {})); // The next query on it says why.

const begins = new Begins(pool, history);

const tokenOf = ({ token }: TaskContext): Token => ({
  id: token.taskId,
  generation: token.generation,
  claimId: token.claimId,
});

function begin(task: Task, context: TaskContext): void {
  history.add({ op: "start", queue: task.queue, task: tokenOf(context) });
}

function end(context: TaskContext, how: Ended["how"]): void {
  history.add({ op: "end", task: tokenOf(context), how });
}

/** Writes the effect and completes the task in one transaction. */
async function completeWithEffect(task: Task<Work>, context: TaskContext): Promise<void> {
  const client = await pool.connect();
  let isSent = false;
  try {
    await client.query("BEGIN");
    const { token } = context;
    const { rows } = await client.query<{ now: string }>("SELECT clock_timestamp()::text AS now");
    const { taskId, generation, claimId } = token;
    await client.query(
      `INSERT INTO chaos.effects (task_id, name, key, generation, claim_id, started_at)
       VALUES ($1, $2, $3, $4, $5, $6)`,
      [taskId, task.payload.name, task.partitionKey, generation, claimId, rows[0]?.now],
    );
    await context.complete(client);
    isSent = true;
    await client.query("COMMIT");
    end(context, "committed");
    client.release();
  } catch (error) {
    client.release(true);
    end(context, error instanceof LeaseLostError ? "refused" : isSent ? "unknown" : "threw");
    throw error;
  }
}

const BLOCK_MS = 4_500; // Longer than a lease: nothing of this process runs, no renewal.

async function act(task: Task<Work>, context: TaskContext): Promise<void> {
  switch (task.payload.act) {
    case "throw":
      throw new Error("as told");
    case "exit":
      history.flush();
      process.exit(POISON_CODE);
    case "hang":
      await new Promise((_, reject) => {
        context.signal.addEventListener("abort", () => reject(context.signal.reason as Error));
      });
      break;
    case "hog": {
      process.send?.({ blocksMs: BLOCK_MS } satisfies Blocking);
      const until = performance.now() + BLOCK_MS;
      while (performance.now() < until);
      break;
    }
    default:
  }
}

const mill = await Tidemill.connect(url).catch(endUnbegun);
const worker = mill.worker({
  ...WORKER,
  ...(isPooled ? BEHIND_POOLER : {}),
  ...(isEager ? EAGER : {}),
  logger: logTo(process.stderr), // Goes to a file beside its history.
  consumers: consumersOf(seed),
  handlers: [
    plain.handle((_, context) => begins.add(plain.name, context)),
    lines.handle(async (task, context) => {
      begins.add(lines.name, context);
      if (task.payload.act !== undefined) await act(task, context);
    }),
    ticks.handle(() => undefined),
    limited.handle(async (_, context) => {
      begins.add(limited.name, context);
      await delay(3);
    }),
    flaky.handle(async (task, context) => {
      begin(task, context);
      await act(task, context);
      end(context, "returned");
    }),
    orders.handle(async (task, context) => {
      begin(task, context);
      await completeWithEffect(task, context);
    }),
  ],
});
const exitCode = stopWhenTold(worker);
process.send?.({ worker: worker.id });
await worker.begin().catch(endUnbegun);
await worker.finished.catch(endRemoved);
process.exitCode = await exitCode();
await begins.end();
await pool.end();
await mill.close();
process.disconnect?.();
