import { execFile } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect, it } from "vitest";
import { queue } from "../../../src/index.ts";
import type { ServerOptions } from "../../../src/server/index.ts";
import { onCleanup } from "../../support/database.ts";
import { ACME, ACME_WORKER, type Scene, scene } from "../server/scene.ts";
import { type Block, blocksOf, REPOSITORY } from "./blocks.ts";

const run = promisify(execFile);
const PAGE = "docs/how-to/run-the-server.md";

const works = async (command: string, args: readonly string[]): Promise<boolean> =>
  await run(command, [...args]).then(
    () => true,
    () => false,
  );

function block(language: string, holds: string): Block {
  const found = blocksOf(PAGE, language).find(({ code }) => code.includes(holds));
  if (found === undefined) throw new Error(`${PAGE} has no ${language} with ${holds}`);
  return found;
}

/** The repository's folder of messages is where the page expects that of the package. */
async function stage(
  server: ServerOptions = {},
): Promise<Scene & { env: NodeJS.ProcessEnv; folder: string }> {
  const made = await scene({ server });
  const folder = mkdtempSync(join(tmpdir(), "tidemill-docs-"));
  onCleanup(() => Promise.resolve(rmSync(folder, { recursive: true })));
  const env = { ...process.env, TIDEMILL_PRODUCER: made.url, TIDEMILL_TOKEN: ACME };
  return { ...made, env, folder };
}

async function payloads({ database }: Scene): Promise<unknown> {
  const { rows } = await database.pool.query(
    "SELECT tenant, queue, payload FROM tidemill.tasks ORDER BY id",
  );
  return rows;
}

const STORED = [{ tenant: "acme", queue: "mails", payload: '{"to":"ada"}' }];

const hasPython = (): Promise<boolean> => works("python3", ["-c", "import grpc, grpc_tools"]);
const NO_PYTHON = "python3 with grpcio and grpcio-tools is not installed";

/** What the Python program of the page that has the word prints. */
async function python(
  word: string,
  { folder, env }: { readonly folder: string; readonly env: NodeJS.ProcessEnv },
): Promise<string> {
  const compile = block("sh", "grpc_tools.protoc").code.replace(
    "-I proto",
    `-I ${join(REPOSITORY, "proto")}`,
  );
  await run("sh", ["-c", compile], { cwd: folder, env });
  writeFileSync(join(folder, "client.py"), block("python", word).code);
  return (await run("python3", ["client.py"], { cwd: folder, env })).stdout;
}

it("a stock Python client of the page handles a task", async (context) => {
  if (!(await hasPython())) return context.skip(NO_PYTHON);
  const { folder, env, mill, server } = await stage({ worker: { port: 0 } });
  const { id } = await mill.enqueue(queue("mails"), { to: "ada" }, { tenant: "acme" });
  const worker = `127.0.0.1:${server.address("worker").port}`;
  const more = { TIDEMILL_WORKER: worker, TIDEMILL_WORKER_TOKEN: ACME_WORKER };
  const printed = await python("WorkerStreamStub", { folder, env: { ...env, ...more } });
  expect(printed).toBe('mails {"to":"ada"}\ncompleted\n');
  expect(await mill.result(id)).toEqual({ sent: true });
});

it("a stock Python client of the page creates a task", async (context) => {
  if (!(await hasPython())) return context.skip(NO_PYTHON);
  const { folder, env, ...made } = await stage();
  const stdout = await python("ProducerStreamStub", { folder, env });
  expect(stdout).toMatch(/^\d+\n$/);
  expect(await payloads(made)).toEqual(STORED);
});

it("grpcurl creates a task as the page says", async (context) => {
  if (!(await works("grpcurl", ["-version"]))) return context.skip("grpcurl is not installed");
  const { env, ...made } = await stage();
  const { code } = block("sh", "grpcurl -plaintext -import-path");
  const { stdout } = await run("sh", ["-c", code], { cwd: REPOSITORY, env });
  expect(stdout).toContain('"taskId"');
  expect(await payloads(made)).toEqual(STORED);
});

it("grpcurl needs no files of a server that reflects", async (context) => {
  if (!(await works("grpcurl", ["-version"]))) return context.skip("grpcurl is not installed");
  const { env } = await stage({ reflection: true });
  const { code } = block("sh", "describe tidemill.v1.NewTask");
  const { stdout } = await run("sh", ["-c", code], { cwd: REPOSITORY, env });
  expect(stdout).toContain("producerpb.ProducerStream\n");
  expect(stdout).toContain("grpc.health.v1.Health\n");
  expect(stdout).toContain("bytes payload = ");
  const all = await run("sh", ["-c", 'grpcurl -plaintext "$TIDEMILL_PRODUCER" describe'], { env });
  expect(all.stdout).toContain("rpc Stream ( stream .tidemill.v1.FromProducer )");
});

it("tokens of the page are such as the server takes", async () => {
  const { createAuth } = await import("../../../src/server/index.ts");
  const { tokens } = JSON.parse(block("json", "tokens").code) as { tokens: [{ token: string }] };
  const { mill } = await scene();
  const { authenticator } = createAuth({ staticTokens: tokens as never }, { db: mill.engine.db });
  expect(await authenticator.authenticate(tokens[0].token)).toMatchObject({ tenant: "acme" });
});
