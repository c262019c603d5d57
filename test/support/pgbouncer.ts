import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { chownSync, existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import pg from "pg";
import { eventually } from "./eventually.ts";

const BINARY = "/usr/sbin/pgbouncer";
/** PgBouncer refuses to run as root. */
const NOBODY = 65534;

/** Why the tests that need it cannot run on this machine. */
export function whyNoPgBouncer(): string | undefined {
  return existsSync(BINARY) ? undefined : "pgbouncer is not installed";
}

export interface PgBouncer {
  readonly port: string;
  /** The same database, through the pooler. */
  through(url: string): string;
  /** Runs a command of its console, such as `PAUSE`. */
  command(text: string): Promise<readonly object[]>;
  /** Cuts off all its clients, and is back at the same address. */
  restart(): Promise<void>;
  stop(): Promise<void>;
}

/** A pooler in transaction mode before `server`, with the settings that hurt the most. */
export async function startPgBouncer(
  server: string,
  settings: Readonly<Record<string, string>> = {},
): Promise<PgBouncer> {
  const port = settings["listen_port"] ?? String(await freePort());
  const folder = mkdtempSync(join(tmpdir(), "tidemill-pgbouncer-"));
  const ini = writeConfiguration(folder, new URL(server), {
    listen_addr: "127.0.0.1",
    listen_port: port,
    unix_socket_dir: "",
    auth_type: "trust",
    auth_file: join(folder, "users.txt"),
    admin_users: new URL(server).username,
    pool_mode: "transaction",
    default_pool_size: "6",
    max_client_conn: "400",
    // Consecutive transactions of a client meet different sessions.
    server_round_robin: "1",
    ...settings,
  });
  const through = (url: string): string => {
    const pooled = new URL(url);
    pooled.host = `127.0.0.1:${port}`;
    return pooled.href;
  };
  const consoleUrl = new URL(through(server));
  consoleUrl.pathname = "/pgbouncer";
  let child: ChildProcess | undefined;
  const launch = async (): Promise<void> => {
    child = await launchPgBouncer(ini, () => ask(through(server), "SELECT 1"));
  };
  const stop = async (): Promise<void> => {
    if (child !== undefined) await end(child);
    rmSync(folder, { recursive: true, force: true });
  };
  const restart = async (): Promise<void> => {
    if (child !== undefined) await end(child);
    await launch();
  };
  await launch().catch(async (error: unknown) => {
    await stop();
    throw error;
  });
  return { port, through, command: (text) => ask(consoleUrl.href, text), restart, stop };
}

/** Returns when the pooler answers. */
async function launchPgBouncer(ini: string, isUp: () => Promise<unknown>): Promise<ChildProcess> {
  const asNobody = process.getuid?.() === 0 ? { uid: NOBODY, gid: NOBODY } : {};
  const child = spawn(BINARY, [ini], { stdio: ["ignore", "ignore", "pipe"], ...asNobody });
  let output = "";
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    output = (output + text).slice(-4_000);
  });
  try {
    await eventually(async () => {
      if (child.exitCode === null) await isUp();
    });
    if (child.exitCode !== null) throw new Error(`pgbouncer ended with ${child.exitCode}`);
    return child;
  } catch (error) {
    await end(child);
    throw new Error(`pgbouncer did not start: ${output}`, { cause: error });
  }
}

function writeConfiguration(
  folder: string,
  server: URL,
  settings: Readonly<Record<string, string>>,
): string {
  const lines = Object.entries(settings).map(([key, value]) => `${key} = ${value}`);
  const files = {
    "pgbouncer.ini": [
      "[databases]",
      `* = host=${server.hostname} port=${server.port || "5432"}`,
      "[pgbouncer]",
      ...lines,
    ].join("\n"),
    "users.txt": `"${server.username}" "${decodeURIComponent(server.password)}"\n`,
  };
  for (const [name, text] of Object.entries(files)) {
    writeFileSync(join(folder, name), text, { mode: 0o600 });
    if (process.getuid?.() === 0) chownSync(join(folder, name), NOBODY, NOBODY);
  }
  if (process.getuid?.() === 0) chownSync(folder, NOBODY, NOBODY);
  return join(folder, "pgbouncer.ini");
}

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exited = once(child, "exit");
  child.kill("SIGTERM");
  await exited;
}

async function ask(url: string, text: string): Promise<readonly object[]> {
  const client = new pg.Client({ connectionString: url });
  client.on("error", () => {});
  try {
    await client.connect();
    return (await client.query<object>(text)).rows;
  } finally {
    await client.end().catch(() => {});
  }
}

async function freePort(): Promise<number> {
  const server = createServer();
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  server.close();
  await once(server, "close");
  if (address === null || typeof address === "string") throw new Error("no port");
  return address.port;
}
