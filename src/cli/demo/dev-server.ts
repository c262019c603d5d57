import { randomBytes } from "node:crypto";
import { createServer } from "node:net";
import { ConfigError } from "../../base/errors.ts";
import type { ServerOptions } from "../../server/options.ts";
import { TidemillServer } from "../../server/server.ts";
import type { Tidemill } from "../../worker/tidemill.ts";
import { colors, print } from "../output.ts";
import { announce } from "../progress.ts";
import type { Demo } from "./demo.ts";
import { demoEndpoints, SHOP_PAGE } from "./endpoints.ts";
import { CLUSTER } from "./shop.ts";

const HOST = "127.0.0.1";
const TENANT = "default";
const SCOPES = ["producer", "worker", "read", "admin"] as const;
const DRAIN_SECONDS = 5;
const ANY_PORT = { producer: { port: 0 }, worker: { port: 0 }, http: { port: 0 } };

type Tokens = Readonly<Record<(typeof SCOPES)[number], string>>;

const KNOWN_PORTS = [8080, 9091, 9092, 9464];

export interface DevServerOptions {
  /** Where another build of the dashboard lies. */
  readonly dashboard: string | undefined;
  /** Of one that was started here, and may be shown: that of somebody else holds a password. */
  readonly databaseUrl: string | undefined;
}

/** A server for programs of this machine, with tokens that end with it. */
export async function startDevServer(
  mill: Tidemill,
  demo: Demo,
  options: DevServerOptions,
): Promise<TidemillServer> {
  const tokens = Object.fromEntries(
    SCOPES.map((scope) => [scope, `dev-${scope}-${randomBytes(12).toString("hex")}`]),
  ) as Tokens;
  const server = await startSomewhere(mill, tokens, { demo, ...options });
  await introduce(server, tokens, options);
  return server;
}

/** On the ports that everybody knows, else on any: a second demo is no mistake. */
async function startSomewhere(
  mill: Tidemill,
  tokens: Tokens,
  { demo, dashboard }: DevServerOptions & { readonly demo: Demo },
): Promise<TidemillServer> {
  const staticTokens = SCOPES.map((scope) => ({
    token: tokens[scope],
    tenant: TENANT,
    scopes: [scope],
    subject: `dev-${scope}`,
  }));
  const options: ServerOptions = {
    host: HOST,
    drainSeconds: DRAIN_SECONDS,
    cluster: CLUSTER,
    auth: { staticTokens },
    ...(dashboard === undefined ? {} : { dashboard }),
  };
  const extras = { endpoints: demoEndpoints(demo), pages: [SHOP_PAGE] };
  const elsewhere = { ...options, ...ANY_PORT, metrics: { port: 0 } };
  // Asked first: a server that cannot listen has a worker already, which would be one too many.
  const areFree = (await Promise.all(KNOWN_PORTS.map(isFree))).every(Boolean);
  try {
    return await started(new TidemillServer(mill, areFree ? options : elsewhere, extras));
  } catch (error) {
    if (!(error instanceof ConfigError) || !areFree) throw error;
    return await started(new TidemillServer(mill, elsewhere, extras));
  }
}

function isFree(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const probe = createServer();
    probe.once("error", () => resolve(false));
    probe.listen(port, HOST, () => probe.close(() => resolve(true)));
  });
}

async function started(server: TidemillServer): Promise<TidemillServer> {
  await server.start();
  return server;
}

/** Lines that can be pasted as they are: no frame around them, none broken. */
async function introduce(
  server: TidemillServer,
  tokens: Tokens,
  { databaseUrl }: DevServerOptions,
): Promise<void> {
  const at = (name: "http" | "producer" | "worker" | "metrics"): string =>
    `${HOST}:${server.address(name).port}`;
  const http = `http://${at("http")}`;
  await announce(`Shop: ${http}/shop (sign in with the admin token from below)`);
  await announce(`Dashboard: ${http}/, with any token that may read`);
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
  await announce("For the tutorial (docs/tutorial), in another terminal:");
  const database = databaseUrl === undefined ? "" : `DATABASE_URL='${databaseUrl}' `;
  print(`  export ${database}URL='${http}' TOKEN='${tokens.admin}'`);
}
