import { expect } from "vitest";
import { eventually } from "./eventually.ts";

/** One message of the feed. */
export interface FeedMessage {
  readonly id: string | undefined;
  readonly event: string;
  readonly data: Readonly<Record<string, unknown>>;
}

export interface FeedStreamOptions {
  readonly token: string;
  /** With its question mark. Defaults to none. */
  readonly query?: string;
  readonly lastEventId?: string;
}

/** A reader of /v1/feed that keeps everything it was sent. */
export class FeedStream {
  readonly messages: FeedMessage[] = [];
  readonly comments: string[] = [];
  readonly ended: Promise<void>;
  readonly #abort: AbortController;
  #rest = "";

  private constructor(body: ReadableStream<Uint8Array>, abort: AbortController) {
    this.#abort = abort;
    this.ended = this.#read(body).catch(() => {});
  }

  static async open(url: string, options: FeedStreamOptions): Promise<FeedStream> {
    const { token, query = "", lastEventId } = options;
    const abort = new AbortController();
    const response = await fetch(`${url}/v1/feed${query}`, {
      headers: {
        authorization: `Bearer ${token}`,
        ...(lastEventId === undefined ? {} : { "last-event-id": lastEventId }),
      },
      signal: abort.signal,
    });
    if (response.status !== 200 || response.body === null) {
      throw new Error(`${response.status}: ${await response.text()}`);
    }
    expect(response.headers.get("content-type")).toMatch(/^text\/event-stream/);
    return new FeedStream(response.body, abort);
  }

  /** Opened, and told that nothing is missing from now on. */
  static async ready(url: string, options: FeedStreamOptions): Promise<FeedStream> {
    const stream = await FeedStream.open(url, options);
    await stream.until("ready");
    return stream;
  }

  of(event: string): FeedMessage[] {
    return this.messages.filter((message) => message.event === event);
  }

  async until(event: string): Promise<FeedMessage> {
    return await eventually(() => {
      const found = this.messages.find((message) => message.event === event);
      if (found === undefined) throw new Error(`no ${event} yet`);
      return found;
    });
  }

  /** What it was told of one task. */
  task(id: string): FeedMessage["data"][] {
    return this.of("task").flatMap(({ data }) => (data["id"] === id ? [data] : []));
  }

  states(id: string): unknown[] {
    return this.task(id).map(({ state }) => state);
  }

  get lastId(): string | undefined {
    return this.messages.findLast(({ id }) => id !== undefined)?.id;
  }

  close(): void {
    this.#abort.abort();
  }

  async #read(body: ReadableStream<Uint8Array>): Promise<void> {
    const decoder = new TextDecoder();
    for await (const piece of body) this.#take(decoder.decode(piece, { stream: true }));
  }

  #take(text: string): void {
    const messages = (this.#rest + text).split("\n\n");
    this.#rest = messages.pop() ?? "";
    for (const message of messages) {
      if (message.startsWith(":")) this.comments.push(message);
      else this.messages.push(parse(message));
    }
  }
}

function parse(message: string): FeedMessage {
  const fields = new Map(
    message.split("\n").map((line) => {
      const [, name = "", value = ""] = /^(\w+): ([^]*)$/.exec(line) ?? [];
      return [name, value];
    }),
  );
  return {
    id: fields.get("id"),
    event: fields.get("event") ?? "",
    data: JSON.parse(fields.get("data") ?? "null") as FeedMessage["data"],
  };
}
