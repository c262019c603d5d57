import { existsSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it } from "vitest";
import { runProgram } from "../../../examples/run-program.ts";
import { onCleanup, testDatabase } from "../../support/database.ts";
import { blocksOf, REPOSITORY, readPage } from "./blocks.ts";

it("the program of the first minute runs as it stands in README.md", async () => {
  const [start, ...others] = blocksOf("README.md", "ts");
  expect(start?.heading).toBe("Start in 60 seconds");
  expect(others).toEqual([]);
  const folder = await mkdtemp(join(tmpdir(), "tidemill-readme-"));
  onCleanup(() => rm(folder, { recursive: true }));
  const file = join(folder, "start.mts");
  await writeFile(file, start?.code ?? "");
  const database = await testDatabase({ migrated: false });
  expect(await runProgram(file, database.url)).toEqual(["[ { cents: 4200 } ]"]);
  expect(readPage("README.md")).toContain("It prints `[ { cents: 4200 } ]`");
}, 60_000);

it("names the two commands, which package.json has", () => {
  const commands = blocksOf("README.md", "sh").map((block) => block.code);
  expect(commands.join("\n")).toMatch(/^npm ci && npm run dev /m);
  expect(commands.join("\n")).toMatch(/^npm ci && npm test /m);
  const { scripts, name, engines } = JSON.parse(readPage("package.json")) as {
    scripts: Record<string, string>;
    name: string;
    engines: { node: string };
  };
  expect(Object.keys(scripts)).toEqual(expect.arrayContaining(["dev", "test", "bench"]));
  expect(commands).toContain(`npm i ${name}\nnpm i -D tsx`);
  expect(readPage("README.md")).toContain(`Node ${engines.node.replace(">=", "")} or newer`);
});

it("names tests that exist", () => {
  const named = Array.from(readPage("README.md").matchAll(/`(test\/[^`]+)`/g), ([, path]) => path);
  expect(named.length).toBeGreaterThan(10);
  expect(named.filter((path) => !existsSync(join(REPOSITORY, path ?? "")))).toEqual([]);
});
