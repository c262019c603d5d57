import { systemClock } from "../../base/clock.ts";
import type { Logger } from "../../base/log.ts";
import { Secret } from "../../base/secret.ts";
import { stopSignal } from "../../base/stop-signal.ts";
import { VERSION } from "../../base/version.ts";
import { hasActiveApiKey } from "../../server/auth/sql/api-keys.ts";
import { isLoopback } from "../../server/loopback.ts";
import type { ServerOptions } from "../../server/options.ts";
import { type ListenerName, TidemillServer } from "../../server/server.ts";
import { Tidemill } from "../../worker/tidemill.ts";
import { UsageError } from "../errors.ts";
import { connectOptions, requireDatabaseUrl } from "../options.ts";
import { isReadByOthers } from "../serve/files.ts";
import { serveLogger } from "../serve/log.ts";
import { ServerProcesses } from "../serve/processes.ts";
import { Redactor } from "../serve/redactor.ts";
import { serverOptionsOf } from "../serve/server-options.ts";
import { SERVE_SETTINGS, type ServeFlags } from "../serve/settings.ts";
import { type SharedPorts, sharedPorts } from "../serve/shared-ports.ts";
import { runUntilStopped } from "../serve/until-stopped.ts";
import { likelyTypos } from "../settings.ts";

/** `tidemill serve`: until a signal, then it drains. A second signal ends it at once. */
export async function runServe(flags: ServeFlags): Promise<void> {
  const shared = sharedPorts();
  try {
    await serve(flags, shared);
  } finally {
    shared?.leave(); // However it ended: its channel would keep the process.
  }
}

async function serve(flags: ServeFlags, shared: SharedPorts | undefined): Promise<void> {
  const url = requireDatabaseUrl(flags);
  const options = serverOptionsOf(flags, shared?.seat);
  const redactor = new Redactor(secretsOf(flags, url, options));
  const fields = shared === undefined ? {} : { process: shared.seat };
  const logger = serveLogger(flags.logLevel ?? "info", redactor, { fields });
  const { signal, release } = stopSignal();
  try {
    const { processes: count = 1 } = flags;
    if (count > 1 && shared === undefined) {
      const all = new ServerProcesses({ count, clock: systemClock, logger, signal });
      process.exitCode = await all.run();
      return;
    }
    const { poolSize } = flags;
    await using mill = await Tidemill.connect(url, {
      ...connectOptions(flags),
      ...(poolSize === undefined ? {} : { poolSize }),
      logger,
    });
    await requireSomeAuth(mill, options);
    const server = new TidemillServer(mill, options);
    if ((shared?.seat ?? 0) === 0) warn(flags, options, logger);
    await server.start();
    logger.info({ version: VERSION, ...addressesOf(server, options) }, "serving");
    shared?.serving();
    const stopping = shared === undefined ? signal : AbortSignal.any([signal, shared.stopping]);
    await runUntilStopped(server, { name: "server", logger, signal: stopping });
  } finally {
    release();
  }
}

/** A server that nobody can call, or everybody, is not what somebody meant. */
async function requireSomeAuth(mill: Tidemill, { auth = {} }: ServerOptions): Promise<void> {
  const { staticTokens = [], issuers = [], insecureNoAuth } = auth;
  if (insecureNoAuth !== undefined || staticTokens.length + issuers.length > 0) return;
  if (await hasActiveApiKey(mill.engine.db)) return;
  throw new UsageError(
    "nobody could call this server: make an API key (tidemill key create), or name a " +
      "--tokens-file, an --issuers-file or a --jwt-issuer; for a server on this machine alone, " +
      "--insecure-no-auth",
  );
}

function warn(flags: ServeFlags, options: ServerOptions, logger: Logger): void {
  for (const { given, meant } of likelyTypos(SERVE_SETTINGS, process.env)) {
    logger.warn({ variable: given, meant }, "a variable of the environment is not known");
  }
  const { tokensFile } = flags;
  if (tokensFile !== undefined && isReadByOthers(tokensFile)) {
    logger.warn({ file: tokensFile }, "everybody on this machine may read the tokens");
  }
  if (options.auth?.insecureNoAuth !== undefined) {
    logger.warn({}, "everybody on this machine may do everything");
  } else if (options.tls === undefined && !isLoopback(options.host ?? "")) {
    logger.warn({}, "tokens and payloads can be read on the way: there is no TLS");
  }
}

const LISTENERS: readonly ListenerName[] = ["http", "producer", "worker", "metrics"];

function addressesOf(server: TidemillServer, options: ServerOptions): Record<string, string> {
  const named = LISTENERS.flatMap((name) => {
    if (options[name] === false) return [];
    const { host, port } = server.address(name);
    return [[name, `${host.includes(":") ? `[${host}]` : host}:${port}`]];
  });
  return Object.fromEntries(named) as Record<string, string>;
}

/** What must not be in a log, whoever writes it there. */
function secretsOf(flags: ServeFlags, url: string, { auth = {} }: ServerOptions): string[] {
  const urls = [url, flags.directUrl ?? ""].filter((text) => URL.canParse(text));
  const passwords = urls.map((text) => new URL(text).password);
  const tokens = (auth.staticTokens ?? []).flatMap(({ token }) => {
    if (token instanceof Secret) return token.reveal();
    return typeof token === "string" ? token : []; // The file may have anything.
  });
  return [...passwords, ...passwords.map(decoded), ...tokens];
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
