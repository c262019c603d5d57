import { beforeAll, describe, expect, it } from "vitest";
import { systemClock } from "../../../src/base/clock.ts";
import { silentLogger } from "../../../src/base/log.ts";
import { Supervisor } from "../../../src/base/supervisor.ts";
import { queue } from "../../../src/index.ts";
import type { FeedClient } from "../../../src/server/feed/client.ts";
import { Feed } from "../../../src/server/feed/feed.ts";
import { onCleanup } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { bearer, openScene, type Scene, type Who } from "../server/http-scene.ts";
import { range } from "../tasks/scene.ts";

const MAILS = queue<number>("mails");
const LETTERS = queue<number>("letters");
const ACME = { tenant: "acme" };
const CHARS_MAX = 20_000;

let scene: Scene;
let feed: Feed;

beforeAll(async () => {
  const opened = await openScene({ limits: {} });
  feed = new Feed(opened.mill.engine.db, {
    clock: systemClock,
    logger: silentLogger,
    heartbeatMs: 50,
    clientCharsMax: CHARS_MAX,
    goodbyeMs: 200,
  });
  const services = new Supervisor([...feed.services]);
  onCleanup(() => services.stop(), "file");
  const limits = { feedClientsMax: 12, feedClientsPerTenantMax: 10 };
  scene = opened.another(limits, { feed, tokenCheckMs: 50 });
});

interface Reader {
  /** All that came so far. */
  text(): string;
  /** Names of events, without heartbeats. */
  events(): string[];
  data(event: string): Record<string, unknown>[];
  close(): Promise<void>;
  readonly ended: Promise<void>;
}

interface OpenOptions {
  readonly as?: Who;
  readonly query?: string;
  /** Reads only when this resolves. */
  readonly stalledUntil?: Promise<void>;
}

async function open({
  as = "reader",
  query = "",
  stalledUntil,
}: OpenOptions = {}): Promise<Reader> {
  const response = await scene.api.fetch(
    new Request(`http://tidemill.test/v1/feed${query}`, { headers: { authorization: bearer(as) } }),
  );
  if (response.status !== 200) throw new Error(`${response.status}: ${await response.text()}`);
  const reader = (response.body as ReadableStream<Uint8Array>).getReader();
  let text = "";
  const read = async (): Promise<void> => {
    await stalledUntil;
    const decoder = new TextDecoder();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      text += decoder.decode(value, { stream: true });
    }
  };
  const events = (): string[] =>
    Array.from(text.matchAll(/^event: (\w+)$/gm), ([, name]) => name ?? "");
  const one: Reader = {
    text: () => text,
    events,
    data: (event) =>
      Array.from(
        text.matchAll(new RegExp(`^event: ${event}\ndata: (.*)$`, "gm")),
        ([, data]) => JSON.parse(data ?? "") as Record<string, unknown>,
      ),
    close: async () => await reader.cancel(),
    ended: read(),
  };
  onCleanup(() => one.close());
  if (stalledUntil === undefined) await eventually(() => expect(events()).toContain("ready"));
  return one;
}

const send = async (to: typeof MAILS, options = ACME): Promise<string> =>
  (await scene.mill.enqueue(to, 1, options)).id;

const idsOf = (reader: Reader): unknown[] => reader.data("task").map(({ id }) => id);

describe("a client is told", () => {
  it("of tasks of its tenant only, whatever else it may do", async () => {
    const [acme, admin, globex] = [
      await open(),
      await open({ as: "admin" }),
      await open({ as: "other" }),
    ];
    const [ours, theirs] = [await send(MAILS), await send(MAILS, { tenant: "globex" })];
    await eventually(() => expect(idsOf(globex)).toEqual([theirs]));
    for (const reader of [acme, admin]) {
      await eventually(() => expect(idsOf(reader)).toEqual([ours]));
    }
    const asked = await open({ as: "other", query: `?task=${ours}` });
    await scene.mill.tasks.cancel(ours);
    await eventually(() => expect(idsOf(acme)).toEqual([ours, ours]));
    expect([...idsOf(globex), ...idsOf(asked)]).toEqual([theirs]);
  });

  it("of the queues of its token only, and may not name another", async () => {
    const reader = await open({ as: "mailer" });
    const mine = [await send(LETTERS), await send(MAILS)].slice(1);
    await eventually(() => expect(idsOf(reader)).toEqual(mine));
    await expect(open({ as: "mailer", query: "?queue=letters" })).rejects.toThrow(/^403/);
  });

  it("of what it asks for: a queue, states, a task", async () => {
    const letters = await open({ query: "?queue=letters" });
    const ends = await open({ query: "?state=cancelled,failed" });
    const [mail, letter] = [await send(MAILS), await send(LETTERS)];
    const one = await open({ query: `?task=${letter}&queue=letters` });
    for (const id of [mail, letter]) await scene.mill.tasks.cancel(id);
    await eventually(() => expect(idsOf(letters)).toEqual([letter, letter]));
    await eventually(() => expect(idsOf(ends)).toEqual([mail, letter]));
    // It may begin a moment before it was opened: what was not read yet is told behind "ready".
    await eventually(() =>
      expect(one.data("task").at(-1)).toMatchObject({ id: letter, state: "cancelled" }),
    );
    expect(new Set(idsOf(one))).toEqual(new Set([letter]));
  });

  it("of one task in the middle of a bulk", async () => {
    const all = await open({ query: "?queue=letters" });
    const bulk = range(60).map((payload) => ({ payload, ...ACME }));
    const handles = await scene.mill.enqueueMany(LETTERS, bulk);
    await eventually(() => expect(idsOf(all)).toEqual(handles.map(({ id }) => id)));
    const id = handles[41]?.id ?? "";
    const one = await open({ query: `?task=${id}` });
    await scene.mill.tasks.cancel(id);
    await eventually(() => expect(idsOf(one)).toEqual([id]));
  });

  it("of the cluster with an admin token, unless it asks for tasks", async () => {
    const [admin, reader] = [await open({ as: "admin" }), await open()];
    const filtered = await open({ as: "admin", query: "?state=pending" });
    const { pool } = scene.database;
    const worker = await scene.mill.startWorker({
      consumers: [],
      handlers: [MAILS.handle(() => {})],
    });
    await eventually(() => expect(admin.data("worker")[0]?.["status"]).toBe("active"));
    await eventually(() => expect(admin.data("ring").length).toBeGreaterThan(0));
    await pool.query(
      `INSERT INTO tidemill.consumer_states (consumer_name, state, reason)
       VALUES ('c', 'paused', 'why')`,
    );
    await pool.query("DELETE FROM tidemill.consumer_states");
    await eventually(() => {
      const told = admin.data("consumer").map(({ name, state, reason }) => [name, state, reason]);
      expect(told).toEqual([
        ["c", "paused", "why"],
        ["c", "running", undefined],
      ]);
    });
    await pool.query(
      `INSERT INTO tidemill.parked_streams (consumer_name, stream_type, stream_id, state, error)
       VALUES ('p', 's', '1', 'parked', 'no'), ('p', 's', '2', 'parked', 'no')`,
    );
    await pool.query("UPDATE tidemill.parked_streams SET state = 'replaying'");
    await pool.query("UPDATE tidemill.parked_streams SET state = 'parked' WHERE stream_id = '1'");
    await pool.query("DELETE FROM tidemill.parked_streams");
    await pool.query("DELETE FROM tidemill.parked_streams");
    await eventually(() => {
      const told = admin.data("consumer").filter(({ name }) => name === "p");
      // Both at once are told once; the last statement found none.
      expect(told.map(({ streams }) => streams)).toEqual(["parked", "replaying", "parked", "gone"]);
    });
    await pool.query(
      `WITH skip AS (
         INSERT INTO tidemill.consumer_gap_skips
                (consumer_name, worker_id, gap_position, skip_to_position,
                 highest_visible_position, first_seen_at)
         VALUES ('c', gen_random_uuid(), 4, 5, 6, NOW()) RETURNING id)
       INSERT INTO tidemill.gap_evidence (skip_id, how, missing) SELECT id, 'epoch', 1 FROM skip`,
    );
    await eventually(() =>
      expect(admin.data("gap")[0]).toMatchObject({ consumer: "c", position: "4" }),
    );
    await worker.stop();
    await eventually(() =>
      expect(admin.data("worker").map(({ status }) => status)).toEqual([
        "active",
        "draining",
        "stopped",
      ]),
    );
    for (const one of [reader, filtered]) {
      expect(new Set([...one.events(), "task"])).toEqual(new Set(["ready", "task"]));
    }
  });

  it("that it is connected", async () => {
    const reader = await open();
    await eventually(() => expect(reader.text()).toMatch(/(: heartbeat\n\n){2}/));
  });
});

describe("a client that does not read", () => {
  it("is told how much it has missed, keeps little waiting, and delays nobody", async () => {
    let go = (): void => {};
    const stalledUntil = new Promise<void>((resolve) => {
      go = resolve;
    });
    const stalled = await open({ query: "?queue=letters", stalledUntil });
    const awake = await open({ query: "?queue=letters" });
    const ids: string[] = [];
    for (const _ of range(5)) {
      const bulk = range(100).map((payload) => ({ payload, ...ACME }));
      ids.push(...(await scene.mill.enqueueMany(LETTERS, bulk)).map(({ id }) => id));
      await eventually(() => expect(idsOf(awake)).toEqual(ids));
    }
    const waiting = Array.from(feed.hub.clients, (client) => client.waitingChars);
    expect(Math.max(...waiting)).toBeGreaterThan(CHARS_MAX / 4);
    expect(Math.max(...waiting)).toBeLessThanOrEqual(CHARS_MAX);
    go();
    await eventually(() => expect(stalled.events()).toContain("lagged"));
    const [lagged] = stalled.data("lagged");
    const seen = stalled.events().indexOf("lagged") - 1;
    expect(idsOf(stalled)).toEqual(ids.slice(0, seen));
    expect(lagged?.["missed"]).toBe(ids.length - seen);
    // It goes on, and may fetch what it missed.
    const last = await send(LETTERS);
    await eventually(() => expect(idsOf(stalled).at(-1)).toBe(last));
    const again = await open({ query: `?queue=letters&after=${String(lagged?.["after"])}` });
    await eventually(() => expect(idsOf(again)).toEqual([...ids.slice(seen), last]));
    expect(awake.events()).not.toContain("lagged");
  });
});

describe("a client whose token has ended", () => {
  /** With changes that it has not taken. */
  const subscribe = async (): Promise<FeedClient> => {
    const filter = { tenant: "acme", queues: "all", withCluster: false } as const;
    const limits = { clientsMax: 12, tenantClientsMax: 10 };
    const client = feed.hub.subscribe({ filter, after: undefined }, limits);
    await eventually(() => expect(client.phase).toBe("live"));
    const before = client.waitingChars;
    await send(MAILS);
    await eventually(() => expect(client.waitingChars).toBeGreaterThan(before));
    client.silence();
    expect([client.waitingChars, feed.hub.clients.has(client)]).toEqual([0, true]);
    return client;
  };

  it("gets nothing of what was waiting, and counts until its stream is closed", async () => {
    const client = await subscribe();
    expect(await client.stream.getReader().read()).toEqual({ done: true, value: undefined });
    expect(feed.hub.clients.has(client)).toBe(false);
  });

  it("is cut when it does not read", async () => {
    const client = await subscribe();
    await eventually(() => expect(feed.hub.clients.has(client)).toBe(false));
    await expect(client.stream.getReader().read()).rejects.toThrow("does not read");
  });
});

describe("a stream", () => {
  it.each([
    ["?queue=", /^400/],
    ["?state=done", /^400: .*query.state/],
    ["?task=abc", /^400: .*a task id is a number/],
    ["?tenant=globex", /^400: .*tenant/],
  ])("with %s is refused", async (query, message) => {
    await expect(open({ query })).rejects.toThrow(message);
  });

  it("is not opened by HEAD, which is answered all the same", async () => {
    const before = feed.hub.clients.size;
    const answer = await scene.call("HEAD", "/v1/feed", { as: "reader" });
    expect([answer.status, answer.text]).toEqual([200, ""]);
    expect(answer.headers.get("content-type")).toContain("text/event-stream");
    expect(feed.hub.clients.size).toBe(before);
  });

  it("needs the scope read", async () => {
    await expect(open({ as: "worker" })).rejects.toThrow(/^403: .*lacks scope \\"read\\"/);
  });

  it("is refused when there are too many of one tenant, or of all", async () => {
    for (const _ of range(10)) await open();
    await expect(open()).rejects.toThrow(/^429/);
    for (const _ of range(2)) await open({ as: "other" });
    await expect(open({ as: "other" })).rejects.toThrow(/^429/);
  });

  it("ends when the server drains, and there is no other", async () => {
    const reader = await open();
    feed.drain();
    await reader.ended;
    await expect(open()).rejects.toThrow(/^503/);
  });
});
