import { execFile } from "node:child_process";
import { mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect, it } from "vitest";
import { onCleanup } from "../../support/database.ts";
import { blocksOf, REPOSITORY } from "../docs/blocks.ts";

const run = promisify(execFile);
const PAGE = "docs/how-to/own-transaction-with-other-libraries.md";

it("the page has a block for every adapter, and all of them type-check", async () => {
  const blocks = blocksOf(PAGE, "typescript");
  const used = blocks.flatMap(({ code }) => /"tidemill\/adapters\/([\w-]+)"/.exec(code)?.[1] ?? []);
  const adapters = await readdir(join(REPOSITORY, "src/adapters"));
  expect(used.map((name) => `${name}.ts`).sort()).toEqual(adapters.sort());

  // Inside node_modules, where types and packages resolve and other tools do not look.
  const folder = await mkdtemp(join(REPOSITORY, "node_modules", ".adapters-"));
  onCleanup(() => rm(folder, { recursive: true }));
  await Promise.all(
    blocks.map(({ line, code }) => writeFile(join(folder, `line-${line}.ts`), code)),
  );
  await writeFile(join(folder, "package.json"), '{ "type": "module" }');
  const paths = {
    tidemill: ["../../src/index.ts"],
    "tidemill/adapters/*": ["../../src/adapters/*.ts"],
  };
  await writeFile(
    join(folder, "tsconfig.json"),
    JSON.stringify({
      extends: "../../tsconfig.json",
      compilerOptions: { paths },
      include: ["*.ts"],
      exclude: [],
    }),
  );
  const tsc = join(REPOSITORY, "node_modules", ".bin", "tsc");
  const checked = await run(tsc, ["--project", folder], { cwd: folder }).catch(
    (error: unknown) => error as { stdout: string },
  );
  expect(checked.stdout).toBe("");
});
