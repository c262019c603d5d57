import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net";
import { describe, expect, it } from "vitest";
import { onCleanup } from "../test/support/database.ts";
import { eventually } from "../test/support/eventually.ts";
import { type Direction, Proxy } from "./proxy.ts";

/** One end of a connection, and what became of it. */
class End {
  readonly socket: Socket;
  heard = "";
  error: string | undefined;

  constructor(socket: Socket) {
    this.socket = socket;
    socket.on("data", (data) => {
      this.heard += data.toString();
    });
    socket.on("error", (error: NodeJS.ErrnoException) => {
      this.error = error.code;
    });
    onCleanup(async () => void socket.destroy());
  }

  get isClosed(): boolean {
    return this.socket.destroyed;
  }

  async hears(text: string): Promise<void> {
    await eventually(() => expect(this.heard).toBe(text));
  }

  async isReset(): Promise<void> {
    await eventually(() => expect([this.isClosed, this.error]).toEqual([true, "ECONNRESET"]));
  }
}

interface Target {
  readonly proxy: Proxy;
  readonly accepted: End[];
}

async function targetBehindProxy(): Promise<Target> {
  const accepted: End[] = [];
  const target: Server = createServer((socket) => accepted.push(new End(socket)));
  target.listen(0, "127.0.0.1");
  await once(target, "listening");
  onCleanup(async () => void target.close());
  const { port } = target.address() as AddressInfo;
  const proxy = await Proxy.open(`tcp://127.0.0.1:${port}`);
  onCleanup(() => proxy[Symbol.asyncDispose]());
  return { proxy, accepted };
}

const ask = ({ url }: Proxy): End => new End(connect(Number(new URL(url).port), "127.0.0.1"));

async function dial(proxy: Proxy): Promise<End> {
  const end = ask(proxy);
  await once(end.socket, "connect");
  return end;
}

/** A connection over which both sides have said something. */
async function pair(target: Target): Promise<{ client: End; server: End }> {
  const before = target.accepted.length;
  const client = await dial(target.proxy);
  client.socket.write("up");
  await eventually(() => expect(target.accepted.length).toBe(before + 1));
  const server = target.accepted[before];
  if (server === undefined) throw new Error("nobody came");
  await server.hears("up");
  server.socket.write("down");
  await client.hears("down");
  return { client, server };
}

/** Until what was sent or closed before has been through the proxy, if it gets through at all. */
async function flush(target: Target): Promise<void> {
  const port = Number(new URL(target.proxy.url).port);
  for (let time = 0; time < 3; time += 1) {
    const probe = connect(port, "127.0.0.1");
    await once(probe, "connect"); // Has gone through the same loop of events, behind the others.
    probe.destroy();
    await new Promise((resolve) => setImmediate(() => setImmediate(resolve)));
  }
}

it("keeps the order of what was sent when a delay begins, changes and ends", async () => {
  const target = await targetBehindProxy();
  const { client, server } = await pair(target);
  const say = async (word: string): Promise<void> => {
    client.socket.write(word);
    // Carried on before the next one is sent: they must not be one piece.
    await new Promise((resolve) => setImmediate(() => setImmediate(resolve)));
  };
  await say("a");
  target.proxy.delay(150);
  for (const word of ["b", "c"]) await say(word);
  target.proxy.delay(50);
  await say("d");
  target.proxy.mend();
  for (const word of ["e", "."]) await say(word);
  await server.hears("upabcde.");
});

describe("a connection", () => {
  it("is reset on both sides, and the next one is made", async () => {
    const target = await targetBehindProxy();
    const { client, server } = await pair(target);
    target.proxy.reset();
    await Promise.all([client.isReset(), server.isReset()]);
    await pair(target);
  });

  it("is cut on both sides, and none is made before it is mended", async () => {
    const target = await targetBehindProxy();
    const { client, server } = await pair(target);
    target.proxy.cut();
    await Promise.all([client.isReset(), server.isReset()]);
    await ask(target.proxy).isReset();
    expect(target.accepted).toHaveLength(1);
    target.proxy.mend();
    await pair(target);
  });

  it("that one side closes is closed on the other", async () => {
    const target = await targetBehindProxy();
    const first = await pair(target);
    first.client.socket.destroy();
    await eventually(() => expect(first.server.isClosed).toBe(true));
    const second = await pair(target);
    second.server.socket.destroy();
    await eventually(() => expect(second.client.isClosed).toBe(true));
  });

  it.each<[Direction, string, string]>([
    ["both", "up", "down"],
    ["up", "up", "down and more"],
    ["down", "up and more", "down"],
  ])("loses what goes %s while that is swallowed, and is reset then", async (way, up, down) => {
    const target = await targetBehindProxy();
    const { client, server } = await pair(target);
    target.proxy.swallow(way);
    client.socket.write(" and more");
    server.socket.write(" and more");
    await flush(target);
    await Promise.all([server.hears(up), client.hears(down)]);
    expect([client.isClosed, server.isClosed]).toEqual([false, false]);
    target.proxy.mend();
    await Promise.all([client.isReset(), server.isReset()]);
    expect([server.heard, client.heard]).toEqual([up, down]);
    await pair(target);
  });

  it("over which nothing was said meanwhile goes on", async () => {
    const target = await targetBehindProxy();
    const { client, server } = await pair(target);
    target.proxy.swallow("both");
    target.proxy.mend();
    client.socket.write(" again");
    await server.hears("up again");
    server.socket.write(" again");
    await client.hears("down again");
  });

  it("that is asked for while something is swallowed is made by nobody", async () => {
    const target = await targetBehindProxy();
    target.proxy.swallow("down");
    const client = await dial(target.proxy);
    client.socket.write("up");
    await flush(target);
    expect([client.isClosed, target.accepted.length]).toEqual([false, 0]);
    target.proxy.mend();
    await client.isReset();
    expect(target.accepted).toHaveLength(0);
  });
});

type Side = "client" | "server";

describe("who hangs up while something is swallowed", () => {
  it.each<[Direction, Side]>([
    ["both", "client"],
    ["both", "server"],
    ["up", "client"],
    ["down", "server"],
  ])("(%s, the %s) is not heard by the other side until it is mended", async (way, side) => {
    const target = await targetBehindProxy();
    const ends = await pair(target);
    const other = side === "client" ? ends.server : ends.client;
    target.proxy.swallow(way);
    ends[side].socket.destroy();
    await flush(target);
    expect(other.isClosed).toBe(false);
    target.proxy.mend();
    await other.isReset();
  });

  it.each<[Direction, Side]>([
    ["up", "server"],
    ["down", "client"],
  ])("(%s, the %s) is heard the other way", async (way, side) => {
    const target = await targetBehindProxy();
    const ends = await pair(target);
    const other = side === "client" ? ends.server : ends.client;
    target.proxy.swallow(way);
    ends[side].socket.destroy();
    await eventually(() => expect(other.isClosed).toBe(true));
  });
});
