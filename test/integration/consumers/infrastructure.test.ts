import { chmod, mkdtemp, rm } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { type EmbeddedPostgres, startEmbedded } from "../../../src/embedded/launcher.ts";
import { type Consumer, consumer, type EventHandler, type Tidemill } from "../../../src/index.ts";
import { onCleanup, type TestDatabase, testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { scratch } from "../../support/scratch.ts";
import {
  appendEvents,
  createHandled,
  expectOnceInOrder,
  readHandled,
  recordHandled,
  STEADY,
  statusOf,
} from "./handled.ts";

/** One failure of the handler would quarantine. */
const OPTIONS = { ...STEADY, maxConsecutiveFailures: 1, batchSize: 10 };

const slowly: EventHandler = async (event, context) => {
  await recordHandled(event, context);
  await context.tx.query("SELECT pg_sleep(0.005)");
};

/** Cuts every connection of ours each time another ten events were handled. */
async function consumeUnderFire(
  database: TestDatabase,
  mill: Tidemill,
  books: Consumer,
  count: number,
): Promise<number> {
  let cut = 0;
  for (let goal = 10; goal < count; goal += 10) {
    await eventually(async () => {
      expect((await readHandled(database.pool)).length).toBeGreaterThanOrEqual(goal);
    });
    const { rows } = await database.pool.query(
      `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND application_name LIKE 'tidemill%'`,
    );
    cut += rows.length;
  }
  await eventually(() => mill.waitFor(books, { position: BigInt(count) }));
  return cut;
}

describe("a lost connection", () => {
  it.each<[string, EventHandler]>([
    ["passes errors on", slowly],
    [
      "throws its own error instead",
      async (event, context) => {
        try {
          await slowly(event, context);
        } catch {
          throw new Error("could not book this");
        }
      },
    ],
    [
      "swallows every error",
      async (event, context) => {
        try {
          await slowly(event, context);
        } catch {
          // As if nothing had happened.
        }
      },
    ],
  ])("is never the fault of a handler that %s", async (_, handle) => {
    const database = await testDatabase();
    await createHandled(database);
    const mill = await database.connect();
    const books = consumer("books", { handle });
    const positions = await appendEvents(mill, 80);
    const worker = mill.worker({ consumers: [books], ...OPTIONS });
    const stop = new AbortController();
    const running = worker.start(stop.signal);
    expect(await consumeUnderFire(database, mill, books, 80)).toBeGreaterThan(7);
    expect(await statusOf(mill, "books")).toMatchObject({ state: "running", poison: undefined });
    await expectOnceInOrder(database.pool, "books", positions);
    stop.abort();
    await running;
  });
});

describe("a restart of PostgreSQL", () => {
  async function ownServer(): Promise<EmbeddedPostgres> {
    const folder = await mkdtemp(join(scratch(), "tidemill-restart-"));
    await chmod(folder, 0o755); // As root the server runs as another user.
    onCleanup(() => rm(folder, { recursive: true, force: true }));
    const server = await startEmbedded({ dataDir: join(folder, "data") });
    onCleanup(async () => {
      const { port, dataDir } = server;
      await (await startEmbedded({ dataDir, port })).stop("immediate");
    });
    return server;
  }

  it.each(["fast", "immediate"] as const)(
    "(%s) is outlived by the worker, which loses and repeats nothing",
    async (mode) => {
      const server = await ownServer();
      const { url, dataDir, port } = server;
      const database = await testDatabase({ server: url });
      await createHandled(database);
      const mill = await database.connect();
      const books = consumer("books", { handle: slowly });
      const positions = await appendEvents(mill, 60);
      const worker = mill.worker({ consumers: [books], ...OPTIONS });
      const ending = new AbortController();
      const running = worker.start(ending.signal);
      await eventually(async () => {
        expect((await readHandled(database.pool)).length).toBeGreaterThanOrEqual(20);
      });
      await server.stop(mode);
      await startEmbedded({ dataDir, port });
      positions.push(...(await eventually(() => appendEvents(mill, 1))));
      await mill.waitFor(books, { position: positions.at(-1) ?? 0n });
      expect(await statusOf(mill, "books")).toMatchObject({ state: "running", poison: undefined });
      await expectOnceInOrder(database.pool, "books", positions);
      ending.abort();
      await running;
    },
  );
});
