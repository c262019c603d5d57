import { describe, expect, it } from "vitest";
import { type Clock, systemClock } from "../../../src/base/clock.ts";
import { TimeoutError, UnavailableError } from "../../../src/base/errors.ts";
import { silentLogger } from "../../../src/base/log.ts";
import { Supervisor } from "../../../src/base/supervisor.ts";
import { Database } from "../../../src/db/database.ts";
import { Listener } from "../../../src/db/listener.ts";
import { resolveNames } from "../../../src/db/names.ts";
import { Notifier } from "../../../src/db/notifier.ts";
import { checkAlive, readServerFacts } from "../../../src/db/sql/session.ts";
import { completed, LeaseLostError, queue, Tidemill } from "../../../src/index.ts";
import { onCleanup, type TestDatabase, testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { recordingLogger } from "../../support/handled.ts";
import { type SilentProxy, startSilentProxy } from "../../support/silent-proxy.ts";
import { QUICK } from "../../support/task-processes.ts";
import { eventuallyDone, readHistory, startLeader } from "../../support/task-runs.ts";
import { aborted, gate, readColumn, readStored } from "../tasks/scene.ts";

/*
 * Connections that are open and carry nothing, as a cable that was pulled leaves them. Nobody tells
 * of it: only a deadline does.
 */

const orders = queue<number>("orders");
const TIMEOUT_MS = 1_000;

interface Scene {
  readonly database: TestDatabase;
  readonly proxy: SilentProxy;
}

async function newScene(): Promise<Scene> {
  const database = await testDatabase();
  return { database, proxy: await startSilentProxy(database.url) };
}

function openDatabase({ proxy }: Scene, poolSize = 1): Database {
  const db = new Database({
    url: proxy.url,
    names: resolveNames(),
    logger: silentLogger,
    poolSize,
    applicationName: "half-open",
    preparedStatements: true,
    queryTimeoutMs: TIMEOUT_MS,
    connectTimeoutMs: 2_000,
  });
  onCleanup(() => db.close());
  return db;
}

const pidOf = async (db: Database): Promise<number> => (await readServerFacts(db)).pid;

/** How long it took to fail, and with what. */
async function failure(work: Promise<unknown>): Promise<{ error: unknown; ms: number }> {
  const startedMs = performance.now();
  const error = await work.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  return { error, ms: performance.now() - startedMs };
}

describe("a pool whose connections fell silent", () => {
  it("ends a query at its deadline, and hands that connection to nobody", async () => {
    const scene = await newScene();
    const db = openDatabase(scene);
    const before = await pidOf(db);
    scene.proxy.swallow();
    const query = await failure(checkAlive(db));
    expect(query.error).toBeInstanceOf(TimeoutError);
    expect(query.ms).toBeLessThan(TIMEOUT_MS + 2_000);
    const connect = await failure(checkAlive(db)); // There is none left, and no new one either.
    expect(connect.error).toBeInstanceOf(UnavailableError);
    expect(connect.ms).toBeLessThan(2_000 + 2_000);
    scene.proxy.mend();
    expect(await pidOf(db)).not.toBe(before);
  });

  it("gives another connection to those who waited for the silent one", async () => {
    const scene = await newScene();
    const db = openDatabase(scene);
    const before = await pidOf(db);
    scene.proxy.swallow();
    const first = failure(db.transaction((tx) => checkAlive(tx)));
    const second = pidOf(db);
    scene.proxy.mend();
    expect((await first).error).toBeInstanceOf(TimeoutError);
    expect(await second).not.toBe(before);
  });

  it("hands a connection to nobody on which only the notification was not answered", async () => {
    const scene = await newScene();
    const db = openDatabase(scene);
    const notifier = new Notifier(db, "half_open", silentLogger);
    const before = await pidOf(db);
    const silent = gate();
    const written = db.withConnection(async (connection) => {
      scene.proxy.swallow();
      silent.open();
      return await notifier.announce(connection, () => Promise.resolve("written"));
    });
    const waiting = pidOf(db);
    await silent.opened;
    scene.proxy.mend();
    expect(await written).toBe("written");
    expect(await waiting).not.toBe(before);
  });
});

it("a connection that fell silent is closed without the server's goodbye", async () => {
  const scene = await newScene();
  const connection = await openDatabase(scene).connect("loop");
  await checkAlive(connection);
  scene.proxy.swallow();
  const startedMs = performance.now();
  await connection.close();
  expect(performance.now() - startedMs).toBeLessThan(3_000);
  expect(connection.isDestroyed).toBe(true);
});

async function connectThrough({ url }: SilentProxy): Promise<Tidemill> {
  const mill = await Tidemill.connect(url, { queryTimeout: 1.5 * TIMEOUT_MS });
  onCleanup(() => mill.close());
  return mill;
}

describe("a worker whose connections fell silent", () => {
  // A leader by advisory lock would wait five seconds for each answer.
  const BRIEF = { ...QUICK, leaderStrategy: "lease" } as const;
  const PATIENT = { ...BRIEF, heartbeatTimeout: 6_000 }; // Nobody takes it for dead.

  it("tells its handler before the lease ends, and its late completion is refused", async () => {
    const { database, proxy } = await newScene();
    await startLeader(database);
    const direct = await database.connect();
    const { id } = await direct.enqueue(orders, 1);
    const [started, succeeded] = [gate(), gate()];
    const facts: { reason?: unknown; leftMs?: number; late?: unknown } = {};
    const handler = orders.handle(async (_, context) => {
      started.open();
      facts.reason = await aborted(context.signal);
      const toldAtMs = performance.now();
      const [leftMs = -Infinity] = await readColumn<number>(
        database,
        `SELECT date_part('epoch', lease_until - clock_timestamp()) * 1000
           FROM tidemill.tasks WHERE claim_id = $1`,
        [context.token.claimId],
      );
      facts.leftMs = leftMs + performance.now() - toldAtMs; // Asking took a while.
      await succeeded.opened;
      facts.late = (await failure(direct.transaction((tx) => context.complete(tx)))).error;
    });
    const mill = await connectThrough(proxy);
    await mill.startWorker({ ...PATIENT, leaseSeconds: 3, handlers: [handler] });
    await started.opened;
    proxy.swallow();
    await eventually(() => expect(facts.leftMs).toBeDefined());
    expect(facts.reason).toBeInstanceOf(LeaseLostError);
    expect(facts.leftMs).toBeGreaterThan(0);
    const heir = await direct.startWorker({
      ...PATIENT,
      handlers: [orders.handle(() => completed(2))],
    });
    await eventuallyDone(database, 1);
    proxy.mend();
    succeeded.open();
    await eventually(() => expect(facts.late).toBeInstanceOf(LeaseLostError));
    expect(await readHistory(database.pool, id)).toMatchObject([
      { generation: 2, worker: heir.id, result: "2" },
    ]);
  });

  it("beats and works again when the network is mended, without being started again", async () => {
    const { database, proxy } = await newScene();
    const direct = await database.connect();
    const mill = await connectThrough(proxy);
    const { logger, lines } = recordingLogger();
    const ran: number[] = [];
    const handlers = [orders.handle(({ payload }) => void ran.push(payload))];
    const options = { ...BRIEF, dispatcherStrategy: "poll", dispatcherInterval: 50 } as const;
    const worker = await mill.startWorker({ ...options, logger, handlers });
    const ended: unknown[] = [];
    worker.finished.catch((error: unknown) => ended.push(error));
    proxy.swallow();
    await eventually(() =>
      expect(lines.map(({ message }) => message)).toContain("heartbeat failed"),
    );
    proxy.mend();
    const [mendedAt] = await readColumn<Date>(database, "SELECT clock_timestamp()");
    await eventually(async () => {
      const isBeating = await readColumn<boolean>(
        database,
        "SELECT heartbeat_at > $2 FROM tidemill.worker_nodes WHERE worker_id = $1",
        [worker.id, mendedAt],
      );
      expect(isBeating).toEqual([true]);
    });
    await direct.enqueue(orders, 7);
    await eventually(() => expect(ran).toEqual([7]));
    expect(ended).toEqual([]);
  });

  it("stops, though on its old connections nobody hears the goodbye", async () => {
    const { proxy } = await newScene();
    const mill = await connectThrough(proxy);
    const worker = await mill.startWorker({ ...BRIEF, handlers: [orders.handle(() => {})] });
    await (await mill.enqueue(orders, 1)).result();
    proxy.swallow();
    proxy.mend();
    const startedMs = performance.now();
    await worker.stop();
    expect(performance.now() - startedMs).toBeLessThan(15_000);
  });

  it("finds a completion in history whose answer was swallowed, and counts it once", async () => {
    const { database, proxy } = await newScene();
    const mill = await connectThrough(proxy);
    const [started, done] = [gate(), gate()];
    const { completions, leaseLosses } = mill.taskMetrics;
    const labels = { queue: "orders" };
    const ran: number[] = [];
    const handler = orders.handle(async ({ payload }) => {
      ran.push(payload);
      if (payload === 1) return;
      started.open();
      await done.opened;
    });
    await mill.startWorker({ ...PATIENT, leaseSeconds: 60, handlers: [handler] });
    await mill.enqueue(orders, 1); // Opens the connection on which tasks are completed.
    await eventually(() => expect(completions.value(labels)).toBe(1));
    await mill.enqueue(orders, 2);
    await started.opened;
    proxy.swallow("answers");
    done.open();
    const ended = await eventually(async () => {
      const rows = await readHistory(database.pool);
      expect(rows).toHaveLength(2);
      return rows;
    });
    expect(completions.value(labels)).toBe(1); // It cannot know yet.
    proxy.mend();
    await eventually(() => expect(completions.value(labels)).toBe(2));
    expect(leaseLosses.value(labels)).toBe(0);
    expect(await readHistory(database.pool)).toEqual(ended);
    expect(await readStored(database)).toMatchObject({ tasks: 0, tally: 0 });
    expect(ran).toEqual([1, 2]);
  });
});

it("a listener notices the silence, and hears again when the network is mended", async () => {
  const scene = await newScene();
  const { database, proxy } = scene;
  const { logger, lines } = recordingLogger();
  const heard: string[] = [];
  // It looks every 15 seconds.
  const hasty: Clock = { ...systemClock, after: (ms, wake) => systemClock.after(ms / 100, wake) };
  const listener = new Listener(openDatabase(scene), {
    url: proxy.url,
    channels: new Map([["half_open", (payload: string) => void heard.push(payload)]]),
    clock: hasty,
    random: () => 1,
    logger,
  });
  const supervisor = new Supervisor([listener]);
  onCleanup(() => supervisor.stop());
  await eventually(() => expect(heard).toEqual([""])); // What may have come before it listened.
  proxy.swallow();
  await eventually(() =>
    expect(lines.map(({ message }) => message)).toContain("listener connection lost"),
  );
  proxy.mend();
  await eventually(() => expect(heard).toEqual(["", ""]));
  await database.pool.query("SELECT pg_notify('half_open', 'again')");
  await eventually(() => expect(heard).toEqual(["", "", "again"]));
});
