import { setTimeout as delay } from "node:timers/promises";
import type { Program } from "../test/support/programs.ts";
import type { ChaosProcess, ProcessSpec } from "./processes.ts";
import { Proxy } from "./proxy.ts";

const AGAIN_MS = 200;

/** What a stage does for those who play on it. */
export interface Cast {
  readonly isClosing: boolean;
  start(what: string, source: Program, more?: Pick<ProcessSpec, "servers">): Promise<ChaosProcess>;
}

/**
 * One of the servers. Its clients know it by two doors, which stay where they are however often its
 * process is another one. As whoever runs processes does: one that ended is started again.
 */
export class ServerPlace implements AsyncDisposable {
  readonly producers: Proxy;
  readonly workers: Proxy;
  readonly #cast: Cast;
  #process: ChaosProcess | undefined;
  #starting: Promise<ChaosProcess>;
  #isOver = false;

  private constructor(cast: Cast, producers: Proxy, workers: Proxy) {
    this.#cast = cast;
    this.producers = producers;
    this.workers = workers;
    this.#starting = this.#start();
  }

  static async open(cast: Cast): Promise<ServerPlace> {
    const nowhere = "http://127.0.0.1:1";
    const place = new ServerPlace(cast, await Proxy.open(nowhere), await Proxy.open(nowhere));
    await place.up();
    return place;
  }

  /** Resolves when it listens: at once, unless it is being started. */
  async up(): Promise<ChaosProcess> {
    return await this.#starting;
  }

  /** Undefined while it is being started. */
  get process(): ChaosProcess | undefined {
    return this.#process;
  }

  async #start(): Promise<ChaosProcess> {
    while (!this.#cast.isClosing && !this.#isOver) {
      try {
        const started = await this.#cast.start("server", "chaos/server-program.ts");
        this.#process = started;
        this.producers.aim(`http://127.0.0.1:${started.ports.producer}`);
        this.workers.aim(`http://127.0.0.1:${started.ports.worker}`);
        void started.exited.then(() => this.#gone());
        return started;
      } catch {
        await delay(AGAIN_MS); // What is broken may hit it too.
      }
    }
    throw new Error("the run is over");
  }

  #gone(): void {
    this.#process = undefined;
    this.#starting = this.#start();
    this.#starting.catch(() => {}); // Only when the run is over.
  }

  /** Lets it drain, and starts no other. */
  async stop(): Promise<void> {
    const server = await this.up();
    this.#isOver = true;
    await server.stop();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#isOver = true;
    await Promise.all([this.producers[Symbol.asyncDispose](), this.workers[Symbol.asyncDispose]()]);
  }
}

const SERVERS = 2;
const WORKERS = 2;

/** The servers, and those who know the database through them only. */
export class RemoteSide implements AsyncDisposable {
  readonly #cast: Cast;
  readonly servers: readonly ServerPlace[];
  #workers: ChaosProcess[] = [];

  private constructor(cast: Cast, servers: readonly ServerPlace[]) {
    this.#cast = cast;
    this.servers = servers;
  }

  static async open(cast: Cast): Promise<RemoteSide> {
    const opening = Array.from({ length: SERVERS }, () => ServerPlace.open(cast));
    const side = new RemoteSide(cast, await Promise.all(opening));
    await side.refill();
    return side;
  }

  get workers(): readonly ChaosProcess[] {
    return this.#workers.filter(({ isGone }) => !isGone);
  }

  async startProducer(): Promise<ChaosProcess> {
    const servers = this.#addresses(0, (place) => place.producers);
    return await this.#cast.start("remote-producer", "chaos/remote-producer-program.ts", {
      servers,
    });
  }

  /** As many workers as there should be, every other one at another server first. */
  async refill(): Promise<void> {
    const left = this.workers;
    const missing = Array.from({ length: WORKERS - left.length }, (_, place) =>
      this.#startWorker(left.length + place),
    );
    this.#workers = [...left, ...(await Promise.all(missing))];
  }

  async #startWorker(first: number): Promise<ChaosProcess> {
    const servers = this.#addresses(first, ({ workers }) => workers);
    const program = "chaos/remote-worker-program.ts";
    for (;;) {
      try {
        return await this.#cast.start("remote-worker", program, { servers });
      } catch (error) {
        if (this.#cast.isClosing) throw error;
        await delay(AGAIN_MS); // Servers on a busy machine may not answer in time.
      }
    }
  }

  #addresses(first: number, doorOf: (place: ServerPlace) => Proxy): string[] {
    const all = this.servers.map((place) => new URL(doorOf(place).url).host);
    const turn = first % all.length;
    return [...all.slice(turn), ...all.slice(0, turn)];
  }

  /** All servers listen again, and have their workers. */
  async up(): Promise<void> {
    await Promise.all(this.servers.map((place) => place.up()));
    await this.refill();
  }

  /** Nothing is to be done any more. */
  async stop(): Promise<void> {
    await Promise.all(this.#workers.map((worker) => worker.stop()));
    await Promise.all(this.servers.map((place) => place.stop()));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.servers.map((place) => place[Symbol.asyncDispose]()));
  }
}
