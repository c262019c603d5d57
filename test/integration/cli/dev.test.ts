import { execFile } from "node:child_process";
import { chmodSync, existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, it } from "vitest";
import { removeEmbedded } from "../../../src/embedded/launcher.ts";
import { testDatabase } from "../../support/database.ts";
import { cli, runCli, startCli, tableCounts } from "./cli.ts";

const run = promisify(execFile);
let folder: string;
let dataDir: string;

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "tidemill-dev-"));
  chmodSync(folder, 0o755); // As root the server runs as another user.
  dataDir = join(folder, "data");
});

afterAll(async () => {
  await removeEmbedded(dataDir);
  rmSync(folder, { recursive: true, force: true });
});

const isServerThere = (): boolean => existsSync(join(dataDir, "postmaster.pid"));

it("runs once in a pipe: plain lines, everything checked, no server left", async () => {
  const { code, stdout, stderr } = await runCli(["dev", "--once", "--data-dir", dataDir]);
  expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
  expect(stdout).not.toContain("\u001B");
  expect(stdout).toMatch(/^Database: postgres:\/\/\S+$/m);
  expect(stdout).toMatch(/^position \d+ {2}\d+ events\/s .*order_view \d+ behind.* leader /m);
  expect(stdout).toMatch(
    /^Handled (\d+) of \1 events, did (\d+) of \2 tasks: lost 0 · doubled 0 · out of order 0$/m,
  );
  expect(stdout).toMatch(/\nStopped\n$/);
  expect(isServerThere()).toBe(false);
});

it("starts a server, and prints a curl that works when it is pasted", async (context) => {
  const curl = await run("curl", ["--version"]).catch(() => undefined);
  if (curl === undefined) return context.skip("curl is not installed");
  const { url } = await testDatabase({ migrated: false });
  const dev = startCli(["dev", "--workers", "1", "--rate", "1"], { env: { DATABASE_URL: url } });
  const create = await dev.line(/^ {2}curl .*\/v1\/tasks .*-d /);
  const list = await dev.line(/^ {2}curl .*Bearer dev-read-/);
  const made = JSON.parse((await run("sh", ["-c", create])).stdout) as object;
  expect(made).toMatchObject({ queue: "hello", id: expect.any(String) });
  const { tasks } = JSON.parse((await run("sh", ["-c", list])).stdout) as { tasks: object[] };
  // The shop may have made some of its own, before it and since.
  const kept = tasks.filter((task) => "queue" in task && task.queue === "hello");
  expect(kept).toMatchObject([{ ...made, state: "pending", payload: { name: "Ada" } }]);
  for (const scope of ["producer", "worker", "read", "admin"]) {
    expect(await dev.line(new RegExp(`^ {2}${scope} +dev-${scope}-`))).not.toBe("");
  }
  const [, http = "", admin = ""] =
    /URL='(.*)' TOKEN='(.*)'$/.exec(await dev.line(/^ {2}export /)) ?? [];
  const statusFor = async (token: string): Promise<number> =>
    (await fetch(`${http}/v1/demo`, { headers: { authorization: `Bearer ${token}` } })).status;
  const reader = /Bearer (dev-read-\w+)/.exec(list)?.[1] ?? "";
  expect([await statusFor(admin), await statusFor(reader)]).toEqual([200, 403]);
  dev.child.kill("SIGTERM");
  expect(await dev.ended).toMatchObject({ code: 0, stderr: "" });
});

it("Ctrl-C stops in order; a second one on the same data adopts the server", async () => {
  const first = startCli(["dev", "--data-dir", dataDir, "--rate", "50"]);
  // The server is a worker, too, and so is who calls the courier.
  await first.line(/^position [1-9].* 4 workers {2}leader [0-9a-f]/);
  const second = await runCli(["dev", "--once", "--workers", "1", "--data-dir", dataDir]);
  expect(second).toMatchObject({ code: 0, stderr: "" });
  expect(second.stdout).toMatch(/ran there already, and stays when this ends/);
  expect(second.stdout).not.toMatch(/Stopping PostgreSQL/);
  expect(isServerThere()).toBe(true);
  first.child.kill("SIGINT");
  const { code, stdout, stderr } = await first.ended;
  expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
  expect(stdout).toMatch(/Stopping the workers\n.*out of order 0\nStopping PostgreSQL\nStopped\n$/);
  expect(isServerThere()).toBe(false);
}, 120_000);

it("uses a database that is given, and keeps its password to itself", async () => {
  const { url } = await testDatabase({ migrated: false });
  const { password } = new URL(url);
  const said = await cli(url, "dev", "--once");
  expect(said).toMatch(/tasks: lost 0 · doubled 0 · out of order 0/);
  expect(said).not.toContain(password);
  expect(JSON.parse(await cli(url, "consumer", "list", "--json"))).toMatchObject([
    { name: "order_view", lag: "0" },
    { name: "revenue" },
    { name: "shipping" },
  ]);
});

it("refuses a log that is not a demo's", async () => {
  const database = await testDatabase();
  const mill = await database.connect();
  await mill.append({ type: "Invoice", id: "1" }, [{ type: "InvoiceSent" }]);
  const before = await tableCounts(database.pool);
  const refused = await runCli(["dev"], { env: { DATABASE_URL: database.url } });
  expect(refused.code).toBe(2);
  expect(refused.stderr).toMatch(/^tidemill: the log .* is not a demo's[^\n]+\n$/);
  expect(await tableCounts(database.pool)).toEqual(before);
});
