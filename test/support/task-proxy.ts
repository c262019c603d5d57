import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { onCleanup } from "./database.ts";

/** Stands between workers and the server, and loses answers on the way back. */
export interface LossyProxy {
  readonly url: string;
  /**
   * Cuts each connection on which workers claim and complete when its next answer comes: what the
   * server did has happened, and the worker never hears of it. How many there are.
   */
  loseNextAnswers(): number;
  /** Ends every connection and refuses new ones. */
  cut(): void;
  /** Keeps every connection open and carries nothing any more, as a half-open one does. */
  freeze(): void;
}

export async function startLossyProxy(target: string): Promise<LossyProxy> {
  const { hostname, port } = new URL(target);
  const taskLines = new Map<Socket, { isLossy: boolean }>();
  const sockets = new Set<Socket>();
  let isCut = false;
  let isFrozen = false;
  const proxy = createServer((client) => {
    if (isCut) {
      client.destroy();
      return;
    }
    const server = connect(Number(port), hostname);
    const line = { isLossy: false };
    for (const socket of [client, server]) {
      sockets.add(socket);
      socket.on("error", () => {});
      socket.on("close", () => {
        sockets.delete(socket);
        taskLines.delete(client);
        client.destroy();
        server.destroy();
      });
    }
    client.once("data", (startup: Buffer) => {
      if (/application_name\0[^\0]*tasks\0/.test(startup.toString("latin1"))) {
        taskLines.set(client, line);
      }
    });
    client.on("data", (data) => {
      if (!isFrozen) server.write(data);
    });
    server.on("data", (data) => {
      if (isFrozen) return;
      if (line.isLossy) client.destroy();
      else client.write(data);
    });
  });
  proxy.listen(0, "127.0.0.1");
  await once(proxy, "listening");
  onCleanup(async () => {
    for (const socket of sockets) socket.destroy();
    proxy.close();
    await once(proxy, "close");
  });
  const url = new URL(target);
  url.hostname = "127.0.0.1";
  url.port = String((proxy.address() as AddressInfo).port);
  return {
    url: url.href,
    loseNextAnswers() {
      for (const line of taskLines.values()) line.isLossy = true;
      return taskLines.size;
    },
    cut() {
      isCut = true;
      for (const socket of sockets) socket.destroy();
    },
    freeze() {
      isFrozen = true;
    },
  };
}
