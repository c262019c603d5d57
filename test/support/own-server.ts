import { chmodSync, mkdtempSync, rmSync } from "node:fs";
import { join } from "node:path";
import { type EmbeddedPostgres, startEmbedded } from "../../src/embedded/launcher.ts";
import { scratch } from "./scratch.ts";

/** A server that a test may crash. It keeps its address, so that clients find it again. */
export interface OwnServer {
  readonly url: string;
  readonly dataDir: string;
  /** A folder that is removed with the server. */
  readonly folder: string;
  /** As if the power failed, but for what the system had been given to write. */
  crash(): Promise<void>;
  stop(): Promise<void>;
  /** Unless it runs. */
  start(): Promise<void>;
  remove(): Promise<void>;
  /** As a process does that ends before it could remove it. */
  abandon(): void;
}

const installation = process.env["TIDEMILL_TEST_POSTGRES"];

export async function startServer(
  dataDir: string,
  settings: Readonly<Record<string, string>>,
  port?: number,
): Promise<EmbeddedPostgres> {
  return await startEmbedded({
    dataDir,
    settings: { fsync: "off", shared_buffers: "32MB", max_connections: "60", ...settings },
    ...(installation === undefined ? {} : { installation }),
    ...(port === undefined ? {} : { port }),
  });
}

export async function ownServer(
  settings: Readonly<Record<string, string>> = {},
  parent = scratch(),
): Promise<OwnServer> {
  const folder = mkdtempSync(join(parent, "tidemill-own-"));
  chmodSync(folder, 0o755); // As root the server runs as another user.
  const dataDir = join(folder, "data");
  let server = await startServer(dataDir, settings);
  const { url, port } = server;
  return {
    url,
    dataDir,
    folder,
    crash: () => server.stop("immediate"),
    stop: () => server.stop("fast"),
    async start() {
      server = await startServer(dataDir, settings, port);
    },
    async remove() {
      await server.stop("immediate");
      rmSync(folder, { recursive: true, force: true });
    },
    abandon() {
      process.kill(server.pid, "SIGQUIT");
      rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
    },
  };
}
