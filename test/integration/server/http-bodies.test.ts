import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { beforeAll, describe, expect, it } from "vitest";
import { Supervisor } from "../../../src/base/supervisor.ts";
import { HttpListener } from "../../../src/server/http/listener.ts";
import { onCleanup } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { bearer, openScene, type Scene, type Who } from "./http-scene.ts";

const KIB = 1024;
/** Of which a tenant has half: room for two bodies, and not for three. */
const LIMITS = { bodyBytesMax: 64 * KIB, bodiesBytesMax: 256 * KIB };
const BODY = JSON.stringify({ queue: "mails", payload: "x".repeat(60 * KIB) });

let scene: Scene;
let port: number;

beforeAll(async () => {
  scene = await openScene({ limits: LIMITS });
  await scene.mill.queues.ensure("mails");
  const listener = new HttpListener({ port: 0 }, { name: "http", fetch: scene.api.fetch });
  port = await listener.listen();
  const supervisor = new Supervisor([listener]);
  onCleanup(() => supervisor.stop(), "file");
});

interface Slow {
  readonly socket: Socket;
  /** What it was answered so far. */
  readonly text: () => string;
}

/** A call of which no more has come than the first letter of its body, if that. */
async function slow(length: string, as: Who = "producer", path = "/v1/tasks"): Promise<Slow> {
  const socket = connect(port, "127.0.0.1");
  let text = "";
  socket.on("data", (data: Buffer) => void (text += data.toString()));
  socket.on("error", () => {});
  onCleanup(async () => void socket.destroy());
  await once(socket, "connect");
  socket.write(
    `POST ${path} HTTP/1.1\r\nhost: x\r\nauthorization: ${bearer(as)}\r\n` +
      `content-type: application/json\r\n${length}\r\n\r\n`,
  );
  return { socket, text: () => text };
}

const DECLARED = `content-length: ${BODY.length}`;
const CHUNKED = "transfer-encoding: chunked";
const chunk = (bytes: number): string => `${bytes.toString(16)}\r\n${" ".repeat(bytes)}\r\n`;

const statusOf = ({ text }: Slow): string => /^HTTP\/1.1 (\d+)/.exec(text())?.[1] ?? "none";

const answered = (some: readonly Slow[], status: string): Promise<Slow[]> =>
  eventually(() => {
    const found = some.filter((one) => statusOf(one) === status);
    expect(found.length).toBeGreaterThan(0);
    return found;
  });

async function post(as: Who = "producer"): Promise<number> {
  const headers = { authorization: bearer(as), "content-type": "application/json" };
  const url = `http://127.0.0.1:${port}/v1/tasks`;
  return (await fetch(url, { method: "POST", headers, body: BODY })).status;
}

/** Two large ones fit only when nothing is held any more. */
async function expectRoom(): Promise<void> {
  await eventually(async () => expect(await Promise.all([post(), post()])).toEqual([201, 201]));
}

describe("bodies that are under way", () => {
  it("take no more than half for one tenant, however many and slow they are", async () => {
    const many = await Promise.all(Array.from({ length: 30 }, () => slow(DECLARED)));
    await eventually(() => expect(many.map(statusOf).filter((s) => s === "429")).toHaveLength(28));
    const [refused] = await answered(many, "429");
    expect(refused?.text()).toMatch(/\r\nretry-after: 1\r\n/i);
    expect(refused?.text()).toContain('"code":"TM_LIMIT"');
    expect(await post()).toBe(429);
    expect(await post("other")).toBe(201);
    const codeq = await slow(DECLARED, "producer", "/v1/codeq/tasks");
    await answered([codeq], "429");
    const [completes, leaves] = await answered(many, "none");
    completes?.socket.write(BODY);
    await answered([completes as Slow], "201");
    leaves?.socket.destroy();
    await expectRoom();
  });

  it("are refused when they grow, if they did not say how long they are", async () => {
    const first = await slow(DECLARED);
    const [second, third] = [await slow(CHUNKED), await slow(CHUNKED)];
    second.socket.write(chunk(20 * KIB));
    third.socket.write(chunk(20 * KIB));
    await eventually(async () => expect(await post()).toBe(429));
    third.socket.write(chunk(20 * KIB));
    await answered([third], "429");
    expect([first, second].map(statusOf)).toEqual(["none", "none"]);
    second.socket.write("0\r\n\r\n"); // Nothing but blanks is no JSON.
    await answered([second], "400");
    first.socket.destroy();
    await expectRoom();
  });
});
