import { once } from "node:events";
import { createServer, type IncomingMessage, type RequestListener, Server } from "node:http";
import { createServer as createTlsServer } from "node:https";
import { type AddressInfo, createServer as createTcpServer, type Socket } from "node:net";
import { onTestFinished } from "vitest";
import { onCleanup } from "./database.ts";

export interface TestServer {
  readonly port: number;
  /** Every connection that was ever made to it. */
  readonly connections: Socket[];
  readonly requests: IncomingMessage[];
  /** Settles when the first connection was made and has been closed. */
  readonly hungUp: Promise<void>;
}

export interface ServerPlace {
  /** Defaults to 127.0.0.1. */
  readonly host?: string;
  /** Defaults to any. */
  readonly port?: number;
  readonly tls?: { readonly key: string; readonly cert: string };
  /** How long it lives. Defaults to "test". */
  readonly until?: "test" | "file";
}

/** An HTTP server that goes away with its test, or with the file. */
export async function serve(
  listener: RequestListener,
  { tls, ...place }: ServerPlace = {},
): Promise<TestServer> {
  const requests: IncomingMessage[] = [];
  const server = tls === undefined ? createServer() : createTlsServer(tls);
  server.on("request", (request) => requests.push(request));
  server.on("request", listener);
  return await listen(server, requests, place);
}

/** A TCP server that says whatever it likes. */
export async function serveRaw(
  onConnection: (socket: Socket) => void,
  place: ServerPlace = {},
): Promise<TestServer> {
  return await listen(createTcpServer(onConnection), [], place);
}

async function listen(
  server: Server | ReturnType<typeof createTcpServer>,
  requests: IncomingMessage[],
  { host = "127.0.0.1", port = 0, until = "test" }: ServerPlace,
): Promise<TestServer> {
  const connections: Socket[] = [];
  const hungUp = new Promise<void>((resolve) => {
    server.once("connection", (socket: Socket) => socket.once("close", () => resolve()));
  });
  server.on("connection", (socket: Socket) => {
    connections.push(socket);
    socket.on("error", () => {}); // The other side hangs up on purpose.
  });
  server.listen(port, host);
  await once(server, "listening");
  const close = async (): Promise<void> => {
    for (const socket of connections) socket.destroy();
    await new Promise((resolve) => server.close(resolve));
  };
  if (until === "file") onCleanup(close, until);
  else onTestFinished(close);
  return { port: (server.address() as AddressInfo).port, connections, requests, hungUp };
}
