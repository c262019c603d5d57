import { execFile } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect, it } from "vitest";
import { queue } from "../../../src/index.ts";
import { onCleanup, testDatabase } from "../../support/database.ts";
import { program } from "../../support/programs.ts";
import { cli, runCli } from "./cli.ts";

const run = promisify(execFile);

it("top is a line for each look in a pipe, and ends when it was asked to", async () => {
  const database = await testDatabase();
  const mill = await database.connect();
  await mill.enqueue(queue("mails"), { to: "Ada" });
  await mill.append({ type: "Order", id: "1" }, [{ type: "OrderPlaced" }]);
  const said = await cli(database.url, "top", "--interval", "0.1", "--count", "2");
  const [first, second] = said.split("\n");
  expect(first).toBe("position 1  - events/s  0 workers  mails 1 live");
  expect(second).toBe("position 1  0.0 events/s  0 workers  mails 1 live (0.0/s)");
});

it("top redraws a terminal until q", async (context) => {
  const script = await run("script", ["--version"]).catch(() => undefined);
  if (script === undefined) return context.skip("script of util-linux is not installed");
  const database = await testDatabase();
  await database.connect();
  const command = `'${process.execPath}' '${program("src/cli/main.ts")}' top --interval 0.1`;
  // Whoever types q does so once there is something to see.
  const typist = `( until grep -q "q quits" "$1"; do sleep 0.1; done; printf q ) |
    script --quiet --flush --return --command "$2" "$1"`;
  const folder = mkdtempSync(join(tmpdir(), "tidemill-top-"));
  onCleanup(() => Promise.resolve(rmSync(folder, { recursive: true })));
  const seen = join(folder, "screen");
  writeFileSync(seen, "");
  const env = { ...process.env, DATABASE_URL: database.url };
  const { stdout } = await run("bash", ["-c", typist, "bash", seen, command], { env });
  expect(stdout).toContain("position");
  expect(stdout).toContain("No worker is running.");
  expect(stdout.endsWith("\u001B[?25h")).toBe(true); // The cursor is there again.
});

/** What bash offers for the last of these words. */
async function offered(script: string, ...words: string[]): Promise<string[]> {
  const ask = `source "$1"; shift
    COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _tidemill
    printf '%s\\n' "\${COMPREPLY[@]}"`;
  const { stdout } = await run("bash", ["-c", ask, "bash", script, "tidemill", ...words]);
  return stdout.trim().split("\n");
}

it("bash completes commands, their flags, and what these may be", async () => {
  const folder = mkdtempSync(join(tmpdir(), "tidemill-completion-"));
  onCleanup(() => Promise.resolve(rmSync(folder, { recursive: true })));
  const script = join(folder, "tidemill.bash");
  writeFileSync(script, (await runCli(["completion", "bash"])).stdout);
  expect(await offered(script, "st")).toEqual(["status"]);
  expect(await offered(script, "")).not.toContain("dev-worker");
  expect(await offered(script, "queue", "pau")).toEqual(["pause", "pause-key"]);
  expect(await offered(script, "queue", "pause", "--re")).toEqual(["--reason"]);
  expect(await offered(script, "--schema", "queue", "task", "enq")).toEqual(["enqueue"]);
  expect(await offered(script, "migrate", "--partition-strategy", "")).toEqual(["none", "native"]);
  expect(await offered(script, "completion", "f")).toEqual(["fish"]);
  expect(await offered(script, "task", "list", "--json", "--col")).toEqual(["--column-family"]);
});

it("scripts for zsh and fish know the same commands", async () => {
  const [zsh, fish] = await Promise.all([
    runCli(["completion", "zsh"]),
    runCli(["completion", "fish"]),
  ]);
  expect(zsh.stdout).toMatch(/^#compdef tidemill\n.*\nautoload -U \+X bashcompinit/);
  expect(zsh.stdout).toContain("complete -o default -F _tidemill tidemill");
  expect(fish.stdout).toContain(
    "complete -c tidemill -n '__tidemill_at '\\''dead'\\''' -f -a 'redrive'",
  );
  expect(fish.stdout).toMatch(/-l partition-strategy -x -a 'none native'/);
});
