import { execFile } from "node:child_process";
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { queue } from "../../../src/index.ts";
import { copyRepository } from "../../support/clone.ts";
import { testDatabase } from "../../support/database.ts";
import { ROOT } from "../../support/tidy/repository.ts";
import { startNode } from "../cli/cli.ts";
import { blocksOf, readPage } from "../docs/blocks.ts";

const run = promisify(execFile);
const TIMEOUT_MS = 300_000;
const START = "Start in 60 seconds";
const NEXTJS = "docs/how-to/use-with-nextjs.md";

let folder: string;
/** A project with nothing in it, in which the first minute of README.md is tried. */
let app: string;
let packed: string[];
const version = async (): Promise<string> =>
  (JSON.parse(await readFile(join(ROOT, "package.json"), "utf8")) as { version: string }).version;

/** The fenced blocks of a language below a heading. */
const blocks = (page: string, language: string, heading: string): string[] =>
  blocksOf(page, language)
    .filter((block) => block.heading === heading)
    .map(({ code }) => code);

/** Types commands into a shell, with what they need and no more words than a page has. */
async function type(commands: string, env: NodeJS.ProcessEnv = {}): Promise<string> {
  const quiet = {
    npm_config_prefer_offline: "true",
    npm_config_ignore_scripts: "true",
    npm_config_audit: "false",
    npm_config_fund: "false",
    npm_config_update_notifier: "false",
  };
  const options = { cwd: app, env: { ...process.env, ...quiet, ...env } };
  return (await run("sh", ["-e", "-c", commands], options)).stdout;
}

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "tidemill-pack-"));
  const source = join(folder, "source");
  app = join(folder, "app");
  await mkdir(app);
  // Only what the repository holds is packed, and the checkout's own dist stays as it is.
  await copyRepository(source, /^(test|docs|bench|examples)\//);
  await run("npm", ["run", "build", "--silent"], { cwd: source });
  const { stdout } = await run(
    "npm",
    ["pack", "--json", "--ignore-scripts", "--pack-destination", folder],
    { cwd: source },
  );
  const [tarball] = JSON.parse(stdout) as { filename: string; files: { path: string }[] }[];
  packed = tarball?.files.map((file) => file.path) ?? [];
  await writeFile(join(app, "package.json"), '{ "private": true }');
  const [install = ""] = blocks("README.md", "sh", START);
  expect(install).toBe("npm i tidemill\nnpm i -D tsx");
  // The package that would be published next, instead of the last one.
  await type(install.replace("tidemill", join(folder, tarball?.filename ?? "")));
}, TIMEOUT_MS);

afterAll(() => rm(folder, { recursive: true, force: true }));

describe("the packed package", () => {
  it("does in the first minute what README.md says", async () => {
    const [start = "", ...others] = blocks("README.md", "ts", START);
    expect(others).toEqual([]);
    await writeFile(join(app, "start.mts"), start);
    const [, command = ""] = blocks("README.md", "sh", START);
    expect(command).toMatch(/^DATABASE_URL=\S+ npx tsx start\.mts$/);
    const { url } = await testDatabase({ migrated: false });
    const said = await type(command.replace(/DATABASE_URL=\S+/, `DATABASE_URL='${url}'`));
    expect(said).toBe("[ { cents: 4200 } ]\n");
    expect(readPage("README.md")).toContain(`It prints \`${said.trim()}\``);
  });

  it("runs the worker that the page on Next.js describes", async () => {
    const project = join(app, "next"); // Finds what is installed above it.
    await mkdir(join(project, "lib"), { recursive: true });
    await writeFile(join(project, "package.json"), '{ "private": true }');
    const files = blocksOf(NEXTJS, "ts").flatMap(({ code }) => {
      const [, name = ""] = /^\/\/ (lib\/mill\.ts|worker\.mts)$/m.exec(code) ?? [];
      return name === "" ? [] : [{ name, code }];
    });
    expect(files.map(({ name }) => name)).toEqual(["lib/mill.ts", "worker.mts"]);
    for (const { name, code } of files) await writeFile(join(project, name), code);
    const start = ["--import", "tsx", "worker.mts"];
    expect(blocks(NEXTJS, "sh", "The worker")).toEqual(["npm i tsx", `node ${start.join(" ")}`]);
    const database = await testDatabase();
    const mill = await database.connect();
    const { id } = await mill.enqueue(queue("receipts"), { order: "1", to: "ada" });
    const worker = startNode(start, { cwd: project, env: { DATABASE_URL: database.url } });
    await mill.result(id);
    worker.child.kill("SIGTERM");
    expect(await worker.ended).toEqual({ code: 0, stdout: "", stderr: "" });
  });

  it("holds the compiled sources, the migrations and the wire contracts, and no tests", () => {
    expect(packed).toContain("dist/index.js");
    expect(packed).toContain("dist/index.d.ts");
    expect(packed).toContain("dist/cli/main.js");
    expect(packed).toContain("sql/migrations/0001_event_store.sql");
    expect(packed).toContain("sql/migrations/0001_event_store.native.sql");
    expect(packed).toContain("proto/tidemill/v1/worker.proto");
    expect(packed).toContain("dist/dashboard/index.html");
    const scripts = packed.filter((path) => /^dist\/dashboard\/assets\/.+\.js\.br$/.test(path));
    expect(scripts).toHaveLength(3); // The page, its shared worker, the shop of the demo.
    expect(packed).toContain("deploy/kubernetes/server.yaml");
    const others = /^(dist|sql|proto|deploy)\/|^(package\.json|README\.md|LICENSE|CHANGELOG\.md)$/;
    expect(packed.filter((path) => !others.test(path))).toEqual([]);
    expect(packed.filter((path) => /\.test\./.test(path))).toEqual([]);
  });

  it("finds its dashboard, and loads no package for it", async () => {
    const script = `
      import { Dashboard } from "./node_modules/tidemill/dist/server/http/dashboard.js";
      const page = Dashboard.find().answer(new Request("http://localhost/"));
      console.log(page.status, (await page.text()).includes("/assets/index-"));`;
    await writeFile(join(app, "dashboard.mjs"), script);
    const { stdout } = await run(process.execPath, ["dashboard.mjs"], { cwd: app });
    expect(stdout.trim()).toBe("200 true");
    const installed = await readdir(join(app, "node_modules"));
    expect(installed).not.toContain("react");
    expect(installed).not.toContain("vite");
  });

  it("runs its command", async () => {
    const { stdout } = await run("npx", ["--no-install", "tidemill", "--version"], { cwd: app });
    expect(stdout.trim()).toBe(await version());
  });

  it("is imported as an ES module, and finds its migrations", async () => {
    const script = `
      import { Tidemill, VERSION, consumer } from "tidemill";
      const failure = await Tidemill.migrate("postgres://nobody@127.0.0.1:1/none", { dryRun: true })
        .catch((error) => error.code);
      console.log(JSON.stringify([VERSION, typeof consumer, failure]));`;
    await writeFile(join(app, "script.mjs"), script);
    const { stdout } = await run(process.execPath, ["script.mjs"], { cwd: app });
    expect(JSON.parse(stdout)).toEqual([await version(), "function", "TM_UNAVAILABLE"]);
  });

  it("has types that a strict compiler resolves, and that refuse what is wrong", async () => {
    const program = `
      import { type Consumer, consumer, Tidemill } from "tidemill";
      export const books: Consumer = consumer("books", { handle: (event) => event.position + 1n });
      export const mill: Promise<Tidemill> = Tidemill.connect("postgres://localhost/app");
      consumer("books", { handle: (event) => event.position + 1 });`;
    await writeFile(join(app, "program.mts"), program);
    const options = "--noEmit --strict --module nodenext --target es2023".split(" ");
    const types = ["--lib", "es2023,esnext.disposable", "--types", "node"];
    const roots = ["--typeRoots", join(ROOT, "node_modules/@types")];
    const compiler = join(ROOT, "node_modules/typescript/bin/tsc");
    const { stdout } = await run(
      process.execPath,
      [compiler, ...options, ...types, ...roots, "program.mts"],
      { cwd: app },
    ).catch((error: { stdout: string }) => error);
    expect(stdout.trim().split("\n")).toEqual([expect.stringMatching(/^program\.mts\(5,.*TS2365/)]);
  });

  it("does not let others import its insides", async () => {
    await writeFile(join(app, "inside.mjs"), 'import "tidemill/dist/base/clock.js";');
    await expect(run(process.execPath, ["inside.mjs"], { cwd: app })).rejects.toThrow(
      "ERR_PACKAGE_PATH_NOT_EXPORTED",
    );
  });
});
