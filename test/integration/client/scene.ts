import {
  type ConnectionOptions,
  connectProducer,
  connectWorker,
  type Logger,
  type Producer,
  type ProducerOptions,
  type RemoteWorker,
  type RemoteWorkerOptions,
} from "../../../src/client/index.ts";
import type { Tidemill } from "../../../src/index.ts";
import { type ServerOptions, TidemillServer } from "../../../src/server/index.ts";
import { onCleanup, type TestDatabase, testDatabase } from "../../support/database.ts";
import { startRelay } from "../../support/relay.ts";

export const PRODUCER = "token-of-a-producer-0123456789";
export const WORKER = "token-of-a-worker-0123456789";
export const CLAIM_ONLY = "token-that-ends-nothing-0123456789";
export const NO_NACK = "token-that-puts-nothing-back-0123456789";
export const MAILS_ONLY = "token-for-mails-0123456789";
export const ADMIN = "token-of-an-admin-0123456789";

export const AUTH = {
  staticTokens: [
    { token: PRODUCER, tenant: "acme", scopes: ["producer", "read"] },
    { token: WORKER, tenant: "acme", scopes: ["worker"] },
    { token: CLAIM_ONLY, tenant: "acme", scopes: ["worker:claim"] },
    { token: NO_NACK, tenant: "acme", scopes: ["worker:claim", "worker:finish"] },
    { token: MAILS_ONLY, tenant: "acme", scopes: ["producer"], queues: ["mails"] },
    { token: ADMIN, tenant: "acme", scopes: ["admin", "producer", "read"] },
  ],
} as const;

export interface LogLine {
  readonly level: keyof Logger;
  readonly fields: Readonly<Record<string, unknown>>;
  readonly message: string;
}

/** Remembers what was logged. */
export function recorder(): Logger & { readonly lines: LogLine[] } {
  const lines: LogLine[] = [];
  const note =
    (level: keyof Logger) =>
    (fields: object, message: string): void =>
      void lines.push({ level, fields: { ...fields }, message });
  const [debug, info, warn, error] = [note("debug"), note("info"), note("warn"), note("error")];
  return { lines, debug, info, warn, error };
}

export interface RunningServer {
  readonly server: TidemillServer;
  readonly producer: string;
  readonly worker: string;
  readonly http: string;
}

/** A server on free ports, over the database; stopped when the test is over. */
export async function startServer(
  mill: Tidemill,
  options: ServerOptions = {},
): Promise<RunningServer> {
  const server = new TidemillServer(mill, {
    host: "127.0.0.1",
    producer: { port: 0 },
    worker: { port: 0 },
    http: { port: 0 },
    metrics: false,
    drainSeconds: 2,
    auth: AUTH,
    ...options,
  });
  await server.start();
  onCleanup(() => server.stop());
  const at = (kind: "producer" | "worker" | "http"): string =>
    `127.0.0.1:${server.address(kind).port}`;
  return { server, producer: at("producer"), worker: at("worker"), http: `http://${at("http")}` };
}

export interface Scene extends RunningServer {
  readonly database: TestDatabase;
  readonly mill: Tidemill;
}

export async function scene(options: ServerOptions = {}): Promise<Scene> {
  const database = await testDatabase();
  const mill = await database.connect();
  return { database, mill, ...(await startServer(mill, options)) };
}

type Given<Options extends ConnectionOptions> = Partial<Options> & Pick<Options, "url">;

/** A producer that is closed when the test is over. */
export async function producerOf(options: Given<ProducerOptions>): Promise<Producer> {
  const producer = await connectProducer({ token: PRODUCER, withinSeconds: 20, ...options });
  onCleanup(() => producer.close());
  return producer;
}

/** A worker that is stopped when the test is over. */
export async function workerOf(
  options: Given<RemoteWorkerOptions> & Pick<RemoteWorkerOptions, "handlers">,
): Promise<RemoteWorker> {
  const worker = await connectWorker({ token: WORKER, drainSeconds: 1, ...options });
  onCleanup(() => worker.stop());
  return worker;
}

/** Something that a test waits for, or lets happen. */
export interface Gate {
  readonly opened: Promise<void>;
  open(): void;
}

export function gate(): Gate {
  let open: () => void = () => {};
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { opened, open };
}

/** Stands between a client and a server. */
export interface Cable {
  /** The server's, by way of this. */
  readonly address: string;
  /** Ends every connection. */
  cut(): void;
  /** Refuses connections, or takes them again. */
  refuse(isRefusing: boolean): void;
  /** From now on the server hears everything and the client nothing. */
  loseAnswers(isLosing: boolean): void;
  /** Connections that were made. */
  readonly connections: number;
}

export async function cable(to: string): Promise<Cable> {
  let isRefusing = false;
  let isLosing = false;
  let connections = 0;
  const { url, sockets } = await startRelay(
    `http://${to}`,
    (client, server) => {
      connections += 1;
      client.on("data", (bytes) => void server.write(bytes));
      server.on("data", (bytes) => {
        if (!isLosing) client.write(bytes);
      });
      client.on("close", () => server.destroy());
      server.on("close", () => client.destroy());
    },
    { isRefusing: () => isRefusing },
  );
  return {
    address: new URL(url).host,
    cut() {
      for (const socket of sockets) socket.destroy();
    },
    refuse(value) {
      isRefusing = value;
    },
    loseAnswers(value) {
      isLosing = value;
    },
    get connections() {
      return connections;
    },
  };
}
