import { connect } from "node:net";
import { setTimeout as pause } from "node:timers/promises";
import { crc32 } from "node:zlib";
import { listen } from "../support/spoken.ts";
import { TOKEN, WATCHED } from "./token.ts";

interface Options {
  readonly port: number;
  readonly clients: number;
}

const { port, clients } = JSON.parse(process.argv.at(-1) ?? "{}") as Options;
const AT_ONCE = 50;
const SETTLE_MS = 50;
const SETTLE_MS_MAX = 10_000;

// HTTP/1.0: what comes is the text of the feed and nothing else, the same for every client.
const REQUEST = [
  `GET /v1/feed?queue=${WATCHED} HTTP/1.0`,
  "host: 127.0.0.1",
  `authorization: Bearer ${TOKEN}`,
  "",
  "",
].join("\r\n");
const TASK = "event: task\n";
const HEARTBEAT = /: heartbeat\n\n/g;

/**
 * One client. It is on the same cores as what is measured, and in life on others: so it only counts
 * what it is told, and sums it up to be compared with what the first client was told.
 */
class Reader {
  told = 0;
  lagged = 0;
  sum = 0;
  /** Of one that is read with care: each change by its id. */
  readonly seen: Set<string> | undefined;
  #start = "";
  #isReady = false;

  constructor(isCareful: boolean) {
    this.seen = isCareful ? new Set() : undefined;
  }

  async open(): Promise<void> {
    const socket = connect(port, "127.0.0.1");
    socket.write(REQUEST);
    await new Promise<void>((resolve, reject) => {
      socket.once("error", reject);
      socket.on("data", (bytes) => {
        if (this.#isReady) this.#take(bytes);
        else {
          this.#start += bytes.toString("latin1");
          this.#isReady = /\nevent: ready\ndata: .*\n\n$/.test(this.#start);
          if (this.#isReady) resolve();
        }
      });
    });
  }

  #take(given: Buffer): void {
    const hasBeat = given.includes(": heartbeat");
    const bytes = hasBeat ? Buffer.from(given.toString().replace(HEARTBEAT, "")) : given;
    this.sum = crc32(bytes, this.sum);
    for (let at = bytes.indexOf(TASK); at >= 0; at = bytes.indexOf(TASK, at + 1)) this.told += 1;
    if (bytes.includes("event: lagged") || bytes.includes("event: reset")) this.lagged += 1;
    if (this.seen === undefined) return;
    for (const [id] of bytes.toString().matchAll(/^id: .*$/gm)) this.seen.add(id);
  }
}

const readers = Array.from({ length: clients }, (_, n) => new Reader(n === 0));
for (let first = 0; first < clients; first += AT_ONCE) {
  await Promise.all(readers.slice(first, first + AT_ONCE).map((reader) => reader.open()));
}

await listen(async (line) => {
  const expected = Number(line.split(" ")[1]);
  const isDone = (): boolean => readers.every(({ told }) => told >= expected);
  for (let ms = 0; ms < SETTLE_MS_MAX && !isDone(); ms += SETTLE_MS) await pause(SETTLE_MS);
  const [first] = readers;
  const sum = (of: (reader: Reader) => number): number =>
    readers.reduce((total, reader) => total + of(reader), 0);
  return {
    missed: sum(({ told }) => Math.max(0, expected - told)),
    repeated: (first?.told ?? 0) - (first?.seen?.size ?? 0),
    different: sum((reader) => (reader.sum === first?.sum ? 0 : 1)),
    lagged: sum(({ lagged }) => lagged),
  };
});
process.exit(0);
