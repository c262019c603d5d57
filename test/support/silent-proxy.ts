import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { onCleanup } from "./database.ts";

/** Stands between a program and the server, and falls silent as a network does. */
export interface SilentProxy {
  readonly url: string;
  /**
   * From now on nothing arrives on any connection, old or new, and nobody is told: the sockets stay
   * open, and not even their end gets through. With "answers" the server still hears everything.
   */
  swallow(what?: "all" | "answers"): void;
  /**
   * New connections work again, also those that were begun meanwhile: what was said there is
   * repeated. Older ones that were silent stay so, as if a router had forgotten them.
   */
  mend(): void;
}

type Silence = "all" | "answers" | undefined;

interface Line {
  silence: Silence;
  /** Undefined: it fell silent when something had been said, and loses what is said now. */
  readonly unheard: (() => void)[] | undefined;
}

export async function startSilentProxy(target: string): Promise<SilentProxy> {
  const { hostname, port } = new URL(target);
  const sockets = new Set<Socket>();
  const lines = new Set<Line>();
  let silence: Silence;
  const proxy = createServer({ allowHalfOpen: true }, (client) => {
    const line: Line = { silence, unheard: silence === undefined ? undefined : [] };
    lines.add(line);
    const server = connect({ port: Number(port), host: hostname, allowHalfOpen: true });
    for (const socket of [client, server]) {
      sockets.add(socket);
      socket.on("error", () => {});
    }
    carry(line, client, server, () => line.silence !== "all");
    carry(line, server, client, () => line.silence === undefined);
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
    swallow(what = "all") {
      silence = what;
      for (const line of lines) line.silence = what;
    },
    mend() {
      silence = undefined;
      for (const line of lines) {
        if (line.unheard === undefined) continue;
        line.silence = undefined;
        for (const say of line.unheard.splice(0)) say();
      }
    },
  };
}

/** What one side says, and that it hangs up, reaches the other only while `isHeard`. */
function carry(line: Line, from: Socket, to: Socket, isHeard: () => boolean): void {
  const say = (what: () => void): void => {
    if (isHeard()) what();
    else line.unheard?.push(what);
  };
  from.on("data", (data) => say(() => void to.write(data)));
  from.on("end", () => say(() => void to.end()));
  from.on("close", () => say(() => void to.destroy()));
}
