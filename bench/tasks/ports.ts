import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";
import type { ServerPorts } from "./protocol.ts";

/** Ports that nobody listened on just now. */
export async function freePorts(): Promise<ServerPorts> {
  const servers = [createServer(), createServer(), createServer()];
  for (const server of servers) {
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
  }
  const [producer = 0, worker = 0, http = 0] = servers.map(
    (server) => (server.address() as AddressInfo).port,
  );
  for (const server of servers) server.close();
  return { producer, worker, http };
}
