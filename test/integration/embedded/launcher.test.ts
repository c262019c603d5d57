import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import {
  chmod,
  chown,
  copyFile,
  link,
  lstat,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  rm,
  stat,
  writeFile,
} from "node:fs/promises";
import { createServer, type Server } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { Client } from "pg";
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from "vitest";
import { ConfigError, UnavailableError } from "../../../src/base/errors.ts";
import { findInstallation } from "../../../src/embedded/binaries.ts";
import {
  type EmbeddedOptions,
  type EmbeddedPostgres,
  removeEmbedded,
  startEmbedded,
} from "../../../src/embedded/launcher.ts";
import { prepareInstallation } from "../../../src/embedded/native-tree.ts";
import { findProcess } from "../../../src/embedded/process-table.ts";
import { runtimeUser } from "../../../src/embedded/runtime-user.ts";
import { launchServer } from "../../../src/embedded/server-process.ts";
import { eventually } from "../../support/eventually.ts";

// Processes are started and killed by the dozen, which takes its time beside other tests.
vi.setConfig({ testTimeout: 90_000 });

const LAUNCHER = new URL("../../../src/embedded/launcher.ts", import.meta.url).href;
const PROJECT = fileURLToPath(new URL("../../..", import.meta.url));
const SYSTEM_15 = "/usr/lib/postgresql/15";
const NOBODY = 65_534;
const isRoot = process.getuid?.() === 0;

let directory: string;
/** Most tests use one cluster in turn, each leaving it stopped: initdb is what takes time. */
let dataDir: string;
let native: string;
const clusters = new Set<string>();

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), "tidemill-embedded-"));
  await chmod(directory, 0o755); // The server runs as another user when we are root.
  dataDir = join(directory, "data");
  native = await findInstallation({ cacheDir: join(directory, "cache"), major: "18" });
});

afterEach(async () => {
  for (const one of clusters) {
    if (one !== dataDir) await removeEmbedded(one);
    else if (existsSync(join(one, "postmaster.pid")))
      await (await startEmbedded({ dataDir })).stop();
  }
  clusters.clear();
});

afterAll(async () => {
  await removeEmbedded(dataDir);
  expect(await readdir(directory)).not.toContain("data");
  await rm(directory, { recursive: true, force: true });
});

async function start(options: Partial<EmbeddedOptions> = {}): Promise<EmbeddedPostgres> {
  const where = options.dataDir ?? dataDir;
  clusters.add(where);
  return await startEmbedded({
    settings: { fsync: "off" },
    cacheDir: join(directory, "cache"),
    ...options,
    dataDir: where,
  });
}

async function query(url: string, text: string): Promise<Record<string, unknown>[]> {
  const client = new Client(url);
  // A server that is killed under us ends the connection with an error of its own.
  client.on("error", () => undefined);
  await client.connect();
  try {
    return (await client.query<Record<string, unknown>>(text)).rows;
  } finally {
    await client.end();
  }
}

interface Reported {
  readonly url: string;
  readonly pid: number;
  readonly adopted: boolean;
}

/** Starts a server in another process, which then waits to be killed. */
function startElsewhere(
  where: string,
  as: { readonly uid?: number; readonly gid?: number; readonly temporary?: string } = {},
): { readonly child: ChildProcess; readonly reported: Promise<Reported> } {
  clusters.add(where);
  const options = { dataDir: where, cacheDir: join(directory, "cache") };
  const code = `
    import { startEmbedded } from ${JSON.stringify(LAUNCHER)};
    const { url, pid, adopted } = await startEmbedded(${JSON.stringify(options)});
    process.stdout.write(JSON.stringify({ url, pid, adopted }) + "\\n");
    process.stdin.resume();`;
  const args = ["--import", "tsx", "--input-type=module", "--eval", code];
  const { temporary = directory, ...identity } = as;
  const env = { ...process.env, TMPDIR: temporary };
  const child = spawn(process.execPath, args, { ...identity, env, cwd: PROJECT });
  let complaints = "";
  child.stderr.on("data", (chunk: Buffer) => {
    complaints += chunk.toString();
  });
  const lines = createInterface({ input: child.stdout });
  const line = once(lines, "line").then(([text]) => JSON.parse(String(text)) as Reported);
  const ended = once(child, "exit").then((): never => {
    throw new Error(`the other process ended early: ${complaints}`);
  });
  ended.catch(() => undefined); // It is killed on purpose later.
  return { child, reported: Promise.race([line, ended]) };
}

async function kill(child: ChildProcess): Promise<void> {
  const exited = once(child, "exit");
  child.kill("SIGKILL");
  await exited;
}

async function isAlive(pid: number): Promise<boolean> {
  return (await findProcess(pid)) !== undefined;
}

/** Hard links where the file system allows, because the binaries are big. */
async function copyWithoutLinks(from: string, to: string): Promise<void> {
  await mkdir(to);
  for (const entry of await readdir(from, { withFileTypes: true })) {
    const [source, target] = [join(from, entry.name), join(to, entry.name)];
    if (entry.isDirectory()) await copyWithoutLinks(source, target);
    else if (entry.isFile()) await link(source, target).catch(() => copyFile(source, target));
  }
}

async function occupiedPort(): Promise<{ readonly server: Server; readonly port: number }> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  return { server, port: typeof address === "object" ? (address?.port ?? 0) : 0 };
}

describe("a started server", () => {
  it("keeps its data over a stop and a restart", async () => {
    const first = await start();
    expect(first).toMatchObject({ adopted: false, version: "18", dataDir });
    await query(first.url, "CREATE TABLE kept AS SELECT 42 AS answer");
    await first.stop();
    expect(await isAlive(first.pid)).toBe(false);
    await first.stop(); // A second stop has nothing to do.

    const second = await start();
    expect(second.adopted).toBe(false);
    expect(await query(second.url, "SELECT answer FROM kept")).toEqual([{ answer: 42 }]);
  });

  it("wants its password, which only its owner can read", async () => {
    const { url } = await start();
    const wrong = new URL(url);
    wrong.password = "guessed";
    await expect(query(wrong.href, "SELECT 1")).rejects.toMatchObject({ code: "28P01" });
    const { mode } = await stat(join(dataDir, "tidemill-password"));
    expect(mode & 0o777).toBe(0o600);
    const rules = "SELECT DISTINCT auth_method FROM pg_hba_file_rules";
    expect(await query(url, rules)).toEqual([{ auth_method: "scram-sha-256" }]);
  });

  it("listens on loopback only, with the given settings, and shows its log", async () => {
    const lines: string[] = [];
    const server = await start({
      settings: { work_mem: "5MB" },
      onLog: (line) => lines.push(line),
    });
    const asked =
      "SELECT current_setting('listen_addresses') AS a, current_setting('work_mem') AS m";
    expect(await query(server.url, asked)).toEqual([{ a: "127.0.0.1", m: "5MB" }]);
    await server.stop();
    expect(lines.join("\n")).toMatch(/ready to accept connections.*database system is shut down/s);
  });

  it("recovers what was committed when it was stopped like a crash", async () => {
    const first = await start();
    await query(first.url, "CREATE TABLE committed AS SELECT 7 AS answer");
    await first.stop("immediate");
    const second = await start();
    expect(await query(second.url, "SELECT answer FROM committed")).toEqual([{ answer: 7 }]);
  });

  it("starts again after it was killed and left its pid file", async () => {
    const first = await start();
    await query(first.url, "CREATE TABLE survived AS SELECT 1 AS answer");
    process.kill(first.pid, "SIGKILL");
    await eventually(async () => expect(await isAlive(first.pid)).toBe(false));
    expect(existsSync(join(dataDir, "postmaster.pid"))).toBe(true);

    const second = await start();
    expect(second.adopted).toBe(false);
    expect(await query(second.url, "SELECT answer FROM survived")).toEqual([{ answer: 1 }]);
  });

  it("does not start beside an orphaned backend that still uses the data", async () => {
    const first = await start();
    const orphan = new Client(first.url);
    orphan.on("error", () => undefined);
    await orphan.connect();
    const { rows } = await orphan.query<{ pid: number }>("SELECT pg_backend_pid() AS pid");
    const pid = rows[0]?.pid ?? 0;
    // Busy and not waiting, it does not notice the death of its server before it is done: some
    // time after there is a file.
    const file = join(directory, "done");
    const busy = orphan.query(`DO $$
      DECLARE finish timestamptz := clock_timestamp() + interval '60 s';
      BEGIN
        WHILE clock_timestamp() < finish AND (pg_stat_file('${file}', true)).size IS NULL LOOP
        END LOOP;
        finish := clock_timestamp() + interval '1.5 s';
        WHILE clock_timestamp() < finish LOOP END LOOP;
      END $$`);
    const state = `SELECT state FROM pg_stat_activity WHERE pid = ${pid}`;
    await eventually(async () =>
      expect(await query(first.url, state)).toEqual([{ state: "active" }]),
    );
    process.kill(first.pid, "SIGKILL");
    await eventually(async () => expect(await isAlive(first.pid)).toBe(false));
    expect(await isAlive(pid)).toBe(true);

    await Promise.all([start(), writeFile(file, "")]);
    expect(await isAlive(pid)).toBe(false);
    await busy; // It even answered, from beyond the grave.
    await orphan.end();
  });

  it("is not confused by a pid file whose pid is another program's by now", async () => {
    const first = await start();
    const pidFile = join(dataDir, "postmaster.pid");
    const written = await readFile(pidFile, "utf8");
    await first.stop();
    const { uid, gid } = await stat(dataDir);
    // The same user as the server's: PostgreSQL by itself would refuse to start.
    const other = spawn("sleep", ["600"], isRoot ? { uid, gid } : {});
    await once(other, "spawn");
    try {
      await writeFile(pidFile, written.replace(/^\d+/, String(other.pid)), { mode: 0o600 });
      if (isRoot) await chown(pidFile, uid, gid);
      const second = await start();
      expect(second.adopted).toBe(false);
      expect(second.pid).not.toBe(other.pid);
      expect(await isAlive(other.pid ?? 0)).toBe(true);
      await second.stop();
    } finally {
      await kill(other);
    }
  });
});

describe("adoption", () => {
  it("finds the server of a process that was killed", async () => {
    const { child, reported } = startElsewhere(dataDir);
    const theirs = await reported;
    await kill(child);
    expect(await isAlive(theirs.pid)).toBe(true);

    const ours = await start();
    expect(ours).toMatchObject({ adopted: true, pid: theirs.pid, url: theirs.url });
    expect(await query(ours.url, "SELECT 1 AS one")).toEqual([{ one: 1 }]);
    await ours.stop();
    expect(await isAlive(theirs.pid)).toBe(false);
  });

  it("starts anew when that server was killed too, and may be a zombie nobody reaps", async () => {
    const { child, reported } = startElsewhere(dataDir);
    const theirs = await reported;
    await kill(child);
    process.kill(theirs.pid, "SIGKILL");
    await eventually(async () => expect(await isAlive(theirs.pid)).toBe(false));

    const ours = await start();
    expect(ours.adopted).toBe(false);
    expect(await query(ours.url, "SELECT 1 AS one")).toEqual([{ one: 1 }]);
  });

  it("ends with one server when two processes and ourselves start at the same moment", async () => {
    const where = join(directory, "contended");
    const others = [startElsewhere(where), startElsewhere(where)];
    try {
      const all = await Promise.all([
        ...others.map(({ reported }) => reported),
        start({ dataDir: where }),
        start({ dataDir: where }),
      ]);
      expect(new Set(all.map(({ pid }) => pid)).size).toBe(1);
      expect(all.filter(({ adopted }) => !adopted)).toHaveLength(1);
      for (const { url } of all) expect(await query(url, "SELECT 1 AS one")).toEqual([{ one: 1 }]);
    } finally {
      await Promise.all(others.map(({ child }) => kill(child)));
    }
  });

  it("refuses another port or version than the running server has", async () => {
    const { port } = await start();
    await expect(start({ port: port === 65_535 ? 1024 : port + 1 })).rejects.toThrow(ConfigError);
    await expect(start({ version: "17" })).rejects.toThrow("is of PostgreSQL 18");
    expect((await start({ port, version: "18" })).adopted).toBe(true);
  });
});

describe("a server that cannot start", () => {
  it("reports its last words", async () => {
    const attempt = start({ settings: { shared_buffers: "plenty" } });
    await expect(attempt).rejects.toThrow(UnavailableError);
    await expect(attempt).rejects.toThrow('invalid value for parameter "shared_buffers"');
  });

  it("reports a fixed port that is taken", async () => {
    const { server, port } = await occupiedPort();
    try {
      await expect(start({ port })).rejects.toThrow(/could not bind IPv4 address/);
    } finally {
      server.close();
    }
  });

  it("tries another port when the one it found was taken meanwhile", async () => {
    await (await start()).stop();
    const { server, port } = await occupiedPort();
    const user = await runtimeUser(dataDir);
    const installation = await prepareInstallation(native, user, join(directory, "cache"));
    let picks = 0;
    const pickPort = async (): Promise<number> => {
      picks += 1;
      if (picks === 2) server.close();
      return port;
    };
    await launchServer({ installation, dataDir, user, settings: {}, pickPort });
    expect(picks).toBe(2);
    expect(await start()).toMatchObject({ adopted: true, port });
  });

  it.each(["port", "listen_addresses", "no such name"])("refuses the setting %s", async (name) => {
    await expect(start({ settings: { [name]: "1" } })).rejects.toThrow(ConfigError);
  });
});

describe("binaries", () => {
  it("get the links that npm did not make", async () => {
    const bare = join(directory, "bare");
    await copyWithoutLinks(native, bare);
    expect(existsSync(join(bare, "lib", "libpq.so.5"))).toBe(false);
    const server = await start({ installation: bare });
    expect(await query(server.url, "SELECT 1 AS one")).toEqual([{ one: 1 }]);
    expect((await lstat(join(bare, "lib", "libpq.so.5"))).isSymbolicLink()).toBe(true);
  });

  it("are copied when the runtime user cannot reach them", async (context) => {
    if (!isRoot) context.skip("only root runs the server as another user");
    const closed = join(directory, "closed-binaries");
    await mkdir(closed, { mode: 0o700 });
    await copyWithoutLinks(native, join(closed, "native"));
    const server = await start({ installation: join(closed, "native") });
    expect(await query(server.url, "SELECT 1 AS one")).toEqual([{ one: 1 }]);
    const [command] = (await readFile(join(dataDir, "postmaster.opts"), "utf8")).split(" ");
    expect(command?.startsWith(join(directory, "cache", "copy-"))).toBe(true);
  });

  it("of the system serve when they are named", async (context) => {
    if (!existsSync(SYSTEM_15)) context.skip(`no PostgreSQL in ${SYSTEM_15}`);
    const where = join(directory, "fifteen");
    const first = await start({ dataDir: where, installation: SYSTEM_15 });
    expect(first.version).toBe("15");
    const [row] = await query(first.url, "SHOW server_version");
    expect(row?.["server_version"]).toMatch(/^15\./);
    await first.stop();
    await expect(start({ dataDir: where, installation: native })).rejects.toThrow(
      "is PostgreSQL 18, and 15 is needed",
    );
  });
});

describe("data directories", () => {
  it("are refused where the runtime user cannot reach them", async (context) => {
    if (!isRoot) context.skip("only root runs the server as another user");
    const closed = join(directory, "closed-data");
    await mkdir(closed, { mode: 0o700 });
    const attempt = startEmbedded({ dataDir: join(closed, "deeper", "data") });
    await expect(attempt).rejects.toThrow(ConfigError);
    await expect(attempt).rejects.toThrow(`may not enter ${closed}`);
    expect(await readdir(closed)).toEqual([]);
  });

  it("are refused, and not removed, when they hold something else", async () => {
    const foreign = join(directory, "foreign");
    await mkdir(foreign);
    await writeFile(join(foreign, "thesis.txt"), "years of work");
    await expect(startEmbedded({ dataDir: foreign })).rejects.toThrow(ConfigError);
    await expect(removeEmbedded(foreign)).rejects.toThrow(ConfigError);
    expect(await readdir(foreign)).toEqual(["thesis.txt"]);
  });

  it("are made by an ordinary user too", async (context) => {
    if (!isRoot) context.skip("every other test runs as an ordinary user already");
    const home = join(directory, "ordinary");
    await mkdir(home, { mode: 0o700 });
    await chown(home, NOBODY, NOBODY);
    const where = join(home, "data");
    const nobody = { uid: NOBODY, gid: NOBODY, temporary: home };
    const { child, reported } = startElsewhere(where, nobody);
    const { url } = await reported;
    expect(await query(url, "SELECT 1 AS one")).toEqual([{ one: 1 }]);
    expect((await stat(where)).uid).toBe(NOBODY);
    await kill(child);
  });
});
