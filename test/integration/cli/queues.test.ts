import { beforeEach, expect, it } from "vitest";
import { shortId } from "../../../dashboard/src/format.ts";
import { completed, queue, type Tidemill } from "../../../src/index.ts";
import { type TestDatabase, testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { cli, runCli, STEADY } from "./cli.ts";
import { expectAllRefused, expectRefused } from "./refused.ts";

const orders = queue("orders", { limits: { concurrency: 3, rate: { count: 100, seconds: 60 } } });
const refunds = queue("refunds", { keySpace: "orders" });

let database: TestDatabase;
let mill: Tidemill;

beforeEach(async () => {
  database = await testDatabase();
  mill = await database.connect();
  await mill.enqueue(orders, { order: 1 }, { partitionKey: "customer-7" });
  await mill.enqueue(refunds, { order: 1 });
});

async function queues(): Promise<unknown> {
  return JSON.parse(await cli(database.url, "queue", "list", "--json"));
}

it("queue list shows depth, limits, shared key spaces and pauses", async () => {
  expect(await cli(database.url, "queue", "pause", "refunds", "--reason", "audit")).toBe(
    "Queue refunds is paused.\n",
  );
  const shown = await cli(database.url, "queue", "list");
  expect(shown).toMatch(/orders +open +1 +0 +- +\S+ .*orders +3 at once, 100 in 60 s\n/);
  expect(shown).toMatch(/refunds +paused +1 +0 +- +.* s +orders +- +audit\n/);
  expect(await queues()).toMatchObject([
    { name: "orders", isPaused: false, depths: { 5: 1 }, running: 0, dead: 0 },
    { name: "refunds", isPaused: true, pauseReason: "audit", keySpace: "orders" },
  ]);
  expect(await cli(database.url, "queue", "resume", "refunds")).toBe("Queue refunds goes on.\n");
  expect(await cli(database.url, "queue", "resume", "refunds")).toBe(
    "Queue refunds was not paused.\n",
  );
});

it("queue limits changes what is given, keeps the rest, and hands all back", async () => {
  const limits = async (...args: string[]): Promise<string> =>
    await cli(database.url, "queue", "limits", "orders", ...args);
  expect(await limits()).toBe("Queue orders: 3 at once, 100 in 60 s.\n");
  expect(await limits("--concurrency", "5")).toBe("Queue orders: 5 at once, 100 in 60 s.\n");
  expect(JSON.parse(await limits("--rate", "none", "--key-rate", "2/0.5", "--json"))).toEqual({
    queue: "orders",
    limits: { concurrency: 5, rate: null, keyRate: { count: 2, seconds: 0.5 } },
  });
  const reset = ["queue", "limits", "orders", "--reset"];
  expect(await cli(database.url, ...reset)).toBe("Queue orders: 3 at once, 100 in 60 s.\n");
  await expectRefused(database, [...reset, "--rate", "1/1"], { code: 2, says: /leave out the/ });
  await expectRefused(database, ["queue", "limits", "orders", "--rate", "5"], {
    code: 2,
    says: /COUNT\/SECONDS/,
  });
});

it("a paused key waits until it is resumed", async () => {
  const key = ["orders", "customer-7"];
  const until = "2100-01-31T09:00:00Z";
  const pause = ["queue", "pause-key", ...key, "--until", until, "--reason", "429"];
  expect(await cli(database.url, ...pause)).toMatch(
    /^Key customer-7 of queue orders is paused until 2100-01-31T09:00:00Z \(in \d+ d\)\.\n$/,
  );
  const [task] = await mill.tasks.list({ queue: "orders" });
  const why = await cli(database.url, "why", task?.id ?? "");
  expect(why).toContain('key "customer-7" is paused until 2100-01-31T09:00:00.000Z (429)');
  const resume = async (...args: string[]): Promise<string> =>
    await cli(database.url, "queue", "resume-key", ...key, ...args);
  expect(await resume("--tenant", "acme")).toMatch(/was not paused/);
  expect(JSON.parse(await resume("--json"))).toMatchObject({ wasPaused: true });
  const past = ["queue", "pause-key", ...key, "--until", "2001-01-31T09:00:00Z"];
  await expectRefused(database, past, { code: 2, says: /--until is past/ });
});

it("an unknown queue is refused with those that there are", async () => {
  const says = /no queue "order".*registered are "orders", "refunds"/;
  const acts = ["pause", "resume", "limits", "pause-key", "resume-key"];
  await expectAllRefused(
    database,
    acts.map((act) => {
      const rest = act.endsWith("key") ? ["k"] : [];
      return [["queue", act, "order", ...rest], 1, says];
    }),
  );
  await expectRefused(database, ["queue", "puase", "orders"], {
    code: 2,
    says: /did you mean "tidemill queue pause"/,
  });
});

it("dead letters are counted up to 10,000, and then said to be so many or more", async () => {
  await database.pool.query(
    `INSERT INTO tidemill.dead_letters (id, created_at, run_at, claim_order, lease_generation, lane,
                                        attempt, max_attempts, losses, priority, tenant, queue,
                                        payload, cause, reason)
     SELECT -n, NOW(), NOW(), n, 1, 1, 5, 5, 0, 5, 'default',
            CASE WHEN n = 1 THEN 'refunds' ELSE 'orders' END, '1', 'attempts_exhausted', 'no'
       FROM generate_series(1, 10002) AS n`,
  );
  expect(await queues()).toMatchObject([
    { name: "orders", dead: 10_000, isDeadCut: true },
    { name: "refunds", dead: 1, isDeadCut: false },
  ]);
  expect(await cli(database.url, "queue", "list")).toMatch(/ 10,000 or more /);
  const purge = ["dead", "purge", "--queue", "orders"];
  const asked = await runCli(purge, { env: { DATABASE_URL: database.url } });
  expect(asked.stderr).toContain("every dead letter of queue orders (10,000 or more now)");
});

it("ring shows owners, the map, a key, and what a change would move", async () => {
  expect(await cli(database.url, "ring")).toBe(
    "Key space orders (orders, refunds): no worker owns the 360 buckets\n",
  );
  const handlers = [orders.handle(() => completed()), refunds.handle(() => completed())];
  const others = await database.connect();
  const workers = [
    await mill.startWorker({ ...STEADY, handlers }),
    await others.startWorker({ ...STEADY, handlers }),
  ];
  await eventually(async () => {
    const [space] = await mill.queues.ring();
    expect(space?.owners.map((one) => one.buckets.length)).toEqual([180, 180]);
  });
  const [first = "", second = ""] = workers.map((one) => one.id).sort();
  const shown = await cli(database.url, "ring", "--key", "customer-7", "--queue", "refunds");
  expect(shown).toContain("Key space orders (orders, refunds): 2 workers, 180 buckets each\n");
  expect(shown).toContain(`  A  ${first}      180\n  B  ${second}      180\n`);
  expect(shown).toMatch(/Key customer-7 is in bucket 123, owned by [0-9a-f]{8}\.\n/);
  expect(shown.match(/^ +\d+ [AB]{60}$/gm)).toHaveLength(6);
  const joined = await cli(database.url, "ring", "--join", "2");
  expect(joined).toMatch(/A +\S+ +180 +-90 +- +90\n +B +\S+ +180 +-90 +- +90\n/);
  expect(joined).toMatch(/C +new-1 +0 +- +\+90 +90\n +D +new-2 +0 +- +\+90 +90\n/);
  expect(joined).toContain("180 of 360 buckets would move.\n");
  const left = await cli(database.url, "ring", "--leave", shortId(first), "--json");
  const [{ moves, spread }] = JSON.parse(left);
  expect(spread).toEqual({ least: 180, most: 180 });
  expect(moves).toHaveLength(180);
  expect(moves[0]).toMatchObject({ from: first, to: second });
  const env = { DATABASE_URL: database.url };
  const unknown = await runCli(["ring", "--leave", "zzz"], { env });
  expect(unknown).toMatchObject({ code: 1, stdout: "" });
  expect(unknown.stderr).toContain(`no worker zzz owns buckets; these do: ${shortId(first)}, `);
  const both = await runCli(["ring", "--join", "1", "--leave", first], { env });
  expect(both).toMatchObject({ code: 2, stderr: expect.stringContaining("cannot be used with") });
});
