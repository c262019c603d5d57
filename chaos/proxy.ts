import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net";

/** Towards the server, towards the client, or both ways. */
export type Direction = "up" | "down" | "both";

interface Line {
  readonly client: Socket;
  /** None of one that was begun while something was swallowed: it led nowhere. */
  readonly server?: Socket;
}

/**
 * Stands between one process and the database, or before a server. Whatever it swallows is gone,
 * also that somebody hung up: as behind a pulled cable, the other side keeps its end. A connection
 * that missed something is of no use any more, and is reset when the proxy is mended.
 */
export class Proxy implements AsyncDisposable {
  readonly #listener: Server;
  #target: URL;
  readonly #lines = new Set<Line>();
  /** Lines that have missed something. */
  readonly #torn = new Set<Line>();
  #swallowed: Direction | undefined;
  #delayMs = 0;
  #isRefusing = false;

  private constructor(target: string) {
    this.#target = new URL(target);
    this.#listener = createServer({ noDelay: true }, (client) => this.#accept(client));
  }

  static async open(target: string): Promise<Proxy> {
    const proxy = new Proxy(target);
    proxy.#listener.listen(0, "127.0.0.1");
    await once(proxy.#listener, "listening");
    return proxy;
  }

  /** The target's address by way of here. */
  get url(): string {
    const url = new URL(this.#target);
    url.hostname = "127.0.0.1";
    url.port = String((this.#listener.address() as AddressInfo).port);
    return url.href;
  }

  /** From now on new connections lead there. */
  aim(target: string): void {
    this.#target = new URL(target);
  }

  /** Ends all connections with a reset; new ones are made as before. */
  reset(): void {
    for (const line of this.#lines) this.#close(line);
  }

  /** Ends all connections and refuses new ones. */
  cut(): void {
    this.#isRefusing = true;
    this.reset();
  }

  /**
   * Keeps all connections open and loses what is sent over them, as a half-open one does. A new one
   * is not made, for that takes both ways: whoever asks for it is told nothing.
   */
  swallow(direction: Direction): void {
    this.#swallowed = direction;
  }

  /** Everything arrives, so much later. */
  delay(ms: number): void {
    this.#delayMs = ms;
  }

  /** Back to normal. */
  mend(): void {
    this.#isRefusing = false;
    this.#swallowed = undefined;
    this.#delayMs = 0;
    for (const line of this.#torn) this.#close(line);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.cut();
    this.#listener.close();
    await once(this.#listener, "close");
  }

  #accept(client: Socket): void {
    if (this.#isRefusing) {
      client.resetAndDestroy();
      return;
    }
    if (this.#swallowed !== undefined) {
      this.#loseNew(client);
      return;
    }
    const { hostname, port } = this.#target;
    const server = connect({ host: hostname, port: Number(port), noDelay: true });
    const line = { client, server };
    this.#lines.add(line);
    this.#carry(line, client, server, "up");
    this.#carry(line, server, client, "down");
  }

  #loseNew(client: Socket): void {
    const line = { client };
    this.#lines.add(line);
    this.#torn.add(line);
    client.on("error", () => {});
    client.on("close", () => this.#close(line));
    client.resume();
  }

  #isSwallowed(direction: Direction): boolean {
    return this.#swallowed === direction || this.#swallowed === "both";
  }

  #carry(line: Line, from: Socket, to: Socket, direction: Direction): void {
    // In order, also when the delay ends: no network changes the order of what is in a connection.
    const late: { readonly data: Buffer; readonly dueMs: number }[] = [];
    const pass = (): void => {
      for (let next = late[0]; next !== undefined; next = late[0]) {
        const restMs = next.dueMs - performance.now();
        if (restMs > 0) return void setTimeout(pass, restMs);
        to.write(next.data);
        late.shift();
      }
    };
    from.on("data", (data) => {
      if (this.#isSwallowed(direction)) {
        this.#torn.add(line);
        return;
      }
      if (to.destroyed) return; // It hung up, and this side has not been told.
      const dueMs = performance.now() + this.#delayMs;
      if (late.length === 0 && this.#delayMs === 0) to.write(data);
      else if (late.push({ data, dueMs }) === 1) setTimeout(pass, this.#delayMs);
    });
    from.on("error", () => {});
    from.on("close", () => {
      if (!this.#isSwallowed(direction)) this.#close(line);
      else if (this.#lines.has(line)) this.#torn.add(line);
    });
  }

  #close(line: Line): void {
    this.#lines.delete(line);
    this.#torn.delete(line);
    for (const socket of [line.client, line.server]) {
      if (socket?.destroyed === false) socket.resetAndDestroy();
    }
  }
}
