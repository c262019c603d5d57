import { once } from "node:events";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { NOWHERE } from "./orders.ts";

export const MOODS = ["flaky", "good", "down"] as const;
/** "good" answers everything, "flaky" most of it, "down" nothing. */
export type Mood = (typeof MOODS)[number];

const HOST = "127.0.0.1";
const FLAKY = 0.15;
const BODY_BYTES_MAX = 64 * 1024;

/**
 * The service of somebody else: an HTTP server that makes labels, well or badly. He answers 500 to
 * what may pass, also to addresses that he does not know, and 503 when he is down.
 */
export class Courier {
  mood: Mood;
  calls = 0;
  refusals = 0;
  readonly #server: Server;

  private constructor(mood: Mood) {
    this.mood = mood;
    this.#server = createServer((request, response) => void this.#answer(request, response));
  }

  static async open(mood: Mood): Promise<Courier> {
    const courier = new Courier(mood);
    courier.#server.listen(0, HOST);
    await once(courier.#server, "listening");
    return courier;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  get url(): string {
    return `http://${HOST}:${this.port}/labels`;
  }

  async close(): Promise<void> {
    const closed = once(this.#server, "close");
    this.#server.close();
    this.#server.closeAllConnections();
    await closed;
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const body = await bodyOf(request).catch(() => undefined);
    if (body === undefined) {
      response.destroy();
      return;
    }
    this.calls += 1;
    const { status, text } = this.#judge(body);
    if (status >= 400) this.refusals += 1;
    response.writeHead(status, { "content-type": "application/json" });
    response.end(JSON.stringify(text));
  }

  #judge(body: string): { status: number; text: object } {
    if (this.mood === "down") return { status: 503, text: { error: "the courier is on strike" } };
    if (this.mood === "flaky" && body.includes(NOWHERE)) {
      return { status: 500, text: { error: `nobody knows the way to ${NOWHERE}` } };
    }
    if (this.mood === "flaky" && Math.random() < FLAKY) {
      return { status: 500, text: { error: "the printer is jammed" } };
    }
    return { status: 201, text: { label: `L-${this.calls}` } };
  }
}

async function bodyOf(request: IncomingMessage): Promise<string> {
  let text = "";
  for await (const chunk of request) {
    text += String(chunk);
    if (text.length > BODY_BYTES_MAX) throw new Error("that is no label");
  }
  return text;
}
