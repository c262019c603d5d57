import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { chmod, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { expect, it } from "vitest";
import { removeEmbedded } from "../../../src/embedded/launcher.ts";
import { copyRepository } from "../../support/clone.ts";
import { onCleanup } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { blocksOf, readPage } from "./blocks.ts";

/** .ci/run says 15, on a machine that does nothing else. Here other tests run beside it. */
const SECONDS_MAX = Number(process.env["TIDEMILL_TEST_DEV_SECONDS"] ?? 90);

/** Whether any process of a group is there. */
function isAlive(group: number): boolean {
  try {
    return process.kill(-group, 0);
  } catch {
    return false;
  }
}

it("npm run dev shows the dashboard of a clean clone soon, and Ctrl-C ends all of it", async () => {
  const folder = await mkdtemp(join(tmpdir(), "tidemill-clone-"));
  await chmod(folder, 0o755); // As root the server runs as another user.
  onCleanup(() => rm(folder, { recursive: true, force: true }));
  const clone = join(folder, "clone");
  await copyRepository(clone);
  const [commands = ""] = blocksOf("README.md", "sh").map(({ code }) => code);
  const [, command = ""] = /^npm ci && (npm run dev) /m.exec(commands) ?? [];
  expect(command).toBe("npm run dev");

  // Not among the data that whoever runs the tests has.
  const dataDir = join(folder, "data");
  onCleanup(() => removeEmbedded(dataDir));
  const startedAt = performance.now();
  const shell = spawn("sh", ["-c", `${command} -- --data-dir '${dataDir}'`], {
    cwd: clone,
    env: { ...process.env, DATABASE_URL: "", NODE_ENV: "" },
    stdio: ["ignore", "pipe", "inherit"],
    detached: true, // A group of its own, as a terminal gives it one.
  });
  const group = shell.pid ?? 0;
  const closed = once(shell, "close");
  onCleanup(async () => {
    if (isAlive(group)) process.kill(-group, "SIGKILL");
    await closed;
  });
  const said: string[] = [];
  createInterface({ input: shell.stdout }).on("line", (line) => said.push(line));
  const url = await eventually(
    () => {
      const found = /Dashboard: (http:\S+\/),/.exec(said.join("\n"))?.[1];
      if (found === undefined) throw new Error(`no dashboard in:\n${said.join("\n")}`);
      return found;
    },
    { timeoutMs: SECONDS_MAX * 1_000 },
  );
  const page = await fetch(url);
  const html = await page.text();
  expect([page.status, html]).toEqual([200, expect.stringContaining("<title>")]);
  const script = await fetch(new URL(/src="([^"]+\.js)"/.exec(html)?.[1] ?? "nothing", url));
  expect([script.status, script.headers.get("content-type")]).toEqual([
    200,
    expect.stringContaining("javascript"),
  ]);
  const seconds = (performance.now() - startedAt) / 1_000;
  expect(seconds).toBeLessThan(SECONDS_MAX);
  expect(readPage("README.md")).toContain("within 15 seconds");

  await eventually(() => expect(said.join("\n")).toMatch(/^position [1-9]/m), {
    timeoutMs: 30_000,
  });
  process.kill(-group, "SIGINT");
  await closed;
  expect(said.at(-1)).toBe("Stopped");
  expect(said.join("\n")).toMatch(/lost 0 · doubled 0 · out of order 0/);
  await eventually(() => expect(isAlive(group)).toBe(false));
  expect(existsSync(join(dataDir, "postmaster.pid"))).toBe(false);
}, 180_000);
