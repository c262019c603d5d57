import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { Tidemill } from "tidemill";
import { TidemillServer } from "tidemill/server";
import type { OpenOptions, ServerPorts } from "../tasks/protocol.ts";
import type { Closeable } from "../tasks/role.ts";
import { CALLS_PER_SECOND, TOKEN } from "./token.ts";

const HOST = "127.0.0.1";
const CALLER = { token: TOKEN, tenant: "bench", scopes: ["producer", "worker"] } as const;

/** What alone has the database: one process, or several as `tidemill serve` runs them. */
export async function openServer(options: OpenOptions): Promise<Closeable> {
  const { url, server: ports, serverProcesses = 1 } = options;
  if (ports === undefined) throw new Error("where is the server to listen?");
  return serverProcesses === 1
    ? await openHere(url, ports)
    : await openProcesses(url, ports, serverProcesses);
}

async function openHere(url: string, ports: ServerPorts): Promise<Closeable> {
  const mill = await Tidemill.connect(url);
  const server = new TidemillServer(mill, {
    host: HOST,
    producer: { port: ports.producer },
    worker: { port: ports.worker },
    http: { port: ports.http },
    httpLimits: { callsPerSecond: CALLS_PER_SECOND, callsBurst: CALLS_PER_SECOND },
    metrics: false,
    drainSeconds: 1,
    auth: { staticTokens: [CALLER] },
  });
  await server.start();
  return {
    async close() {
      await server.stop();
      await mill.close();
    },
  };
}

async function openProcesses(url: string, ports: ServerPorts, count: number): Promise<Closeable> {
  const folder = mkdtempSync(join(tmpdir(), "tidemill-bench-"));
  const tokens = join(folder, "tokens.json");
  writeFileSync(tokens, JSON.stringify([CALLER]), { mode: 0o600 });
  const flags = {
    host: HOST,
    producer: ports.producer,
    worker: ports.worker,
    http: ports.http,
    metrics: "off",
    "drain-seconds": 1,
    "tokens-file": tokens,
    processes: count,
  };
  const main = join(dirname(fileURLToPath(import.meta.resolve("tidemill"))), "cli", "main.js");
  const given = Object.entries(flags).map(([name, value]) => `--${name}=${value}`);
  const servers = spawn(process.execPath, [main, "serve", ...given], {
    env: { ...process.env, DATABASE_URL: url },
    stdio: ["ignore", "pipe", "inherit"],
  });
  const gone = once(servers, "exit");
  // However this process ends: who shares the ports takes the others along.
  process.once("exit", () => servers.kill("SIGKILL"));
  await serving(servers, count);
  return {
    async close() {
      servers.kill("SIGTERM");
      await gone;
      rmSync(folder, { recursive: true });
    },
  };
}

/** Resolves when all of them say that they serve. */
async function serving(servers: ChildProcess, count: number): Promise<void> {
  if (servers.stdout === null) throw new Error("the servers cannot be heard");
  const lines = createInterface({ input: servers.stdout });
  let left = count;
  await new Promise<void>((resolve, reject) => {
    servers.once("exit", () => reject(new Error("the servers ended before they served")));
    lines.on("line", (line) => {
      if (!line.includes('"message":"serving"')) return;
      left -= 1;
      if (left === 0) resolve();
    });
  });
}
