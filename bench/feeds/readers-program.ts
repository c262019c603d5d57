import { connect } from "node:net";
import { setTimeout as pause } from "node:timers/promises";
import { crc32 } from "node:zlib";
import { quantile } from "../support/figure.ts";
import { listen } from "../support/spoken.ts";
import { TOKEN, WATCHED } from "./token.ts";

interface Options {
  readonly port: number;
  readonly clients: number;
  /** Whether one more connects, and stops reading as soon as it is ready. */
  readonly isOneStalled: boolean;
}

const options = JSON.parse(process.argv.at(-1) ?? "{}") as Options;
const { port, clients, isOneStalled } = options;
const AT_ONCE = 50;
const SETTLE_MS = 50;
const SETTLE_MS_MAX = 10_000;
/** One of so many looks at how late it is told. */
const TIMED_EVERY = 20;

// HTTP/1.0: what comes is the text of the feed and nothing else, the same for every client.
const requestOf = (query: string): string =>
  [
    `GET /v1/feed${query} HTTP/1.0`,
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
  lastAtMs = 0;
  /** From the change to its arrival, of one that is timed. */
  readonly delays: number[] = [];
  /** Of one that is read with care: each change by its id. */
  readonly seen = new Set<string>();
  readonly #isCareful: boolean;
  readonly #isTimed: boolean;
  #start = "";
  #isReady = false;

  constructor(number: number) {
    this.#isCareful = number === 0;
    this.#isTimed = number % TIMED_EVERY === 0;
  }

  async open(): Promise<void> {
    const socket = connect(port, "127.0.0.1");
    socket.write(requestOf(`?queue=${WATCHED}`));
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
    this.lastAtMs = performance.now();
    for (let at = bytes.indexOf(TASK); at >= 0; at = bytes.indexOf(TASK, at + 1)) this.told += 1;
    if (bytes.includes("event: lagged") || bytes.includes("event: reset")) this.lagged += 1;
    if (!this.#isCareful && !this.#isTimed) return;
    const text = bytes.toString();
    const nowMs = Date.now();
    for (const [, at = ""] of text.matchAll(/"at":"([^"]+)"/g)) {
      this.delays.push(nowMs - Date.parse(at));
    }
    if (!this.#isCareful) return;
    for (const [id] of text.matchAll(/^id: .*$/gm)) this.seen.add(id);
  }
}

/** Wants every change of every task, and takes none until it is told to. */
class Stalled {
  lagged = 0;
  #socket = connect(port, "127.0.0.1");
  #tail = "";

  async open(): Promise<void> {
    const socket = this.#socket;
    socket.write(requestOf(""));
    await new Promise<void>((resolve, reject) => {
      socket.once("error", reject);
      let start = "";
      const begin = (bytes: Buffer): void => {
        start += bytes.toString("latin1");
        if (!start.includes("event: ready")) return;
        socket.off("data", begin).pause();
        resolve();
      };
      socket.on("data", begin);
    });
  }

  /** Reads what is there, and finds that it is not all. */
  async wake(): Promise<void> {
    this.#socket.on("data", (bytes) => {
      const text = this.#tail + bytes.toString("latin1");
      this.lagged += text.split("event: lagged").length - 1;
      this.#tail = text.slice(-"event: lagge".length);
    });
    this.#socket.resume();
    for (let ms = 0; ms < SETTLE_MS_MAX && this.lagged === 0; ms += SETTLE_MS) {
      await pause(SETTLE_MS);
    }
  }
}

const readers = Array.from({ length: clients }, (_, n) => new Reader(n));
for (let first = 0; first < clients; first += AT_ONCE) {
  await Promise.all(readers.slice(first, first + AT_ONCE).map((reader) => reader.open()));
}
const stalled = isOneStalled ? new Stalled() : undefined;
await stalled?.open();

let begunMs = 0;

await listen(async (line) => {
  if (line === "begin") {
    begunMs = performance.now();
    return {};
  }
  const expected = Number(line.split(" ")[1]);
  const isDone = (): boolean => readers.every(({ told }) => told >= expected);
  for (let ms = 0; ms < SETTLE_MS_MAX && !isDone(); ms += SETTLE_MS) await pause(SETTLE_MS);
  await stalled?.wake();
  const [first] = readers;
  const sum = (of: (reader: Reader) => number): number =>
    readers.reduce((total, reader) => total + of(reader), 0);
  return {
    deliveries: sum(({ told }) => told),
    seconds: (Math.max(...readers.map(({ lastAtMs }) => lastAtMs)) - begunMs) / 1000,
    missed: sum(({ told }) => Math.max(0, expected - told)),
    repeated: (first?.told ?? 0) - (first?.seen.size ?? 0),
    different: sum((reader) => (reader.sum === first?.sum ? 0 : 1)),
    lagged: sum(({ lagged }) => lagged),
    delayP99Ms: quantile(
      readers.flatMap(({ delays }) => delays),
      0.99,
    ),
    stalledLagged: stalled?.lagged ?? 0,
  };
});
process.exit(0);
