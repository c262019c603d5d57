import { beforeEach, describe, expect, it } from "vitest";
import { claimNotices } from "../../../src/delivery/notices/sql/notices.ts";
import { nack, queue, verifyWebhook } from "../../../src/index.ts";
import { engineDatabase } from "../../support/engine-database.ts";
import { eventually } from "../../support/eventually.ts";
import { BRISK, gate } from "../tasks/scene.ts";
import {
  endIntervals,
  endLeases,
  hasBeenTold,
  looked,
  read,
  startNotices,
  subscribe,
  toldOf,
} from "./notice-scene.ts";
import { newScene, type Receiver, receiver, type WebhookScene } from "./webhook-scene.ts";

const mails = queue("mails");
const pictures = queue("pictures");
const keyed = queue("keyed");
/** Longer than any test. */
const LONG = { ttlSeconds: 600, minIntervalSeconds: 600 } as const;

let scene: WebhookScene;
/** Told after everybody else, to know that they were looked at. */
let probe: Receiver;

beforeEach(async () => {
  scene = await newScene();
  probe = await receiver();
  for (const one of [mails, pictures, keyed]) await scene.mill.queues.ensure(one.name);
});

async function receivers(count: number): Promise<Receiver[]> {
  return await Promise.all(Array.from({ length: count }, () => receiver()));
}

/** Options of a worker that tells the receiver. */
const sendingTo = ({ port }: Receiver) => ({
  ...BRISK,
  deliverWebhooks: {
    egress: {
      allowHttp: true,
      ports: [port],
      allowHosts: ["hooks.test"],
      resolve: async () => ["127.0.0.1"],
    },
  },
});

describe("who is told", () => {
  it("everybody, of each queue that they named, once per interval and signed", async () => {
    const [a, b] = (await receivers(2)) as [Receiver, Receiver];
    const { subscription, secret } = await scene.mill.subscriptions.add("default", {
      url: a.url("/work"),
      queues: ["mails", "pictures", "not there yet"],
      ...LONG,
    });
    await subscribe(scene, { url: b.url(), ...LONG });
    startNotices(scene, [a, b, probe]);
    await looked(scene, probe);
    expect([a.received, b.received]).toEqual([[], []]);

    await scene.mill.enqueueMany(mails, [{ payload: "secret 1" }, { payload: "secret 2" }]);
    await hasBeenTold(a, 1);
    await hasBeenTold(b, 1);
    const [message] = a.received;
    expect(read(message)).toMatchObject({
      type: "work.available",
      data: {
        subscription: subscription.id,
        tenant: "default",
        queues: [{ queue: "mails", waiting: 2 }],
      },
    });
    expect([message?.path, message?.body.includes("secret 1")]).toEqual(["/work", false]);
    verifyWebhook(
      message?.headers as unknown as Parameters<typeof verifyWebhook>[0],
      message?.body ?? "",
      [secret.reveal()],
      new Date(),
    );
    await scene.mill.enqueue(mails, 3);
    await looked(scene, probe);
    expect([a.received.length, b.received.length]).toEqual([1, 1]);
  });

  it("one of a group, in turns, and the next at once when one cannot be told", async () => {
    const isDown = new Set<string>();
    const told: string[] = [];
    const pool = await receiver((response, { path }) => {
      if (!isDown.has(path)) told.push(path);
      response.writeHead(isDown.has(path) ? 500 : 204).end();
    });
    for (const path of ["/a", "/b", "/c"]) {
      await subscribe(scene, { url: pool.url(path), mode: "group", group: "pool", ...LONG });
    }
    await scene.mill.enqueue(mails, 1);
    startNotices(scene, [pool, probe]);
    for (const turn of [1, 2, 3]) {
      await eventually(() => expect(told).toHaveLength(turn));
      await looked(scene, probe);
      expect(told).toHaveLength(turn);
      await endIntervals(scene);
    }
    await eventually(() => expect(told).toHaveLength(4));
    expect(told).toEqual(["/a", "/b", "/c", "/a"]);
    isDown.add("/b");
    await endIntervals(scene);
    await eventually(() => expect(told).toHaveLength(5));
    expect([told.at(-1), pool.received.at(-2)?.path]).toEqual(["/c", "/b"]);
  });

  it("by hash always the same of a queue, and another when that one cannot be", async () => {
    const isDown = new Set<string>();
    const owners = new Map<string, string>();
    const pool = await receiver((response, message) => {
      const { path } = message;
      response.writeHead(isDown.has(path) ? 503 : 204).end();
      if (isDown.has(path)) return;
      for (const one of read(message).data.queues) owners.set(one.queue, path);
    });
    const queues = Array.from({ length: 24 }, (_, n) => `hashed-${n}`);
    for (const name of queues) {
      await scene.mill.queues.ensure(name);
      await scene.mill.enqueue(name, 1);
    }
    for (const path of ["/a", "/b"]) {
      await subscribe(scene, { url: pool.url(path), mode: "hash", queues, ...LONG });
    }
    startNotices(scene, [pool, probe]);
    await eventually(() => expect(owners.size).toBe(24));
    const before = new Map(owners);
    expect(pool.received).toHaveLength(2);
    await endIntervals(scene);
    await hasBeenTold(pool, 4);
    expect(owners).toEqual(before);
    isDown.add("/a");
    await endIntervals(scene);
    await eventually(async () => {
      await endIntervals(scene);
      expect(new Set(owners.values())).toEqual(new Set(["/b"]));
    });
  });

  it("nobody of work of other tenants, of a paused queue, or that runs or waits", async () => {
    const [a] = (await receivers(1)) as [Receiver];
    await subscribe(scene, { url: a.url(), ...LONG });
    await scene.mill.enqueue(mails, 1, { tenant: "globex" });
    await scene.mill.enqueue(mails, 1, { delaySeconds: 3_600 });
    await scene.mill.queues.pause("pictures");
    await scene.mill.enqueue(pictures, 1);
    const running = gate();
    const handler = mails.handle(async () => {
      running.open();
      await new Promise(() => {});
    });
    await scene.mill.enqueue(mails, 1);
    const worker = await scene.mill.startWorker({ ...BRISK, drainTimeout: 0, handlers: [handler] });
    await running.opened;
    startNotices(scene, [a, probe]);
    await looked(scene, probe);
    expect(toldOf(a)).toEqual([]);
    await scene.mill.queues.resume("pictures");
    await hasBeenTold(a, 1);
    expect(toldOf(a)).toEqual(["pictures"]);
    await worker.stop(); // Gives back what it runs.
    // The first look may pass over it: what comes back is below what was looked at.
    await eventually(async () => {
      await endIntervals(scene);
      expect(toldOf(a).at(-1)).toBe("mails,pictures");
    });
  });
});

describe("work", () => {
  it("of every sort is told of, also to those who are told of all queues", async () => {
    const [a] = (await receivers(1)) as [Receiver];
    const { mill, database } = scene;
    const keys = Array.from({ length: 60 }, (_, n) => ({ payload: 1, partitionKey: `k${n}` }));
    const counts = { row: 1, packs: 100, key: 1, "keys in packs": 60, SQL: 1 };
    for (const name of Object.keys(counts)) await mill.queues.ensure(name);
    await mill.enqueue("row", 1);
    const many = Array.from({ length: 250 }, () => ({ payload: 1 }));
    await mill.enqueueMany("packs", many);
    await mill.enqueue("key", 1, { partitionKey: "k" });
    await mill.enqueueMany("keys in packs", keys);
    await database.pool.query("SELECT tidemill.enqueue('SQL', '1')");
    await mill.enqueue("key", 1, { tenant: "acme", partitionKey: "k" });
    await subscribe(scene, { url: a.url("/all"), ...LONG });
    await subscribe(scene, { url: a.url("/named"), queues: Object.keys(counts), ...LONG });
    await subscribe(scene, { url: a.url("/acme"), ...LONG }, "acme");
    startNotices(scene, [a]);
    await hasBeenTold(a, 3);
    const told = Object.fromEntries(
      a.received.map((message) => {
        const { queues } = read(message).data;
        return [message.path, Object.fromEntries(queues.map((one) => [one.queue, one.waiting]))];
      }),
    );
    expect(told).toEqual({ "/all": counts, "/named": counts, "/acme": { key: 1 } });
  });

  it("of a held key is none, and is told of when the key flows again", async () => {
    const [a] = (await receivers(1)) as [Receiver];
    await subscribe(scene, { url: a.url(), queues: ["keyed"], ...LONG });
    await scene.mill.queues.pauseKey(keyed, "k");
    await scene.mill.enqueue(keyed, 1, { partitionKey: "k" });
    startNotices(scene, [a, probe]);
    await looked(scene, probe);
    expect(toldOf(a)).toEqual([]);
    await scene.mill.queues.resumeKey(keyed, "k");
    await hasBeenTold(a, 1);
  });

  it("that commits below what was looked at is found with the next look at all", async () => {
    const [a] = (await receivers(1)) as [Receiver];
    await subscribe(scene, { url: a.url(), queues: ["mails"], ...LONG });
    const client = await scene.database.session();
    await client.query("BEGIN");
    await client.query("SELECT tidemill.enqueue('mails', '1')");
    await scene.mill.enqueue(pictures, 1); // A higher number.
    startNotices(scene, [a, probe], { lagMs: 0, wholeMs: 300 });
    await looked(scene, probe);
    expect(toldOf(a)).toEqual([]);
    await client.query("COMMIT");
    await hasBeenTold(a, 1);
  });

  it("that was put back, or whose time has come, is told of by a worker", async () => {
    const [a] = (await receivers(1)) as [Receiver];
    await subscribe(scene, { url: a.url(), queues: ["mails"], ...LONG });
    let runs = 0;
    const handler = mails.handle(() => {
      runs += 1;
      return nack(0.05, "later");
    });
    await scene.mill.startWorker(sendingTo(a));
    await scene.mill.enqueue(mails, 1, { delaySeconds: 0.2 });
    await hasBeenTold(a, 1);
    const worker = await scene.mill.startWorker({ ...BRISK, handlers: [handler] });
    await eventually(() => expect(runs).toBeGreaterThan(0));
    await worker.stop();
    await endIntervals(scene);
    await hasBeenTold(a, 2);
  });
});

describe("when", () => {
  it("no sooner than the interval, and then if something still waits", async () => {
    const at: number[] = [];
    const a = await receiver((response) => {
      at.push(performance.now());
      response.writeHead(204).end();
    });
    const interval = 0.4;
    await subscribe(scene, { url: a.url(), queues: ["mails"], minIntervalSeconds: interval });
    startNotices(scene, [a, probe]);
    const { id } = await scene.mill.enqueue(mails, 1);
    const told = (count: number): Promise<void> =>
      eventually(() => expect(a.received.length).toBeGreaterThanOrEqual(count));
    await told(1);
    // Comes within the interval, and nothing else happens after it.
    const { id: another } = await scene.mill.enqueue(mails, 2);
    await scene.mill.tasks.cancel(id);
    await told(3);
    await scene.mill.tasks.cancel(another);
    const count = a.received.length;
    await looked(scene, probe);
    await endIntervals(scene);
    await looked(scene, probe);
    expect(a.received.length - count).toBeLessThanOrEqual(1); // It may have been under way.
    const gaps = at.slice(1).map((time, index) => time - (at[index] ?? 0));
    for (const gap of gaps.slice(0, 2)) expect(gap).toBeGreaterThanOrEqual(interval * 1_000);
  });

  it("until it ends, and longer when it is renewed", async () => {
    const [a, b] = (await receivers(2)) as [Receiver, Receiver];
    const { mill, database } = scene;
    const given = { ttlSeconds: 40, minIntervalSeconds: 600 };
    const short = await subscribe(scene, { url: a.url(), ...given });
    const long = await subscribe(scene, { url: b.url(), ...given });
    const renewed = await mill.subscriptions.renew("default", long.id, { ttlSeconds: 100 });
    expect(renewed.expiresAt.getTime() - renewed.createdAt.getTime()).toBeGreaterThan(99_000);
    // Time passes.
    await database.pool.query(
      "UPDATE tidemill.subscriptions SET expires_at = expires_at - INTERVAL '50 seconds'",
    );
    await mill.enqueue(mails, 1);
    startNotices(scene, [a, b, probe]);
    await hasBeenTold(b, 1);
    await looked(scene, probe);
    expect(a.received).toEqual([]);
    expect((await mill.subscriptions.list("default")).map(({ id }) => id)).toEqual([long.id]);
    await expect(mill.subscriptions.renew("default", short.id)).rejects.toThrow("or it has ended");
    await expect(mill.subscriptions.get("default", short.id)).rejects.toThrow("or it has ended");
    await expect(mill.subscriptions.remove("default", short.id)).rejects.toThrow("has ended");
    const worker = await mill.startWorker({ ...BRISK, deliverWebhooks: true });
    await eventually(async () => {
      const { rows } = await database.pool.query("SELECT id FROM tidemill.subscriptions");
      expect(rows).toEqual([{ id: long.id }]);
    });
    await worker.stop();
    await mill.subscriptions.remove("default", long.id);
    await endIntervals(scene);
    await looked(scene, probe);
    expect(b.received).toHaveLength(1);
  });
});

describe("several senders", () => {
  it("tell everybody once", async () => {
    const pool = await receiver();
    for (let n = 0; n < 30; n += 1) {
      const mode = n % 3 === 0 ? ({ mode: "group", group: `g${n % 2}` } as const) : {};
      await subscribe(scene, { url: pool.url(`/${n}`), queues: ["mails"], ...mode, ...LONG });
    }
    await scene.mill.enqueue(mails, 1);
    const senders = [1, 2, 3].map(() => startNotices(scene, [pool, probe]));
    await hasBeenTold(pool, 22); // 20, and one of each group.
    for (let round = 2; round <= 4; round += 1) {
      await endIntervals(scene);
      await hasBeenTold(pool, 22 * round);
    }
    await looked(scene, probe);
    const told = senders.map(({ metrics }) => metrics.notices.text());
    expect(told.filter((text) => text.includes("told")).length).toBeGreaterThan(1);
    const ids = pool.received.map((message) => read(message).id);
    expect(new Set(ids).size).toBe(88);
  });

  it("take over what one of them had claimed when it died", async () => {
    const [a] = (await receivers(1)) as [Receiver];
    const member = { url: a.url(), mode: "group", group: "g", queues: ["mails"], ...LONG } as const;
    const { id } = await subscribe(scene, member);
    await scene.mill.enqueue(mails, 1);
    const dying = engineDatabase(scene.database.url);
    const claim = {
      chosen: [{ id, generation: 0 }],
      turns: [{ id, queue: "mails" }],
      leaseSeconds: 600,
    };
    expect(await claimNotices(dying, claim)).toMatchObject([{ id, turns: ["mails"] }]);
    expect(await claimNotices(dying, claim)).toEqual([]);
    await dying.close();
    startNotices(scene, [a, probe]);
    await looked(scene, probe);
    expect(a.received).toEqual([]);
    await endLeases(scene);
    await hasBeenTold(a, 1);
  });

  it("hand over what a stop could not wait for, and tell so", async () => {
    const isHung = gate();
    const a = await receiver((response, _, count) => {
      if (count === 1) isHung.open();
      else response.writeHead(204).end();
    });
    const { id } = await subscribe(scene, { url: a.url(), queues: ["mails"], ...LONG });
    await scene.mill.enqueue(mails, 1);
    const worker = await scene.mill.startWorker({ ...sendingTo(a), drainTimeout: 0 });
    await isHung.opened;
    expect(await worker.stop()).toEqual({ givenBack: 1 });
    expect(await scene.mill.subscriptions.get("default", id)).toMatchObject({ failures: 0 });
    startNotices(scene, [a]);
    await hasBeenTold(a, 2);
  });
});

describe("who cannot be told", () => {
  it("is tried more and more rarely, shown as failing, and well after a receipt", async () => {
    const { mill } = scene;
    let status = 500;
    const a = await receiver((response) => void response.writeHead(status).end());
    const { id } = await subscribe(scene, { url: a.url(), minIntervalSeconds: 0.1 });
    await mill.enqueue(mails, 1);
    startNotices(scene, [a, probe]);
    for (let failures = 1; failures <= 5; failures += 1) {
      await eventually(async () => {
        expect(await mill.subscriptions.get("default", id)).toMatchObject({
          failures,
          state: failures < 5 ? "active" : "failing",
          lastStatus: 500,
          lastError: "the receiver answered 500",
        });
      });
      await looked(scene, probe); // Its pause is longer than its interval.
      expect(a.received).toHaveLength(failures);
      if (failures < 5) await endIntervals(scene);
    }
    status = 204;
    await mill.subscriptions.renew("default", id); // Whoever renews is there.
    await eventually(async () => {
      const { state, failures, failingSince } = await mill.subscriptions.get("default", id);
      expect([state, failures, failingSince]).toEqual(["active", 0, undefined]);
    });
  });

  it("because its name leads into the own network is refused with each call", async () => {
    const [a] = (await receivers(1)) as [Receiver];
    const { id } = await subscribe(scene, { url: `http://private.test:${a.port}/`, ...LONG });
    await scene.mill.enqueue(mails, 1);
    startNotices(scene, [a]);
    await eventually(async () => {
      expect(await scene.mill.subscriptions.get("default", id)).toMatchObject({
        state: "failing",
        lastError: expect.stringMatching(/127\.0\.0\.1|private|may not|own network|loopback/i),
      });
    });
    expect(a.received).toEqual([]);
  });

  it("and is slow holds back nobody else", async () => {
    const hanging = await receiver(() => {});
    const [a] = (await receivers(1)) as [Receiver];
    for (let n = 0; n < 10; n += 1) {
      await subscribe(scene, { url: hanging.url(`/${n}`), ...LONG }, "acme");
    }
    await subscribe(scene, { url: a.url(), ...LONG }, "globex");
    for (const tenant of ["acme", "globex"]) await scene.mill.enqueue(mails, 1, { tenant });
    const settings = { concurrency: 4, callSeconds: 60, drainMs: 0 };
    startNotices(scene, [hanging, a], settings);
    await hasBeenTold(a, 1);
    expect(hanging.received.length).toBeLessThanOrEqual(2);
  });
});

describe("options", () => {
  const url = "https://hooks.example.org/work";

  it("that cannot work are refused, and nothing is stored", async () => {
    const refusals: [object, RegExp][] = [
      [{ url: "ftp://hooks.example.org/" }, /must begin with https/],
      [{ url: "https://me:pw@hooks.example.org/" }, /must not hold a password/],
      [{ url: 7 }, /url must be a text/],
      [{ url, queues: [] }, /1 to 100 names/],
      [{ url, queues: [""] }, /each of queues/],
      [{ url, mode: "group" }, /names its group/],
      [{ url, group: "g" }, /others have none/],
      [{ url, mode: "all" }, /mode must be "fanout"/],
      [{ url, ttlSeconds: 0 }, /ttlSeconds must be a number of at least 1/],
      [{ url, ttlSeconds: 604_801 }, /at most 604800/],
      [{ url, minIntervalSeconds: 0.01 }, /at least 0.1/],
      [{ url, secret: "short" }, /webhook secret must be/],
      [{ url, ttl: 5 }, /unknown subscription option "ttl"/],
    ];
    for (const [options, message] of refusals) {
      await expect(scene.mill.subscriptions.add("default", options as never)).rejects.toThrow(
        message,
      );
    }
    expect(await scene.mill.subscriptions.list("default")).toEqual([]);
  });

  it("have limits: a tenant has so many, and another its own", async () => {
    await scene.database.pool.query(
      `INSERT INTO tidemill.subscriptions
              (id, tenant, url, mode, format, ttl_seconds, min_interval_seconds, expires_at)
       SELECT gen_random_uuid(), 'acme', 'https://a/', 'fanout', 'codeq', 60, 5,
              NOW() + INTERVAL '1 hour'
         FROM generate_series(1, 500)`,
    );
    const { subscriptions } = scene.mill;
    await expect(subscriptions.add("acme", { url })).rejects.toThrow("at most 500 subscriptions");
    await subscriptions.add("globex", { url });
  });
});
