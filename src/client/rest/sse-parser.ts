/** One message of server-sent events. */
export interface SseMessage {
  readonly id: string | undefined;
  readonly event: string;
  readonly data: string;
}

/** More without the end of a message is no feed. */
const MESSAGE_CHARS_MAX = 1024 * 1024;

/** Takes a stream of server-sent events apart, whatever the pieces in which it comes. */
export class SseParser {
  #rest = "";

  /** The messages that are whole with this piece. Comments are passed over. */
  take(piece: string): SseMessage[] {
    const texts = (this.#rest + piece).split(/\r?\n\r?\n/);
    this.#rest = texts.pop() ?? "";
    if (this.#rest.length > MESSAGE_CHARS_MAX) throw new RangeError("a message is too large");
    return texts.flatMap((text) => parse(text) ?? []);
  }
}

function parse(text: string): SseMessage | undefined {
  let id: string | undefined;
  let event = "message";
  const data: string[] = [];
  for (const line of text.split(/\r?\n/)) {
    const [, name, value = ""] = /^([^:]*)(?:: ?([^]*))?$/.exec(line) ?? [];
    if (name === "id") id = value;
    else if (name === "event") event = value;
    else if (name === "data") data.push(value);
  }
  return data.length === 0 ? undefined : { id, event, data: data.join("\n") };
}
