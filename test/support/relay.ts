import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { onCleanup } from "./database.ts";

export interface Relay {
  /** The target's, by way of this. */
  readonly url: string;
  readonly sockets: ReadonlySet<Socket>;
}

export interface RelayOptions {
  readonly isRefusing?: () => boolean;
  /** Whether one side may hang up without the other: then `join` passes that on. */
  readonly allowHalfOpen?: boolean;
}

/** Takes connections for the target and opens one to it for each; `join` says what passes. */
export async function startRelay(
  target: string,
  join: (client: Socket, server: Socket) => void,
  { isRefusing = () => false, allowHalfOpen = false }: RelayOptions = {},
): Promise<Relay> {
  const { hostname: host, port } = new URL(target);
  const sockets = new Set<Socket>();
  const listener = createServer({ allowHalfOpen }, (client) => {
    if (isRefusing()) {
      client.destroy();
      return;
    }
    const server = connect({ port: Number(port), host, allowHalfOpen });
    for (const socket of [client, server]) {
      sockets.add(socket);
      socket.on("error", () => {});
      socket.on("close", () => sockets.delete(socket));
    }
    join(client, server);
  });
  listener.listen(0, "127.0.0.1");
  await once(listener, "listening");
  onCleanup(async () => {
    for (const socket of sockets) socket.destroy();
    listener.close();
    await once(listener, "close");
  });
  const url = new URL(target);
  url.hostname = "127.0.0.1";
  url.port = String((listener.address() as AddressInfo).port);
  return { url: url.href, sockets };
}
