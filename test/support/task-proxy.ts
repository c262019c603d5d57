import type { Socket } from "node:net";
import { startRelay } from "./relay.ts";

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
  const taskLines = new Map<Socket, { isLossy: boolean }>();
  let isCut = false;
  let isFrozen = false;
  const join = (client: Socket, server: Socket): void => {
    const line = { isLossy: false };
    for (const socket of [client, server]) {
      socket.on("close", () => {
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
  };
  const { url, sockets } = await startRelay(target, join, { isRefusing: () => isCut });
  return {
    url,
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
