import { execFile } from "node:child_process";
import { copyFile, mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import type pg from "pg";
import { expect, it } from "vitest";
import { consumer, Tidemill } from "../../../src/index.ts";
import { onCleanup, type TestDatabase, testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { allPages, type Block, blocksOf, REPOSITORY } from "./blocks.ts";

const run = promisify(execFile);
/** Quick to notice events, and with the heartbeats of every day: nobody is to be taken for dead. */
const QUICK = { pollInterval: 50, maxPollInterval: 200, dispatcherInterval: 50 };

/** What a block without imports of its own may use: the page has introduced it. */
const INTRODUCED = `import { consumer, Tidemill, TidemillError } from "tidemill";
declare const mill: Tidemill;
`;

it("every TypeScript block of the documents type-checks", async () => {
  const blocks = (await allPages()).flatMap((page) => blocksOf(page, "ts"));
  expect(blocks.length).toBeGreaterThan(20);
  // Inside node_modules, where types and packages resolve and other tools do not look.
  const folder = await mkdtemp(join(REPOSITORY, "node_modules", ".snippets-"));
  onCleanup(() => rm(folder, { recursive: true }));
  await Promise.all(
    blocks.map(async ({ page, line, code }) => {
      const file = join(folder, page.replace(/\.md$/, ""), `line-${line}.ts`);
      await mkdir(dirname(file), { recursive: true });
      const hasImports = /^import /m.test(code);
      await writeFile(file, `${hasImports ? "" : INTRODUCED}${code}\nexport {};\n`);
    }),
  );
  await writeFile(join(folder, "package.json"), '{ "type": "module" }');
  await copyFile(join(import.meta.dirname, "frameworks.d.ts"), join(folder, "frameworks.d.ts"));
  await writeFile(
    join(folder, "tsconfig.json"),
    JSON.stringify({
      extends: "../../tsconfig.json",
      compilerOptions: {
        // A block that shows one thing leaves others unused.
        noUnusedLocals: false,
        noUnusedParameters: false,
        // Users of NestJS write decorators, and properties as parameters.
        experimentalDecorators: true,
        erasableSyntaxOnly: false,
      },
      include: ["**/*.ts"],
      exclude: [],
    }),
  );
  const tsc = join(REPOSITORY, "node_modules", ".bin", "tsc");
  const checked = await run(tsc, ["--project", folder], { cwd: folder }).catch(
    (error: unknown) => error as { stdout: string },
  );
  expect(checked.stdout).toBe("");
});

/**
 * A database in which every section of the page has something to show: a hole, a gap that is held,
 * a quarantined and a parked consumer.
 */
async function troubledDatabase(): Promise<{ database: TestDatabase; holder: number }> {
  const database = await testDatabase();
  const mill = await database.connect();
  const handle = (event: { type: string }): void => {
    if (event.type === "Poison") throw new Error("cannot digest this");
  };
  const healthy = consumer("audit_v1", { handle: () => {} });
  const options = { ...QUICK, maxConsecutiveFailures: 1, leaderStrategy: "advisory" as const };
  const orderView = consumer("order_view_v1", { handle });
  const parking = consumer("parking_v1", { handle, onFailure: "park" });
  await mill.startWorker({ consumers: [healthy, orderView, parking], ...options });

  const writer = await database.session();
  await writer.query("BEGIN");
  await mill.append({ type: "Order", id: "1" }, [{ type: "Placed" }], { tx: writer });
  await writer.query("ROLLBACK"); // Position 1 never comes.
  const poison = await mill.append({ type: "Order", id: "1" }, [{ type: "Poison" }]);
  await mill.waitFor(healthy, poison);
  await mill.waitFor(parking, poison);
  await eventually(async () => {
    expect((await mill.consumers.progress("order_view_v1")).state).toBe("quarantined");
  });

  await writer.query("BEGIN");
  await mill.append({ type: "Order", id: "2" }, [{ type: "Placed" }], { tx: writer });
  await mill.append({ type: "Order", id: "3" }, [{ type: "Placed" }]);
  const { rows } = await writer.query<{ pid: number }>("SELECT pg_backend_pid() AS pid");
  return { database, holder: rows[0]?.pid ?? 0 };
}

it("every query of the troubleshooting page runs and shows what its section says", async () => {
  const { database, holder } = await troubledDatabase();
  const blocks = blocksOf("docs/operations/troubleshooting.md", "sql");
  expect(blocks.length).toBeGreaterThan(15);
  const found = new Map<string, Record<string, unknown>[]>();
  for (const block of blocks) {
    const rows = await rowsOf(database.pool, block);
    found.set(block.heading, [...(found.get(block.heading) ?? []), ...rows]);
  }
  const shows = (heading: string, row: Record<string, unknown>): void =>
    expect(found.get(heading)).toContainEqual(expect.objectContaining(row));

  shows("Workers and their age", { status: "active" });
  shows("Who leads", { term: "1" });
  shows("Who leads", { application_name: "tidemill leader" });
  shows("Assignments", { consumer_name: "audit_v1" });
  shows("Lag", { consumer_name: "order_view_v1", latest: "4", state: "quarantined" });
  // The checkpoint stands at the hole or below it; the event is found all the same.
  shows("The event at a stuck position", { global_position: "2", event_type: "Poison" });
  shows("Quarantined and paused consumers", { position: "2", error: "cannot digest this" });
  shows("Parked streams", { stream_id: "1", state: "parked", waiting: "1" });
  shows("Open gaps and who holds them", { position: "3" });
  shows("Open gaps and who holds them", { pid: holder, state: "idle in transaction" });
  shows("Open gaps and who holds them", { consumer_name: "audit_v1", gap_position: "1" });
  shows("Connections", { application_name: "tidemill reader" });
});

it("the statements for other programs append an event", async () => {
  const database = await testDatabase();
  const blocks = blocksOf("docs/reference/tables.md", "sql");
  expect(blocks.length).toBe(1);
  for (const block of blocks) await rowsOf(database.pool, block);
  const mill = await database.connect();
  const [event] = await mill.readStream({ type: "Order", id: "9182" });
  expect(event?.data).toEqual({ cents: 4200 });
});

it("the privileges of the settings page are enough to append and to run a worker", async () => {
  const database = await testDatabase();
  const suffix = new URL(database.url).pathname.slice(-12);
  const [app, appender, worker] = ["app", "appender", "worker"].map((role) => `${role}_${suffix}`);
  for (const role of [app, appender, worker]) {
    await database.pool.query(`CREATE ROLE ${role} LOGIN PASSWORD 'x'`);
    onCleanup(() => database.pool.query(`DROP OWNED BY ${role}; DROP ROLE ${role}`));
  }
  const statements = blocksOf("docs/operations/server-settings.md", "sql").map(({ code }) =>
    code.replace(/\b(app|appender|worker)(?=[;\s])/g, (role) => `${role}_${suffix}`),
  );
  await database.pool.query(statements.join("\n"));

  const as = async (role = ""): Promise<Tidemill> => {
    const url = Object.assign(new URL(database.url), { username: role, password: "x" });
    const mill = await Tidemill.connect(url.href);
    onCleanup(() => mill.close());
    return mill;
  };
  const writer = await as(appender);
  const stream = { type: "Order", id: "1" };
  await writer.append(stream, [{ type: "Placed" }], { expectedVersion: "no-stream" });
  await writer.append(stream, [{ type: "Paid" }], { expectedVersion: 1 });
  expect(await writer.readStream(stream)).toHaveLength(2);

  const runner = await as(worker);
  const audit = consumer("audit_v1", { handle: () => {} });
  expect(await runner.runToHead({ consumers: [audit], ...QUICK })).toBe(2n);
  await runner.consumers.rewind("audit_v1", { to: 0n });
  expect((await runner.status()).consumers).toMatchObject([{ checkpoint: 0n }]);
});

async function rowsOf(pool: pg.Pool, block: Block): Promise<Record<string, unknown>[]> {
  try {
    const result = (await pool.query(block.code)) as pg.QueryResult | pg.QueryResult[];
    return [result].flat().flatMap((one) => one.rows as Record<string, unknown>[]);
  } catch (error) {
    throw new Error(`${block.page}:${block.line}: ${String(error)}`, { cause: error });
  }
}
