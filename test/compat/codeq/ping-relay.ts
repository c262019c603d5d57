import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";

/** The head of an HTTP/2 PING frame that answers another. */
const PING_ACK = Buffer.from("000008060100000000", "hex");

/** Passes bytes on to a server, and counts the pings of the server that the client answered. */
export class PingRelay {
  answered = 0;
  readonly #server = createServer((client) => this.#pass(client));
  readonly #sockets = new Set<Socket>();
  readonly #port: number;

  private constructor(port: number) {
    this.#port = port;
  }

  static async to(url: string): Promise<PingRelay> {
    const relay = new PingRelay(Number(url.split(":")[1]));
    relay.#server.listen(0, "127.0.0.1");
    await once(relay.#server, "listening");
    return relay;
  }

  get url(): string {
    return `127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  close(): void {
    this.#server.close();
    for (const socket of this.#sockets) socket.destroy();
  }

  #pass(client: Socket): void {
    const server = connect(this.#port, "127.0.0.1");
    for (const socket of [client, server]) {
      this.#sockets.add(socket);
      socket.on("error", () => {});
    }
    client.on("data", (bytes) => {
      if (bytes.includes(PING_ACK)) this.answered += 1;
    });
    client.pipe(server).pipe(client);
  }
}
