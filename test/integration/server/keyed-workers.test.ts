import { expect, it } from "vitest";
import { bucketOf } from "../../../src/cluster/ring.ts";
import { queue, type Tidemill } from "../../../src/index.ts";
import { onCleanup, type TestDatabase, testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { Diary, KeyedHand, type Start, type Step } from "./keyed-hands.ts";
import { ACME_WORKER, GLOBEX_WORKER, type Scene, scene } from "./scene.ts";

const mails = queue<Step>("mails", { backoff: { kind: "fixed", baseSeconds: 0.01 } });
/** Longer than it takes a server to notice, and far from the three seconds that mean something. */
const AWAY_MS = 500;
const KEYS = Array.from({ length: 12 }, (_, index) => `k${index}`);
const TOKENS: Readonly<Record<string, string>> = { acme: ACME_WORKER, globex: GLOBEX_WORKER };

const serve = (database: TestDatabase): Promise<Scene> =>
  scene({ database, server: { worker: { port: 0 }, graceSeconds: 0.1 } });

interface Pair {
  readonly database: TestDatabase;
  readonly mill: Tidemill;
  readonly diary: Diary;
  readonly servers: readonly [Scene, Scene];
  readonly hand: (
    server: 0 | 1,
    tenant: string,
    more?: { fails?: (start: Start) => boolean },
  ) => KeyedHand;
}

async function twoServers(): Promise<Pair> {
  const database = await testDatabase();
  const servers = [await serve(database), await serve(database)] as const;
  const diary = new Diary();
  const { mill } = servers[0];
  await mill.enqueue(mails, { key: "", n: 0 }, { runAt: "2999-01-01T00:00:00Z" }); // Defines it.
  return {
    database,
    mill,
    servers,
    diary,
    hand: (server, tenant, more = {}) =>
      new KeyedHand({
        ...more,
        url: `127.0.0.1:${servers[server].server.address("worker").port}`,
        token: TOKENS[tenant] ?? "",
        tenant,
        by: `server ${server}`,
        diary,
      }),
  };
}

/** So many steps of every key, from the given number on. */
function steps(tenant: string, from: number, count: number): object[] {
  return Array.from({ length: count }, (_, index) => index + from).flatMap((n) =>
    KEYS.map((key) => ({ tenant, partitionKey: key, payload: { key, n } })),
  );
}

async function enqueue(mill: Tidemill, tenant: string, from: number, count: number): Promise<void> {
  await mill.enqueueMany(mails, steps(tenant, from, count) as never);
}

const inOrder = (count: number): Record<string, number[]> =>
  Object.fromEntries(KEYS.map((key) => [key, Array.from({ length: count }, (_, n) => n)]));

async function completed(database: TestDatabase, tenant: string): Promise<number> {
  const { rows } = await database.pool.query<{ count: number }>(
    `SELECT count(*)::int AS count FROM tidemill.task_history
      WHERE tenant = $1 AND state = 'completed'`,
    [tenant],
  );
  return rows[0]?.count ?? 0;
}

const allCompleted = (database: TestDatabase, tenant: string, count: number): Promise<void> =>
  eventually(async () => expect(await completed(database, tenant)).toBe(count));

interface Owner {
  readonly worker_id: string;
  readonly epoch: string;
  readonly buckets: number;
}

async function ownersOf(database: TestDatabase, tenant: string): Promise<Owner[]> {
  const { rows } = await database.pool.query<Owner>(
    `SELECT owner.worker_id, owner.epoch, cardinality(owner.buckets) AS buckets
       FROM tidemill.bucket_owners AS owner
       JOIN tidemill.key_spaces AS space ON space.id = owner.key_space_id
      WHERE space.tenant = $1
      ORDER BY owner.worker_id`,
    [tenant],
  );
  return rows;
}

/** How many workers own all keys together: now and then one owns all twelve of them. */
async function ownersOfKeys(database: TestDatabase, tenant: string): Promise<number> {
  const { rows } = await database.pool.query<{ count: number }>(
    `SELECT count(*)::int AS count
       FROM tidemill.bucket_owners AS owner
       JOIN tidemill.key_spaces AS space ON space.id = owner.key_space_id
      WHERE space.tenant = $1 AND owner.buckets && $2::smallint[]`,
    [tenant, KEYS.map((key) => bucketOf(key))],
  );
  return rows[0]?.count ?? 0;
}

const shared = (database: TestDatabase, tenant: string, sizes: number[]): Promise<Owner[]> =>
  eventually(async () => {
    const owners = await ownersOf(database, tenant);
    expect(owners.map(({ buckets }) => buckets)).toEqual(sizes);
    return owners;
  });

it("hands out keyed tasks of each tenant in order, once each, at all its servers", async () => {
  const { database, mill, servers, diary, hand } = await twoServers();
  const fails = ({ n, attempt }: Start): boolean => n % 5 === 2 && attempt === 1;
  await enqueue(mill, "initech", 0, 1); // It has no worker.
  await enqueue(mill, "acme", 0, 8);
  await enqueue(mill, "globex", 0, 8);
  hand(0, "acme", { fails });
  hand(1, "acme", { fails });
  hand(1, "globex", { fails });
  const owners = await shared(database, "acme", [180, 180]);
  await enqueue(mill, "acme", 8, 8);
  for (const task of steps("globex", 8, 2)) {
    const { payload, ...options } = task as { payload: Step };
    await mill.enqueue(mails, payload, options);
  }
  await allCompleted(database, "acme", 16 * KEYS.length);
  await allCompleted(database, "globex", 10 * KEYS.length);
  expect(diary.faults).toEqual([]);
  expect(diary.orderOf("acme")).toEqual(inOrder(16));
  expect(diary.orderOf("globex")).toEqual(inOrder(10));
  expect(await ownersOf(database, "acme")).toEqual(owners); // Nobody left, so nothing moves.
  const late = diary.of("acme").filter(({ n }) => n >= 8);
  expect(new Set(late.map(({ by }) => by)).size).toBe(await ownersOfKeys(database, "acme"));
  expect(diary.of("initech")).toEqual([]);
  const [waiting] = await mill.tasks.list({ tenant: "initech" });
  expect(await mill.tasks.why(waiting?.id ?? "")).toBe(
    'no live worker handles queue "mails" for tenant "initech"; start one',
  );
  // What a server that goes has not finished is finished by the other, in order.
  await enqueue(mill, "acme", 16, 16);
  await servers[0].server.stop();
  await allCompleted(database, "acme", 32 * KEYS.length);
  expect(diary.faults).toEqual([]);
  expect(diary.orderOf("acme")).toEqual(inOrder(32));
});

it("moves the keys of a tenant whose worker left, and not of one that came back", async () => {
  const { database, mill, diary, hand } = await twoServers();
  for (const tenant of ["acme", "globex"]) await enqueue(mill, tenant, 0, 1);
  const [leaver, returner] = [hand(0, "acme"), hand(0, "globex")];
  hand(1, "acme");
  hand(1, "globex");
  await shared(database, "acme", [180, 180]);
  const before = await shared(database, "globex", [180, 180]);
  leaver.stream.close();
  returner.stream.close();
  const leftAtMs = performance.now();
  await eventually(() => expect(performance.now() - leftAtMs).toBeGreaterThan(AWAY_MS));
  hand(0, "globex");
  await enqueue(mill, "acme", 1, 2);
  await shared(database, "acme", [360]);
  expect(await ownersOf(database, "globex")).toEqual(before);
  await allCompleted(database, "acme", 3 * KEYS.length);
  await enqueue(mill, "globex", 1, 2);
  await allCompleted(database, "globex", 3 * KEYS.length);
  expect(diary.faults).toEqual([]);
  expect([diary.orderOf("acme"), diary.orderOf("globex")]).toEqual([inOrder(3), inOrder(3)]);
});

it("shares the keys of a tenant with a worker that runs tasks of all of them", async () => {
  const { database, mill, diary, hand } = await twoServers();
  await enqueue(mill, "acme", 0, 2);
  await enqueue(mill, "default", 0, 2);
  hand(0, "acme");
  await allCompleted(database, "acme", 2 * KEYS.length);
  expect(diary.of("default")).toEqual([]);
  const worker = await mill.startWorker({
    dispatcherStrategy: "notify",
    handlers: [
      mails.handle(({ payload, tenant, attempt }) => {
        const start = { ...payload, tenant, attempt, by: "process" };
        diary.start(start);
        diary.end(start);
      }),
    ],
  });
  onCleanup(() => worker.stop());
  await shared(database, "acme", [180, 180]);
  await shared(database, "default", [360]);
  await enqueue(mill, "acme", 2, 10);
  await enqueue(mill, "globex", 0, 2);
  await allCompleted(database, "acme", 12 * KEYS.length);
  await allCompleted(database, "globex", 2 * KEYS.length);
  await allCompleted(database, "default", 2 * KEYS.length);
  expect(diary.faults).toEqual([]);
  expect(diary.orderOf("acme")).toEqual(inOrder(12));
  expect(diary.orderOf("globex")).toEqual(inOrder(2));
  const late = diary.of("acme").filter(({ n }) => n >= 2);
  expect(new Set(late.map(({ by }) => by)).size).toBe(await ownersOfKeys(database, "acme"));
  const rings = await mill.queues.ring();
  expect(rings.map(({ keySpace, tenant }) => `${keySpace} of ${tenant}`)).toEqual([
    "mails of default",
    "mails of acme",
    "mails of globex",
  ]);
});

it("finds the keys of a queue whose key space a definition takes over", async () => {
  const database = await testDatabase();
  const { server, mill } = await serve(database);
  const diary = new Diary();
  const url = `127.0.0.1:${server.address("worker").port}`;
  const commands = ["letters"];
  const facts = { url, token: ACME_WORKER, tenant: "acme", by: "server", diary, commands };
  const hand = new KeyedHand(facts);
  await hand.stream.until(1);
  await eventually(async () => {
    const { rows } = await database.pool.query(
      "SELECT is_provisional FROM tidemill.queues WHERE name = 'letters'",
    );
    expect(rows).toEqual([{ is_provisional: true }]);
  });
  const letters = queue<Step>("letters", { keySpace: "post", keyConcurrency: 1 });
  await mill.enqueue(letters, { key: "a", n: 0 }, { tenant: "acme", partitionKey: "a" });
  await mill.enqueue(letters, { key: "a", n: 1 }, { tenant: "acme", partitionKey: "a" });
  await allCompleted(database, "acme", 2);
  expect(diary.orderOf("acme")).toEqual({ a: [0, 1] });
});
