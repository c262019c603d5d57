import { execFile } from "node:child_process";
import { cp, mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { FILES, ROOT } from "../../support/tidy/repository.ts";

const run = promisify(execFile);
const TIMEOUT_MS = 120_000;

let folder: string;
/** Where the package is installed as its users do. */
let app: string;
let packed: string[];
const version = async (): Promise<string> =>
  (JSON.parse(await readFile(join(ROOT, "package.json"), "utf8")) as { version: string }).version;

/** Only what the repository holds is packed, and the checkout's own dist stays as it is. */
async function copyRepository(to: string): Promise<void> {
  for (const file of FILES.filter((one) => !/^(test|docs|bench|examples)\//.test(one))) {
    await mkdir(dirname(join(to, file)), { recursive: true });
    await cp(join(ROOT, file), join(to, file));
  }
  await symlink(join(ROOT, "node_modules"), join(to, "node_modules"));
}

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "tidemill-pack-"));
  const source = join(folder, "source");
  app = join(folder, "app");
  await mkdir(app);
  await copyRepository(source);
  await run("npm", ["run", "build", "--silent"], { cwd: source });
  const { stdout } = await run(
    "npm",
    ["pack", "--json", "--ignore-scripts", "--pack-destination", folder],
    { cwd: source },
  );
  const [tarball] = JSON.parse(stdout) as { filename: string; files: { path: string }[] }[];
  packed = tarball?.files.map((file) => file.path) ?? [];
  await writeFile(join(app, "package.json"), '{ "private": true, "type": "module" }');
  const quiet = ["--prefer-offline", "--ignore-scripts", "--no-audit", "--no-fund"];
  await run("npm", ["install", ...quiet, join(folder, tarball?.filename ?? "")], { cwd: app });
}, TIMEOUT_MS);

afterAll(() => rm(folder, { recursive: true, force: true }));

describe("the packed package", () => {
  it("holds the compiled sources, the migrations and the wire contracts, and no tests", () => {
    expect(packed).toContain("dist/index.js");
    expect(packed).toContain("dist/index.d.ts");
    expect(packed).toContain("dist/cli/main.js");
    expect(packed).toContain("sql/migrations/0001_event_store.sql");
    expect(packed).toContain("sql/migrations/0001_event_store.native.sql");
    expect(packed).toContain("proto/tidemill/v1/worker.proto");
    expect(packed).toContain("dist/dashboard/index.html");
    const scripts = packed.filter((path) => /^dist\/dashboard\/assets\/.+\.js\.br$/.test(path));
    expect(scripts).toHaveLength(2);
    const others = /^(dist|sql|proto)\/|^(package\.json|README\.md|LICENSE|CHANGELOG\.md)$/;
    expect(packed.filter((path) => !others.test(path))).toEqual([]);
    expect(packed.filter((path) => /\.test\./.test(path))).toEqual([]);
  });

  it("finds its dashboard, and loads no package for it", async () => {
    const script = `
      import { Dashboard } from "./node_modules/tidemill/dist/server/http/dashboard.js";
      const page = Dashboard.find().answer(new Request("http://localhost/"));
      console.log(page.status, (await page.text()).includes("/assets/index-"));`;
    await writeFile(join(app, "dashboard.js"), script);
    const { stdout } = await run(process.execPath, ["dashboard.js"], { cwd: app });
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
    await writeFile(join(app, "script.js"), script);
    const { stdout } = await run(process.execPath, ["script.js"], { cwd: app });
    expect(JSON.parse(stdout)).toEqual([await version(), "function", "TM_UNAVAILABLE"]);
  });

  it("has types that a strict compiler resolves, and that refuse what is wrong", async () => {
    const program = `
      import { type Consumer, consumer, Tidemill } from "tidemill";
      export const books: Consumer = consumer("books", { handle: (event) => event.position + 1n });
      export const mill: Promise<Tidemill> = Tidemill.connect("postgres://localhost/app");
      consumer("books", { handle: (event) => event.position + 1 });`;
    await writeFile(join(app, "program.ts"), program);
    const options = "--noEmit --strict --module nodenext --target es2023".split(" ");
    const types = ["--lib", "es2023,esnext.disposable", "--types", "node"];
    const roots = ["--typeRoots", join(ROOT, "node_modules/@types")];
    const compiler = join(ROOT, "node_modules/typescript/bin/tsc");
    const { stdout } = await run(
      process.execPath,
      [compiler, ...options, ...types, ...roots, "program.ts"],
      { cwd: app },
    ).catch((error: { stdout: string }) => error);
    expect(stdout.trim().split("\n")).toEqual([expect.stringMatching(/^program\.ts\(5,.*TS2365/)]);
  });

  it("does not let others import its insides", async () => {
    await writeFile(join(app, "inside.js"), 'import "tidemill/dist/base/clock.js";');
    await expect(run(process.execPath, ["inside.js"], { cwd: app })).rejects.toThrow(
      "ERR_PACKAGE_PATH_NOT_EXPORTED",
    );
  });
});
