import { randomBytes } from "node:crypto";
import { ConfigError } from "../../base/errors.ts";
import type { ServerOptions } from "../../server/options.ts";
import { TidemillServer } from "../../server/server.ts";
import type { Tidemill } from "../../worker/tidemill.ts";
import { colors, print } from "../output.ts";
import { announce } from "../progress.ts";

const HOST = "127.0.0.1";
const TENANT = "default";
const SCOPES = ["producer", "worker", "read", "admin"] as const;
const DRAIN_SECONDS = 5;
const ANY_PORT = { producer: { port: 0 }, worker: { port: 0 }, http: { port: 0 } };

type Tokens = Readonly<Record<(typeof SCOPES)[number], string>>;

/** A server for programs of this machine, with tokens that end with it. */
export async function startDevServer(mill: Tidemill): Promise<TidemillServer> {
  const tokens = Object.fromEntries(
    SCOPES.map((scope) => [scope, `dev-${scope}-${randomBytes(12).toString("hex")}`]),
  ) as Tokens;
  const server = await startSomewhere(mill, tokens);
  await introduce(server, tokens);
  return server;
}

/** On the ports that everybody knows, else on any: a second demo is no mistake. */
async function startSomewhere(mill: Tidemill, tokens: Tokens): Promise<TidemillServer> {
  const staticTokens = SCOPES.map((scope) => ({
    token: tokens[scope],
    tenant: TENANT,
    scopes: [scope],
    subject: `dev-${scope}`,
  }));
  const options: ServerOptions = {
    host: HOST,
    drainSeconds: DRAIN_SECONDS,
    auth: { staticTokens },
  };
  try {
    return await started(new TidemillServer(mill, options));
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    const elsewhere = { ...options, ...ANY_PORT, metrics: { port: 0 } };
    return await started(new TidemillServer(mill, elsewhere));
  }
}

async function started(server: TidemillServer): Promise<TidemillServer> {
  await server.start();
  return server;
}

/** Lines that can be pasted as they are: no frame around them, none broken. */
async function introduce(server: TidemillServer, tokens: Tokens): Promise<void> {
  const at = (name: "http" | "producer" | "worker" | "metrics"): string =>
    `${HOST}:${server.address(name).port}`;
  const http = `http://${at("http")}`;
  await announce(`Dashboard: ${http}/ (sign in with a token from below; admin may do all)`);
  await announce(`Server: ${http} (/docs explains it), metrics at http://${at("metrics")}/metrics`);
  await announce(`gRPC: producers at ${at("producer")}, workers at ${at("worker")}`);
  await announce(`Development tokens of tenant "${TENANT}", until this ends:`);
  for (const scope of SCOPES) print(`  ${scope.padEnd(9)}${colors.cyan(tokens[scope])}`);
  await announce("To create a task, and to see it:");
  print(
    `  curl -sS ${http}/v1/tasks -H 'authorization: Bearer ${tokens.producer}' ` +
      `-H 'content-type: application/json' -d '{"queue":"hello","payload":{"name":"Ada"}}'`,
  );
  print(`  curl -sS ${http}/v1/tasks -H 'authorization: Bearer ${tokens.read}'`);
}
