import { type ChildProcess, spawn } from "node:child_process";
import { chmodSync, mkdtempSync, rmSync } from "node:fs";
import { availableParallelism, tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import pg from "pg";
import { startEmbedded } from "../../src/embedded/launcher.ts";
import { Tidemill, VERSION } from "../../src/index.ts";

/** A server for one benchmark run, whose durability is asserted, and fresh databases on it. */
export interface BenchServer extends AsyncDisposable {
  readonly settings: Readonly<Record<string, unknown>>;
  /** Of the process whose children are its sessions. */
  readonly pid: number;
  /** A migrated database of its own. */
  database(): Promise<string>;
  /** A database of its own: empty, or a copy of one that nobody is connected to. */
  bareDatabase(copyOf?: string): Promise<string>;
  drop(database: string): Promise<void>;
}

/** A directory with bin, lib and share. Defaults to the binaries from npm. */
const installation = process.env["TIDEMILL_BENCH_POSTGRES"];

export async function startBenchServer(): Promise<BenchServer> {
  const folder = mkdtempSync(join(tmpdir(), "tidemill-bench-"));
  chmodSync(folder, 0o755);
  const server = await startEmbedded({
    dataDir: join(folder, "data"),
    settings: { shared_buffers: "1GB", max_connections: "200", max_wal_size: "4GB" },
    ...(installation === undefined ? {} : { installation }),
  });
  const guard = startGuard(server.pid, folder);
  const durable = await assertDurable(server.url);
  let count = 0;
  const bareDatabase = async (copyOf?: string): Promise<string> => {
    count += 1;
    const name = `bench_${count}`;
    const template = copyOf === undefined ? "" : ` TEMPLATE ${databaseOf(copyOf)}`;
    await withClient(server.url, (client) => client.query(`CREATE DATABASE ${name}${template}`));
    const url = new URL(server.url);
    url.pathname = `/${name}`;
    return url.href;
  };
  return {
    settings: {
      postgres: durable["server_version"],
      node: process.versions.node,
      tidemill: VERSION,
      cores: availableParallelism(),
      fsync: durable["fsync"],
      full_page_writes: durable["full_page_writes"],
      synchronous_commit: durable["synchronous_commit"],
    },
    pid: server.pid,
    async database() {
      const url = await bareDatabase();
      await Tidemill.migrate(url);
      return url;
    },
    bareDatabase,
    async drop(database) {
      const name = databaseOf(database);
      await withClient(server.url, (client) => client.query(`DROP DATABASE ${name} WITH (FORCE)`));
    },
    async [Symbol.asyncDispose]() {
      guard.kill();
      await server.stop("immediate");
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

/** Ends the server also when we are killed; not of our group, or Ctrl-C would end it before us. */
function startGuard(pid: number, folder: string): ChildProcess {
  const program = fileURLToPath(new URL("./server-guard.mjs", import.meta.url));
  const guard = spawn(process.execPath, [program, String(pid), folder], {
    stdio: ["pipe", "ignore", "inherit"],
    detached: true,
  });
  guard.unref();
  return guard;
}

const databaseOf = (url: string): string => new URL(url).pathname.slice(1);

/** Figures from a server that may lose commits would compare nothing. */
async function assertDurable(url: string): Promise<Record<string, string>> {
  const names = ["fsync", "full_page_writes", "synchronous_commit", "server_version"];
  const found = await withClient(url, async (client) => {
    const { rows } = await client.query<{ name: string; setting: string }>(
      "SELECT name, setting FROM pg_settings WHERE name = ANY($1)",
      [names],
    );
    return Object.fromEntries(rows.map((row) => [row.name, row.setting]));
  });
  for (const name of names.slice(0, 3)) {
    if (found[name] !== "on") throw new Error(`${name} is ${found[name]}, not on`);
  }
  return found;
}

export async function withClient<T>(
  url: string,
  work: (client: pg.Client) => Promise<T>,
): Promise<T> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    return await work(client);
  } finally {
    await client.end();
  }
}
