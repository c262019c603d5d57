import { existsSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { blocksOf, REPOSITORY, readPage } from "./blocks.ts";

it("names the two commands, which package.json has", () => {
  const commands = blocksOf("README.md", "sh").map((block) => block.code);
  expect(commands.join("\n")).toMatch(/^npm ci && npm run dev /m);
  expect(commands.join("\n")).toMatch(/^npm ci && npm test /m);
  const { scripts, engines } = JSON.parse(readPage("package.json")) as {
    scripts: Record<string, string>;
    engines: { node: string };
  };
  expect(Object.keys(scripts)).toEqual(expect.arrayContaining(["dev", "test", "bench"]));
  expect(readPage("README.md")).toContain(`Node ${engines.node.replace(">=", "")} or newer`);
});

it("names tests that exist", () => {
  const named = Array.from(readPage("README.md").matchAll(/`(test\/[^`]+)`/g), ([, path]) => path);
  expect(named.length).toBeGreaterThan(10);
  expect(named.filter((path) => !existsSync(join(REPOSITORY, path ?? "")))).toEqual([]);
});

it("has a table that can be read as it is written", () => {
  const rows = readPage("README.md").match(/^\|.*$/gm) ?? [];
  expect(rows.length).toBeGreaterThan(10);
  expect(new Set(rows.map((row) => row.length)).size).toBe(1);
});
