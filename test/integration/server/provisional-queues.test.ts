import { beforeEach, describe, expect, it } from "vitest";
import { ConfigError, queue } from "../../../src/index.ts";
import { QueueDirectory } from "../../../src/tasks/directory.ts";
import { onCleanup, type TestDatabase, testDatabase } from "../../support/database.ts";
import { engineDatabase } from "../../support/engine-database.ts";
import { eventually } from "../../support/eventually.ts";
import { ManualClock } from "../../support/manual-clock.ts";
import { readColumn } from "../tasks/scene.ts";
import {
  acks,
  codeqAcks,
  codeqBatch,
  codeqHello,
  create,
  GLOBEX,
  hello,
  type Scene,
  scene,
} from "./scene.ts";

let database: TestDatabase;
let server: Scene;

beforeEach(async () => {
  database = await testDatabase();
  server = await scene({ database, server: { queuesPerTenantMax: 3 } });
});

const queues = async () =>
  (
    await database.pool.query(
      `SELECT queue.name, space.name AS key_space, is_provisional, is_keyed, introduced_by
         FROM tidemill.queues AS queue
         JOIN tidemill.key_spaces AS space ON space.id = queue.key_space_id
        ORDER BY queue.name`,
    )
  ).rows as Record<string, unknown>[];

/** A task by the library, which registers the queue's definition. */
async function define(...[name, options]: Parameters<typeof queue>): Promise<void> {
  const mill = await database.connect();
  await mill.enqueue(queue(name, options), {}, { tenant: "acme", partitionKey: "k" });
}

async function introduce(...tasks: Parameters<typeof create>[2] & object): Promise<string[]> {
  const stream = await hello(server.tidemill());
  create(stream, 1n, tasks);
  await stream.until(2);
  return acks(stream).get(1n) ?? [];
}

describe("a queue that a producer introduces", () => {
  it("is provisional, with a key space of its own", async () => {
    await introduce({ queue: "mails" });
    expect(await queues()).toEqual([
      {
        name: "mails",
        key_space: "provisional\u001fmails",
        is_provisional: true,
        is_keyed: false,
        introduced_by: "acme",
      },
    ]);
  });

  it("is taken over by a definition with another key space, whoever remembers it", async () => {
    await introduce({ queue: "mails" });
    await define("mails", { keySpace: "orders", maxAttempts: 2 });
    expect(await queues()).toMatchObject([
      { name: "mails", key_space: "orders", is_provisional: false },
    ]);
    // This server still remembers the queue as it was.
    await introduce({ queue: "mails", partitionKey: "k" });
    const lanes = await readColumn(
      database,
      "SELECT DISTINCT lane FROM tidemill.tasks WHERE partition_key = 'k'",
    );
    expect(lanes).toHaveLength(1);
  });

  it("keeps its keys when a definition gives its key space a name", async () => {
    await introduce({ queue: "mails", partitionKey: "k" });
    expect(await queues()).toMatchObject([{ is_provisional: true, is_keyed: true }]);
    await define("mails", {});
    expect(await queues()).toMatchObject([{ key_space: "mails", is_provisional: false }]);
    const lanes = await readColumn(database, "SELECT DISTINCT lane FROM tidemill.tasks");
    expect(lanes).toHaveLength(1);
  });

  it("with keys is not moved into a key space that others have", async () => {
    await introduce({ queue: "mails", partitionKey: "k" });
    await define("bills", { keySpace: "orders" });
    await expect(define("mails", { keySpace: "orders" })).rejects.toThrow(ConfigError);
    await define("mails", { keySpace: "letters" });
    expect(await queues()).toMatchObject([
      { name: "bills", key_space: "orders" },
      { name: "mails", key_space: "letters" },
    ]);
  });

  it("cannot get between a definition and the keys of others", async () => {
    await define("bills", { keySpace: "mails" });
    await introduce({ queue: "mails", partitionKey: "k" });
    expect(await queues()).toMatchObject([
      { name: "bills", key_space: "mails" },
      { name: "mails", key_space: "provisional\u001fmails" },
    ]);
  });

  it("has its key space settled by SQL too", async () => {
    await introduce({ queue: "mails" });
    await database.pool.query(
      `SELECT tidemill.enqueue('mails', '{}', partition_key => 'k', tenant => 'acme')`,
    );
    expect(await queues()).toMatchObject([{ is_keyed: true }]);
    await define("mails", {});
    const lanes = await readColumn(
      database,
      "SELECT DISTINCT lane FROM tidemill.tasks WHERE partition_key = 'k'",
    );
    expect(lanes).toHaveLength(1);
  });

  it("gets the settings of its definition within seconds", async () => {
    const db = engineDatabase(database.url);
    onCleanup(() => db.close());
    const clock = new ManualClock();
    const directory = new QueueDirectory(db, clock);
    const known = await directory.findOrIntroduce("mails", { tenant: "acme", queuesMax: 1 });
    await define("mails", { maxAttempts: 2, keySpace: "orders" });
    clock.advance(4_999);
    expect(directory.peek("mails")).toBe(known);
    clock.advance(1);
    expect(directory.peek("mails")).toBe(known);
    await eventually(() => {
      expect(directory.peek("mails")).toMatchObject({
        isOpen: false,
        settings: { maxAttempts: 2 },
      });
    });
    const now = await directory.find("mails");
    expect(now.keySpaceId).not.toBe(known.keySpaceId);
    clock.advance(5_000);
    directory.peek("mails");
    await db.withConnection(() => Promise.resolve());
    expect(directory.peek("mails")).toBe(now);
  });

  it("that is one too many leaves no key space and draws none of its numbers", async () => {
    await introduce({ queue: "a" }, { queue: "b" }, { queue: "c" });
    const spaces = async (): Promise<number[]> => {
      const count = "SELECT count(*)::int FROM tidemill.key_spaces";
      const last = "SELECT last_value::int FROM tidemill.key_spaces_id_seq";
      const [rows = 0] = await readColumn<number>(database, count);
      const [drawn = 0] = await readColumn<number>(database, last);
      return [rows, drawn];
    };
    const before = await spaces();
    const refused = Array.from({ length: 20 }, (_, n) => ({ queue: `too-many-${n}` }));
    expect(await introduce(...refused)).toEqual(refused.map(() => "TM_INVALID_INPUT"));
    expect(await spaces()).toEqual(before);
  });

  it("is one of a few for each tenant", async () => {
    const stream = await codeqHello(server.codeq());
    const commands = ["a", "b", "c", "d", "e", "a"];
    codeqBatch(
      stream,
      commands.map((command, n) => ({ seq: BigInt(n), command })),
    );
    await stream.until(2);
    expect(codeqAcks(stream).map(({ ok }) => ok)).toEqual([true, true, true, false, false, true]);
    expect(codeqAcks(stream)[3]?.errorMessage).toMatch(
      /^there is no queue "d", and this tenant has introduced 3 queues/,
    );
    const other = await codeqHello(server.codeq(), GLOBEX);
    codeqBatch(other, [{ seq: 1n, command: "d" }]);
    await other.until(2);
    expect(codeqAcks(other)).toMatchObject([{ ok: true }]);
    codeqBatch(stream, [{ seq: 9n, command: "d" }]);
    await stream.until(3);
    expect(codeqAcks(stream).at(-1)).toMatchObject({ seq: 9n, ok: true });
  });
});
