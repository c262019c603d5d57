import { setTimeout as delay } from "node:timers/promises";
import pg from "pg";
import type { Token } from "../src/checker/history.ts";
import { Tidemill } from "../src/index.ts";
import { type OwnServer, ownServer } from "../test/support/own-server.ts";
import type { Program } from "../test/support/programs.ts";
import { Disk, whyNoDisk } from "./disk.ts";
import { begunIn, heldBy, lockedOf, stillHeld, untilMoved } from "./held.ts";
import { type HistoryWriter, readHistory } from "./history.ts";
import { ChaosProcess, type ProcessOptions, type Told } from "./processes.ts";
import { RemoteSide } from "./remote-side.ts";
import { remoteLimited, SCHEDULE, ticks } from "./scene.ts";
import { createTables } from "./tables.ts";

const MAX_CONNECTIONS = 150;
const RESTART_MS = 200;

type Varied = "url" | "isPooled" | "clock" | "servers" | "isEager";
export type StartOptions = Partial<Pick<ProcessOptions, Varied>>;

export interface StageOptions {
  /** Where the histories go. */
  readonly folder: string;
  readonly seed: number;
  /** Told how processes end, and what they held when they were hit. */
  readonly history: HistoryWriter;
}

/** The server and the processes of one run, and what may be done to them. */
export class Stage implements AsyncDisposable {
  readonly server: OwnServer;
  /** Where the server keeps its data. None where it cannot be made. */
  readonly disk: Disk | undefined;
  readonly folder: string;
  readonly #seed: number;
  readonly #history: HistoryWriter;
  #processes: ChaosProcess[] = [];
  readonly #workers = new Set<ChaosProcess>();
  readonly #producers = new Set<ChaosProcess>();
  #remote: RemoteSide | undefined;
  readonly #starting = new Set<Promise<ChaosProcess>>();
  #started = 0;
  #wanted = 0;
  #held: readonly Token[] = [];
  #isClosing = false;
  /** A run that is interrupted leaves neither processes nor a server. */
  readonly #abandon = (): void => {
    for (const one of this.#processes) one.kill();
    this.server.abandon();
    this.disk?.abandon();
  };

  private constructor(
    server: OwnServer,
    disk: Disk | undefined,
    { folder, seed, history }: StageOptions,
  ) {
    this.server = server;
    this.disk = disk;
    this.folder = folder;
    this.#seed = seed;
    this.#history = history;
    process.once("exit", this.#abandon);
  }

  static async open(options: StageOptions): Promise<Stage> {
    const disk = whyNoDisk() === undefined ? await Disk.mount() : undefined;
    const settings = {
      max_connections: String(MAX_CONNECTIONS),
      max_prepared_transactions: "10",
      shared_buffers: "256MB",
    };
    const server = await ownServer(settings, disk?.folder);
    const stage = new Stage(server, disk, options);
    await Tidemill.migrate(server.url);
    await stage.withClient(createTables);
    const mill = await Tidemill.connect(server.url);
    await mill.queues.define(remoteLimited); // Its workers cannot: they have no database.
    await mill.schedules.put(SCHEDULE, { cron: "* * * * * *", queue: ticks, catchUp: "all" });
    await mill.close();
    return stage;
  }

  get isClosing(): boolean {
    return this.#isClosing;
  }

  /** Workers that are neither killed nor paused. */
  get workers(): ChaosProcess[] {
    const running = [...this.#workers].filter(({ isGone, isPaused }) => !isGone && !isPaused);
    // Not by who was up first: the seed decides which of them is hit.
    return running.sort((a, b) => a.name.localeCompare(b.name, "en", { numeric: true }));
  }

  get producers(): ChaosProcess[] {
    return [...this.#producers].filter(({ isGone }) => !isGone);
  }

  /** Servers and their clients, once they are there. */
  get remote(): RemoteSide {
    if (this.#remote === undefined) throw new Error("the servers are not there yet");
    return this.#remote;
  }

  async startWorker(more: StartOptions = {}): Promise<ChaosProcess> {
    const worker = await this.start("worker", "chaos/worker-program.ts", more);
    this.#workers.add(worker);
    void worker.exited.then(() => this.#replace());
    return worker;
  }

  /** As whoever runs processes does: one that ended by itself is started again. */
  async #replace(): Promise<void> {
    if (this.#isClosing || this.workers.length >= this.#wanted) return;
    await delay(RESTART_MS);
    if (this.#isClosing || this.workers.length >= this.#wanted) return;
    await this.startWorker().catch(() => this.#replace());
  }

  /** Servers and their workers. */
  async openRemote(): Promise<void> {
    this.#remote = await RemoteSide.open(this);
  }

  /** Of those who have the database, and of those who have servers. */
  async startLoad(): Promise<void> {
    const producers = await Promise.all([
      this.start("producer", "chaos/producer-program.ts"),
      this.remote.startProducer(),
    ]);
    for (const producer of producers) this.#producers.add(producer);
  }

  async start(what: string, source: Program, more: StartOptions = {}): Promise<ChaosProcess> {
    this.#started += 1;
    const options = {
      url: this.server.url,
      folder: this.folder,
      name: `${what}-${this.#started}`,
      seed: this.#seed + this.#started,
      isPooled: false,
      ...more,
    };
    const tell = (what: Told): void => this.#history.add(what);
    const starting = ChaosProcess.start(source, options, tell);
    this.#starting.add(starting);
    const started = await starting.finally(() => this.#starting.delete(starting));
    this.#processes.push(started);
    return started;
  }

  /** The worker or server that leads, if it is neither killed nor paused. */
  async leader(): Promise<ChaosProcess | undefined> {
    const { rows } = await this.withClient((client) =>
      client.query<{ leader_id: string }>("SELECT leader_id FROM tidemill.leader_term"),
    );
    const servers = this.#remote?.servers.flatMap(({ process: server }) => server ?? []) ?? [];
    const all = [...this.workers, ...servers];
    return all.find(({ workerId }) => workerId === rows[0]?.leader_id);
  }

  /** Starts or stops workers until there are so many. */
  async scaleTo(count: number): Promise<void> {
    this.#wanted = count;
    const spare = this.workers.slice(count);
    await Promise.all(spare.map((worker) => worker.stop()));
    while (this.workers.length < count) {
      const missing = Array.from(
        { length: count - this.workers.length },
        () => this.startWorker().catch(() => delay(RESTART_MS)), // What is broken may hit it too.
      );
      await Promise.all(missing);
    }
  }

  /** As many workers as there should be. */
  async refill(): Promise<void> {
    await this.scaleTo(this.#wanted);
  }

  /** Writes down what a process holds that was just hit. */
  async noteHeld({ name: by, workerId }: ChaosProcess): Promise<void> {
    const atMs = Date.now();
    const begun = workerId === null ? begunIn(readHistory(this.folder, by)) : [];
    const { tasks, locked } = await this.withClient(async (client) => {
      const held = workerId === null ? stillHeld(client, begun) : heldBy(client, workerId);
      return { tasks: await held, locked: await lockedOf(client, await held) };
    });
    this.#history.add({ op: "held", held: { by, atMs, tasks, locked } });
    this.#held = tasks;
  }

  /** Until what was held has ended or runs elsewhere: another fault would excuse a delay. */
  async untilHeldMoved(timeoutMs: number): Promise<void> {
    const held = this.#held;
    this.#held = [];
    if (held.length > 0) await this.withClient((client) => untilMoved(client, held, timeoutMs));
  }

  /** Every crash takes the statistics along by which the server itself knows what to clean. */
  async vacuum(): Promise<void> {
    const text = "VACUUM tidemill.tasks, tidemill.task_packs, tidemill.task_claims";
    await this.withClient((client) => client.query(text)).catch(() => {}); // The next one will do.
  }

  /** Past all proxies. */
  async withClient<T>(work: (client: pg.Client) => Promise<T>): Promise<T> {
    const client = new pg.Client({ connectionString: this.server.url });
    client.on("error", () => {}); // The next query on it fails and says why.
    await client.connect();
    try {
      return await work(client);
    } finally {
      await client.end().catch(() => {});
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#isClosing = true;
    await Promise.allSettled(this.#starting);
    await Promise.all(this.#processes.map((one) => one[Symbol.asyncDispose]()));
    this.#processes = [];
    await this.#remote?.[Symbol.asyncDispose]();
    await this.server.remove();
    this.disk?.abandon();
    process.removeListener("exit", this.#abandon);
  }
}
