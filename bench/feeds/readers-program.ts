import { once } from "node:events";
import { get, type IncomingMessage } from "node:http";
import { setTimeout as pause } from "node:timers/promises";
import { listen } from "./spoken.ts";
import { TOKEN, WATCHED } from "./token.ts";

interface Options {
  readonly url: string;
  readonly clients: number;
}

const { url, clients } = JSON.parse(process.argv.at(-1) ?? "{}") as Options;
const SETTLE_MS = 50;
const SETTLE_MS_MAX = 10_000;

/** One client: what it was told, each change by its id. */
class Reader {
  readonly #seen = new Set<string>();
  #rest = "";
  told = 0;
  lagged = 0;
  isReady = false;

  get different(): number {
    return this.#seen.size;
  }

  async open(): Promise<void> {
    const headers = { authorization: `Bearer ${TOKEN}` };
    const request = get(`${url}/v1/feed?queue=${WATCHED}`, { headers, agent: false });
    const [response] = (await once(request, "response")) as [IncomingMessage];
    if (response.statusCode !== 200) throw new Error(`the feed answered ${response.statusCode}`);
    response.setEncoding("utf8").on("data", (text: string) => this.#take(text));
    while (!this.isReady) await pause(SETTLE_MS);
  }

  #take(text: string): void {
    const messages = (this.#rest + text).split("\n\n");
    this.#rest = messages.pop() ?? "";
    for (const message of messages) {
      if (message.includes("\nevent: task\n")) {
        this.told += 1;
        this.#seen.add(message.slice(0, message.indexOf("\n")));
      } else if (message.includes("event: ready")) this.isReady = true;
      else if (/event: (lagged|reset)/.test(message)) this.lagged += 1;
    }
  }
}

const readers = Array.from({ length: clients }, () => new Reader());
for (const reader of readers) await reader.open();

await listen(async (line) => {
  const expected = Number(line.split(" ")[1]);
  const isDone = (): boolean => readers.every(({ different }) => different >= expected);
  for (let ms = 0; ms < SETTLE_MS_MAX && !isDone(); ms += SETTLE_MS) await pause(SETTLE_MS);
  const sum = (of: (reader: Reader) => number): number =>
    readers.reduce((total, reader) => total + of(reader), 0);
  return {
    missed: sum(({ different }) => Math.max(0, expected - different)),
    repeated: sum(({ told, different }) => told - different),
    lagged: sum(({ lagged }) => lagged),
  };
});
process.exit(0);
