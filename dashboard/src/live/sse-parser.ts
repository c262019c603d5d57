/** One message of server-sent events. */
export interface SseMessage {
  readonly event: string;
  readonly data: string;
  readonly id: string | undefined;
}

/** A longer line is none of ours. */
const PENDING_MAX = 4 * 1024 * 1024;

/** Puts messages together from the pieces in which they arrive. */
export class SseParser {
  #pending = "";
  #event = "";
  #data: string[] = [];
  #id: string | undefined;

  /** The messages that are complete with this piece. */
  push(piece: string): SseMessage[] {
    this.#pending += piece;
    if (this.#pending.length > PENDING_MAX) throw new Error("a message of the feed is too long");
    const lines = this.#pending.split("\n");
    this.#pending = lines.pop() ?? "";
    return lines.flatMap((line) => this.#take(line.replace(/\r$/, "")) ?? []);
  }

  #take(line: string): SseMessage | undefined {
    if (line === "") return this.#finish();
    const colon = line.indexOf(":");
    if (colon === 0) return undefined; // A comment: the server is alive.
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "event") this.#event = value;
    else if (field === "data") this.#data.push(value);
    else if (field === "id") this.#id = value;
    return undefined;
  }

  #finish(): SseMessage | undefined {
    const { length } = this.#data;
    const message = {
      event: this.#event || "message",
      data: this.#data.join("\n"),
      id: this.#id,
    };
    this.#event = "";
    this.#data = [];
    this.#id = undefined;
    return length === 0 ? undefined : message;
  }
}
