import {
  BATCH,
  BATCHES_IN_FLIGHT,
  type Call,
  type Feed,
  now,
  type OpenOptions,
  PAYLOAD_BYTES,
  type Request,
  type Role,
  type Said,
} from "./protocol.ts";

/** 100 bytes of JSON with its number, from which the key follows. */
export interface Payload {
  readonly n: number;
  readonly pad: string;
}

export interface Producer {
  /** Resolves when all are durable. */
  enqueue(payloads: readonly Payload[]): Promise<void>;
  close(): Promise<void>;
}

export interface Closeable {
  close(): Promise<void>;
}

export type Handler = (payload: Payload) => Promise<void>;

/** What one task system does in a child process, in its own words. */
export interface Programs {
  prepare(url: string): Promise<void>;
  /** Of systems whose producers and workers have no database. */
  openServer?(options: OpenOptions): Promise<Closeable>;
  openProducer(options: OpenOptions): Promise<Producer>;
  openWorker(options: OpenOptions, handler: Handler): Promise<Closeable>;
}

const REPORT_EVERY_MS = 20;
const FRAME = JSON.stringify({ n: 0, pad: "" }).length - 1;

function payload(n: number): Payload {
  return { n, pad: "x".repeat(PAYLOAD_BYTES - FRAME - String(n).length) };
}

const batchOf = (first: number, count: number): Payload[] =>
  Array.from({ length: count }, (_, index) => payload(first + index));

/** Answers the parent until it goes away, and ends with it whatever happens. */
export function serve(programs: Programs): void {
  let role: RunningRole | undefined;
  const answer = async (call: Call): Promise<number> => {
    switch (call.do) {
      case "open":
        role = await openRole(programs, call.role, call.options);
        return 0;
      case "rss":
        return process.resourceUsage().maxRSS / 1024;
      case "cpu": {
        const { user, system } = process.cpuUsage();
        return user + system;
      }
      case "close":
        await role?.close();
        role = undefined;
        return 0;
      default:
        if (!(role instanceof Feeder)) throw new Error(`${call.do} is for producers`);
        return await role.answer(call);
    }
  };
  process.on("message", (message: Request | Feed) => {
    if ("feed" in message) {
      if (role instanceof Feeder) role.feed(message.feed);
      return;
    }
    answer(message.call).then(
      (value) => say({ id: message.id, value }),
      (error: unknown) => say({ id: message.id, error: String((error as Error).stack ?? error) }),
    );
  });
  process.on("disconnect", () => process.exit(0));
}

function say(said: Said): void {
  process.send?.(said);
}

interface RunningRole {
  close(): Promise<void>;
}

async function openRole(
  programs: Programs,
  role: Role,
  options: OpenOptions,
): Promise<RunningRole | undefined> {
  if (role === "prepare") {
    await programs.prepare(options.url);
    return undefined;
  }
  if (role === "server") {
    if (programs.openServer === undefined) throw new Error("this system has no server");
    return await programs.openServer(options);
  }
  if (role === "producer") {
    return new Feeder(await programs.openProducer(options));
  }
  return await openWorker(programs, options);
}

async function openWorker(programs: Programs, options: OpenOptions): Promise<RunningRole> {
  let handled = 0;
  let reported = 0;
  const count: Handler = async () => {
    handled += 1;
  };
  const tell: Handler = async ({ n }) => say({ started: n, at: now() });
  const worker = await programs.openWorker(options, options.purpose === "latency" ? tell : count);
  const reporting = setInterval(() => {
    if (handled === reported) return;
    reported = handled;
    say({ handled });
  }, REPORT_EVERY_MS);
  return {
    async close() {
      clearInterval(reporting);
      await worker.close();
    },
  };
}

/** Enqueues all that it may, in batches, a few of them at a time. */
class Feeder implements RunningRole {
  readonly #producer: Producer;
  readonly #underWay = new Set<Promise<void>>();
  #begun = 0;
  #durable = 0;
  #limit = 0;
  #failure: unknown;

  constructor(producer: Producer) {
    this.#producer = producer;
  }

  async answer(call: Exclude<Call, { do: "open" | "rss" | "cpu" | "close" }>): Promise<number> {
    if (call.do === "one") return await this.#one();
    if (call.do === "hold") {
      this.#limit = 0;
      await this.#settled();
      return this.#durable;
    }
    const startedAt = performance.now();
    this.feed(this.#begun + call.count);
    while (this.#durable < this.#limit) await this.#settled();
    return performance.now() - startedAt;
  }

  feed(limit: number): void {
    this.#limit = limit;
    while (this.#underWay.size < BATCHES_IN_FLIGHT && this.#begun + BATCH <= this.#limit) {
      const batch = this.#enqueue(BATCH).finally(() => {
        this.#underWay.delete(batch);
        this.feed(this.#limit);
      });
      batch.catch((error: unknown) => {
        this.#failure = error;
      });
      this.#underWay.add(batch);
    }
  }

  async close(): Promise<void> {
    this.#limit = 0;
    await this.#settled();
    await this.#producer.close();
  }

  async #enqueue(count: number): Promise<void> {
    const first = this.#begun;
    this.#begun += count;
    await this.#producer.enqueue(batchOf(first, count));
    this.#durable += count;
  }

  async #one(): Promise<number> {
    const calledAt = now();
    await this.#enqueue(1);
    return calledAt;
  }

  async #settled(): Promise<void> {
    await Promise.allSettled(this.#underWay);
    if (this.#failure !== undefined) throw this.#failure;
  }
}
