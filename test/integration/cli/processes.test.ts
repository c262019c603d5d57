import { beforeAll, expect, it } from "vitest";
import { buildProgram } from "../../../src/cli/program.ts";
import { queue } from "../../../src/index.ts";
import { type TestDatabase, testDatabase } from "../../support/database.ts";
import { runCli, STAYING, startCli } from "./cli.ts";
import type { CliResult } from "./here.ts";

let database: TestDatabase;

/** Nothing that changes while it is looked at. */
beforeAll(async () => {
  database = await testDatabase({ until: "file" });
  const mill = await database.connect();
  await mill.tasks.cancel((await mill.enqueue(queue("mails"), 1)).id);
});

/** One for each command that ends by itself, and what goes wrong in either way. */
const COMMANDS: readonly [line: string, code: number][] = [
  ["", 0],
  ["--version", 0],
  ["migrate --json", 0],
  ["status --json", 0],
  ["top --interval 0.1 --count 1", 0],
  ["consumer list", 0],
  ["task list --queue mails --json", 0],
  ["why 4711", 1],
  ["queue list --json", 0],
  ["ring", 0],
  ["dead list", 0],
  ["schedule add x --cron @daily", 2],
  ["webhook list", 0],
  ["subscription list", 0],
  ["key list", 0],
  ["tenant list", 0],
  ["completion bash", 0],
];

it("each command is here", () => {
  const named = new Set(COMMANDS.map(([line]) => line.split(" ")[0]));
  const program = buildProgram();
  const names = program
    .createHelp()
    .visibleCommands(program)
    .map((one) => one.name());
  const ending = names.filter((name) => !STAYING.includes(name));
  expect(ending.filter((name) => !named.has(name))).toEqual([]);
});

/** The status says when it was read, which is twice here. */
const undated = ({ stdout, ...rest }: CliResult): CliResult => ({
  ...rest,
  stdout: stdout.replace(/"at": *"[^"]+"/, '"at":"then"'),
});

// The other tests run commands without a process, and may do so because of this one.
it.each(COMMANDS)("a process says and returns the same: tidemill %s", async (line, code) => {
  const args = line === "" ? [] : line.split(" ");
  const env = { DATABASE_URL: database.url };
  const ended = await startCli(args, { env }).ended;
  expect(ended.code).toBe(code);
  expect(undated(await runCli(args, { env }))).toEqual(undated(ended));
});
