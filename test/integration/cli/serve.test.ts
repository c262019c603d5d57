import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it } from "vitest";
import { onCleanup, testDatabase } from "../../support/database.ts";
import { HOOKS_TEST } from "../../support/egress-certificate.ts";
import { eventually } from "../../support/eventually.ts";
import { serve } from "../../support/http-server.ts";
import { ecKey, signJwt, toJwk } from "../../support/issuer.ts";
import { codeqWorker } from "../../support/stream-client.ts";
import { type RunningCli, runCli, startCli } from "./cli.ts";
import { expectAllRefused } from "./refused.ts";

const TOKENS = {
  producer: "token-of-a-producer-0123456789",
  worker: "token-of-a-worker-0123456789",
} as const;

interface Line {
  readonly level: string;
  readonly message: string;
  readonly [field: string]: unknown;
}

function scratchDir(): string {
  const folder = mkdtempSync(join(tmpdir(), "tidemill-serve-"));
  onCleanup(() => Promise.resolve(rmSync(folder, { recursive: true })));
  return folder;
}

function tokensFile(): string {
  const file = join(scratchDir(), "tokens.json");
  const tokens = Object.entries(TOKENS).map(([scope, token]) => ({
    token,
    tenant: "acme",
    scopes: [scope],
  }));
  writeFileSync(file, JSON.stringify({ tokens }), { mode: 0o600 });
  return file;
}

interface TestIssuer {
  readonly flags: readonly string[];
  /** One that it has signed. */
  readonly token: string;
}

/** An issuer on this machine: what a server is to be told of it. */
async function testIssuer(): Promise<TestIssuer> {
  const key = ecKey("first");
  const { port } = await serve(
    (_, response) => void response.end(JSON.stringify({ keys: [toJwk(key)] })),
    { tls: HOOKS_TEST },
  );
  const ca = join(scratchDir(), "ca.pem");
  writeFileSync(ca, HOOKS_TEST.cert);
  const iss = "https://login.example.com/";
  const exp = Math.floor(Date.now() / 1000) + 300;
  const claims = { iss, aud: "tidemill", exp, sub: "clerk", tid: "acme" };
  const grant = { scope: "tidemill:read", eventTypes: ["*"] };
  return {
    token: signJwt({ ...claims, ...grant }, key),
    flags: [
      `--jwt-issuer=${iss}`,
      "--jwt-audience=other,tidemill",
      `--jwks-url=https://127.0.0.1:${port}/keys`,
      "--egress-allow-cidrs=127.0.0.1/32",
      `--egress-ports=${port}`,
      `--egress-ca=${ca}`,
    ],
  };
}

const FREE = ["--host", "127.0.0.1", "--http", "0", "--producer", "0", "--worker", "0"];
const ANY = [...FREE, "--metrics", "0"];

async function serving(running: RunningCli): Promise<Line> {
  return JSON.parse(await running.line(/"message":"serving"/)) as Line;
}

function linesOf(text: string): Line[] {
  return text
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line) as Line);
}

it("serves, drains at SIGTERM, says so at /readyz, and tells no secret", async () => {
  const { url } = await testDatabase();
  const { password } = new URL(url);
  const issuer = await testIssuer();
  const strict = ["--log-level", "debug", "--require-wall"];
  const running = startCli(
    ["serve", ...ANY, "--tokens-file", tokensFile(), ...issuer.flags, ...strict],
    { env: { DATABASE_URL: url, TIDEMILL_DRAIN_SECONDS: "20", TIDEMILL_DRIAN_SECONDS: "1" } },
  );
  const at = await serving(running);
  const http = `http://${String(at["http"])}`;
  const bearer = { authorization: `Bearer ${TOKENS.producer}` };
  const made = await fetch(`${http}/v1/tasks`, {
    method: "POST",
    headers: { ...bearer, "content-type": "application/json" },
    body: JSON.stringify({ queue: "mails", payload: { n: 1 } }),
  });
  expect(made.status).toBe(201);
  const { id } = (await made.json()) as { id: string };
  const refused = await fetch(`${http}/v1/tasks`, {
    headers: { authorization: "Bearer wrong-one" },
  });
  expect(refused.status).toBe(401);
  const clerk = await fetch(`${http}/v1/me`, {
    headers: { authorization: `Bearer ${issuer.token}` },
  });
  expect(await clerk.json()).toMatchObject({ tenant: "acme", subject: "clerk", scopes: ["read"] });
  const metrics = await fetch(`http://${String(at["metrics"])}/metrics`);
  expect(await metrics.text()).toContain("tidemill_http_requests_total");

  const worker = codeqWorker(String(at["worker"]));
  onCleanup(() => Promise.resolve(worker.close()));
  worker.send({ event: { $case: "hello", value: { token: TOKENS.worker, workerId: "w" } } });
  const ready = { commands: ["mails"], leaseSeconds: 0, count: 1 };
  worker.send({ event: { $case: "ready", value: ready } });
  await eventually(() => {
    expect(worker.received.map(({ event }) => event?.$case)).toContain("task");
  });

  running.child.kill("SIGTERM");
  await running.line(/"message":"draining"/);
  // Its port is open as long as somebody has work under way.
  await eventually(async () => {
    const answer = await fetch(`${http}/readyz`);
    expect({ status: answer.status, body: await answer.json() }).toEqual({
      status: 503,
      body: { status: "draining" },
    });
  });
  expect((await fetch(`${http}/healthz`)).status).toBe(200);
  const result = { taskId: id, status: "COMPLETED", resultJson: Buffer.alloc(0), error: "" };
  worker.send({ event: { $case: "result", value: result } });
  await eventually(() => {
    expect(worker.received.map(({ event }) => event?.$case)).toContain("resultAck");
  });
  worker.call.end();

  const { code, stdout, stderr } = await running.ended;
  expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
  for (const secret of [password, ...Object.values(TOKENS), "wrong-one", issuer.token]) {
    expect(stdout).not.toContain(secret);
  }
  const lines = linesOf(stdout);
  expect(lines.at(-1)).toMatchObject({ level: "info", message: "stopped" });
  expect(lines).toContainEqual(
    expect.objectContaining({
      level: "warn",
      variable: "TIDEMILL_DRIAN_SECONDS",
      meant: "TIDEMILL_DRAIN_SECONDS",
    }),
  );
});

it("without tokens serves this machine alone, and ends at once at a second signal", async () => {
  const { url } = await testDatabase();
  const running = startCli(["serve", ...ANY, "--insecure-no-auth", "--drain-seconds", "3600"], {
    env: { DATABASE_URL: url },
  });
  const at = await serving(running);
  const http = `http://${String(at["http"])}`;
  expect((await fetch(`${http}/v1/tasks`)).status).toBe(200);
  expect((await fetch(`${http}/v1/demo`)).status).toBe(404); // That is for tidemill dev.
  // What a page in the browser of this machine would send.
  const headers = { origin: "https://evil.example" };
  expect((await fetch(`${http}/v1/tasks`, { headers })).status).toBe(403);

  const worker = codeqWorker(String(at["worker"]));
  onCleanup(() => Promise.resolve(worker.close()));
  worker.send({ event: { $case: "hello", value: { token: "", workerId: "w" } } });
  await worker.until(1);
  await fetch(`${http}/v1/tasks`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ queue: "mails" }),
  });
  const ready = { commands: ["mails"], leaseSeconds: 0, count: 1 };
  worker.send({ event: { $case: "ready", value: ready } });
  await worker.until(2);
  running.child.kill("SIGTERM");
  await running.line(/"message":"draining"/);
  // A signal right after the first is the first again: terminals and managers send two.
  await eventually(() => {
    running.child.kill("SIGTERM");
    expect(running.child.exitCode).toBe(143);
  });
});

it("refuses what cannot work with a line that says what to do", async () => {
  const database = await testDatabase();
  const bare = await testDatabase({ migrated: false });
  const busy = createServer().listen(0, "127.0.0.1");
  await once(busy, "listening");
  onCleanup(() => new Promise<void>((resolve) => void busy.close(() => resolve())));
  const { port } = busy.address() as { port: number };
  const typo = join(scratchDir(), "typo.json");
  writeFileSync(typo, '[{"tokne": "very-secret-token-0123456789"}]');
  const tokens = ["--tokens-file", tokensFile()];
  await expectAllRefused(database, [
    [["serve", ...ANY], 2, /nobody could call this server: make an API key/],
    [["serve", "--insecure-no-auth", "--host", "0.0.0.0"], 2, /must not be reached from elsewhere/],
    [["serve", "--htpt", "1"], 2, /unknown option '--htpt'.*Did you mean --http\?/],
    [["serve", "--tokens-file", typo], 2, /"tokne"; did you mean "token"\?/],
    [["serve", ...tokens, "--drain-seconds", "99999"], 2, /drainSeconds must be .* at most 3600/],
  ]);
  const taken = await runCli(["serve", ...ANY, ...tokens, "--http", `127.0.0.1:${port}`], {
    env: { DATABASE_URL: database.url },
  });
  expect(taken.code).toBe(2);
  expect(taken.stderr).toMatch(/^tidemill: cannot listen on .* is another program there\?.*\n$/);
  const unmigrated = await runCli(["serve", ...ANY, ...tokens], {
    env: { DATABASE_URL: bare.url },
  });
  expect(unmigrated.code).toBe(1);
  expect(unmigrated.stderr).toMatch(/^tidemill: .*tidemill migrate.*\n$/);
});
