import { setTimeout as delay } from "node:timers/promises";
import pg from "pg";
import type { Phase } from "../src/checker/history.ts";
import { type NewTask, type Queue, Tidemill } from "../src/index.ts";
import { Random } from "../test/support/random.ts";
import { endUnbegun } from "./ending.ts";
import { HistoryWriter } from "./history.ts";
import type { ProcessSpec } from "./processes.ts";
import { flaky, type Happening, limited, lines, orders, plain, type Work } from "./scene.ts";

/** The load as a process of its own. */
const { url, folder, name: proc, seed } = JSON.parse(process.argv[2] ?? "{}") as ProcessSpec;
using history = new HistoryWriter(folder, proc);
const random = new Random(seed);
const pool = new pg.Pool({
  connectionString: url,
  max: 6,
  connectionTimeoutMillis: 2_000,
  query_timeout: 4_000,
});
pool.on("error", () => {});
pool.on("connect", (client) => client.on("error", () => {})); // The next query on it says why.
const mill = await Tidemill.connect(url).catch(endUnbegun);
const stopping = new AbortController();
let count = 0;
const nameOf = (what: string): string => {
  count += 1;
  return `${proc}:${what}:${count}`;
};

const PENDING_MAX = 3_000;
const BEHIND_MAX = 10_000;
const LOOK_MS = 250;
const FULL = "SELECT queue FROM tidemill.live_tasks GROUP BY queue HAVING count(*) > $1";
const BEHIND = `
  SELECT FROM tidemill.consumer_checkpoints
  HAVING min(last_position) < (SELECT max(global_position) FROM tidemill.events) - $1`;
/** Queues of which enough is there. */
let full: ReadonlySet<string> = new Set();
/** Whether a consumer has enough to do. */
let isBehind = false;
/** Faults cost time: the load waits for the workers, so that the end of a run is near. */
async function watchBacklog(): Promise<void> {
  while (!stopping.signal.aborted) {
    const queues = await pool.query<{ queue: string }>(FULL, [PENDING_MAX]).catch(() => undefined);
    full = new Set(queues?.rows.map((row) => row.queue));
    const behind = await pool.query(BEHIND, [BEHIND_MAX]).catch(() => undefined);
    isBehind = behind?.rowCount === 1;
    await delay(LOOK_MS);
  }
}

/** Calls again and again, so often per second, until the process is told to stop. */
async function every(perSecond: number, call: () => Promise<void>): Promise<void> {
  const everyMs = 1_000 / perSecond;
  let dueMs = performance.now();
  while (!stopping.signal.aborted) {
    dueMs = Math.max(dueMs + everyMs, performance.now() - 10 * everyMs);
    await call();
    const waitMs = dueMs - performance.now();
    if (waitMs > 0) await delay(waitMs, undefined, stopping).catch(() => {});
  }
}

async function enqueue(queue: Queue<Work>, tasks: readonly NewTask<Work>[]): Promise<Phase> {
  const names = tasks.map((task) => (task.payload as Work).name);
  const keys = tasks.flatMap((task) => task.partitionKey ?? []);
  const about = {
    op: "enqueue",
    queue: queue.name,
    names,
    ...(keys.length > 0 ? { keys } : {}),
  } as const;
  try {
    const handles = await mill.enqueueMany(queue, tasks);
    history.add({ ...about, phase: "ok", ids: handles.map((handle) => handle.id) });
    return "ok";
  } catch {
    history.add({ ...about, phase: "unknown" });
    return "unknown";
  }
}

/** As long as the workers keep up with the queue: a slow one must not keep work from the others. */
const unlessFull =
  (queue: Queue<Work>, call: () => Promise<unknown>) => async (): Promise<void> => {
    if (full.has(queue.name)) await delay(LOOK_MS);
    else await call();
  };

const many = (what: string, size: number): NewTask<Work>[] =>
  Array.from({ length: size }, () => ({ payload: { name: nameOf(what) } }));

const KEYS = 100;
let keyEpoch = 0;
/** So many of each key. */
async function enqueueKeyed(
  queue: Queue<Work>,
  each: number,
  make: (name: string) => Work,
): Promise<void> {
  const tasks = Array.from({ length: KEYS * each }, (_, n) => ({
    payload: make(nameOf(queue.name)),
    partitionKey: `${proc}:${keyEpoch}:${n % KEYS}`,
  }));
  // A task whose fate is unknown may yet appear: its key is used no more.
  if ((await enqueue(queue, tasks)) !== "ok") keyEpoch += 1;
}

const enqueueOrders = (): Promise<void> => enqueueKeyed(orders, 1, (name) => ({ name }));
const enqueueLines = (): Promise<void> =>
  enqueueKeyed(lines, 3, (name) => (random.chance(0.001) ? { name, act: "throw" } : { name }));

const ACTS = ["throw", "throw", "throw", "throw", "throw", "hang", "hang", "hog", "exit"] as const;
async function enqueueFlaky(): Promise<void> {
  const act = random.chance(0.02) ? random.pick(ACTS) : undefined;
  const payload = { name: nameOf("flaky"), ...(act === undefined ? {} : { act }) };
  await enqueue(flaky, [{ payload, timeoutSeconds: 5 }]);
}

/** Asks again with the same key until it is told: there must be one task all the same. */
async function enqueueOnce(): Promise<void> {
  const name = nameOf("once");
  while (!stopping.signal.aborted) {
    try {
      const handle = await mill.enqueue(plain, { name }, { idempotencyKey: name });
      history.add({
        op: "enqueue",
        queue: plain.name,
        names: [name],
        phase: "ok",
        ids: [handle.id],
      });
      return;
    } catch {
      await delay(100);
    }
  }
  history.add({ op: "enqueue", queue: plain.name, names: [name], phase: "unknown" });
}

const STREAMS = 50;
const someHappenings = (count: number): Happening[] =>
  Array.from({ length: count }, () => ({ name: nameOf("event") }));

/** Some take their time, some roll back. */
async function appendSome(): Promise<void> {
  const happenings = someHappenings(random.below(4) + 1);
  await append(`${proc}:${random.below(STREAMS)}`, happenings, !random.chance(0.1));
}

const BATCH_STREAMS = 500;
const BATCH_EVENTS = 100;
/** Most of the volume, to streams of its own. */
async function appendBatch(): Promise<void> {
  if (isBehind) return;
  const happenings = someHappenings(BATCH_EVENTS);
  await append(`${proc}:batch:${random.below(BATCH_STREAMS)}`, happenings, !random.chance(0.02));
}

const HARMS = ["throw", "throw", "throw", "hang", "exit"] as const;
/** A stream of its own, with events behind the one that does harm. */
async function appendHarm(): Promise<void> {
  const first = { name: nameOf("harm"), harm: random.pick(HARMS) };
  const stream = first.name;
  await append(stream, [first, { name: nameOf("behind") }], true);
  await append(stream, [{ name: nameOf("behind") }], true);
}

/** A transaction of its own. */
async function append(
  id: string,
  happenings: readonly Happening[],
  isWanted: boolean,
): Promise<void> {
  const names = happenings.map(({ name }) => name);
  const client = await pool.connect().catch(() => undefined);
  if (client === undefined) {
    history.add({ op: "append", phase: "fail", names });
    return;
  }
  let isSent = false;
  try {
    await client.query("BEGIN");
    const events = happenings.map((data) => ({ type: "Happened", data }));
    const { positions } = await mill.append({ type: "Chaos", id }, events, { tx: client });
    if (random.chance(0.02)) await delay(random.below(300));
    isSent = isWanted;
    await client.query(isWanted ? "COMMIT" : "ROLLBACK");
    client.release();
    const phase = isWanted ? "ok" : "fail";
    history.add({
      op: "append",
      phase,
      names,
      ...(isWanted ? { positions: positions.map(String) } : {}),
    });
  } catch {
    client.release(true);
    history.add({ op: "append", phase: isSent ? "unknown" : "fail", names });
  }
}

process.once("SIGTERM", () => stopping.abort());
process.send?.({ worker: null });
await Promise.all([
  watchBacklog(),
  // Large enough for packs, and at once, so that workers are fast enough to take them whole.
  every(
    8,
    unlessFull(plain, () => enqueue(plain, many("plain", 300))),
  ),
  every(3, unlessFull(orders, enqueueOrders)),
  every(3, unlessFull(lines, enqueueLines)),
  every(
    5,
    unlessFull(limited, () => enqueue(limited, many("limited", 20))),
  ),
  every(10, unlessFull(flaky, enqueueFlaky)),
  every(10, unlessFull(plain, enqueueOnce)),
  every(40, appendSome),
  every(40, appendSome),
  every(10, appendBatch),
  every(10, appendBatch),
  every(0.2, appendHarm),
]);
await pool.end();
await mill.close();
process.disconnect?.();
