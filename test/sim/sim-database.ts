import { Duplex } from "node:stream";
import pg from "pg";
import { silentLogger } from "../../src/base/log.ts";
import { Connection, type ConnectionOptions, Database } from "../../src/db/database.ts";
import { resolveNames } from "../../src/db/names.ts";
import { mapConnectError, sqlState } from "../../src/db/sqlstate.ts";
import type { Reply, Session } from "./session.ts";
import type { Link, SimNetwork } from "./sim-network.ts";
import type { SimPostgres } from "./sim-postgres.ts";
import type { SimProcess } from "./sim-process.ts";

/** The one process that connects, the wire and the server. */
export interface Place {
  readonly process: SimProcess;
  readonly network: SimNetwork;
  readonly server: SimPostgres;
}

export const NAMES = resolveNames();
const QUERY_MS = 5_000;
const CONNECT_MS = 3_000;

interface Pending {
  readonly resolve: (reply: Reply) => void;
  readonly reject: (error: Error) => void;
  readonly cancel: () => void;
}

/** What the engine reads of a socket: whether it was destroyed, and the way to do so. */
class Wire extends Duplex {
  onDestroy: () => void = () => {};

  override _read(): void {}
  override destroy(): this {
    if (this.destroyed) return this;
    super.destroy();
    this.onDestroy();
    return this;
  }
}

/** A node-postgres client whose server is simulated: everything below `query` is ours. */
export class SimClient {
  readonly pgClient: pg.Client;
  readonly #place: Place;
  readonly #timeoutMs: number;
  readonly #wire = new Wire();
  readonly #pending = new Map<number, Pending>();
  #link: Link | undefined;
  #session: Session | undefined;
  #lastId = 0;
  isInTransaction = false;

  constructor(place: Place, timeoutMs: number) {
    this.#place = place;
    this.#timeoutMs = timeoutMs;
    this.pgClient = new pg.Client({ stream: () => this.#wire });
    this.#wire.onDestroy = () => this.#destroyed();
    const query = (given: string | pg.QueryConfig): Promise<Reply> => this.#query(given);
    Object.assign(this.pgClient, { query, end: () => this.end() });
    this.pgClient.on("error", () => {});
  }

  get isDestroyed(): boolean {
    return this.#wire.destroyed;
  }

  /** Says hello, and waits to hear it back. */
  connect(): Promise<void> {
    const { process, network, server } = this.#place;
    return new Promise((resolve, reject) => {
      const fail = (code: string, message: string): void => {
        cancel();
        reject(Object.assign(new Error(message), code === "" ? {} : { code }));
        this.#wire.destroy();
      };
      const timeoutMs = Math.min(this.#timeoutMs, CONNECT_MS);
      const cancel = process.clock.after(timeoutMs, () => fail("", "timeout expired"));
      const link = network.open({
        onClientEnd: () =>
          process.hear(() => {
            fail("ECONNRESET", "Connection terminated unexpectedly");
          }),
        onServerEnd: (isReset) => this.#session?.leave(isReset),
      });
      this.#link = link;
      link.send("toServer", () => {
        if (!server.isUp) {
          const refuse = (): void => fail("ECONNREFUSED", "connect ECONNREFUSED");
          link.send("toClient", () => process.hear(refuse));
          return;
        }
        const session = server.connect({
          answer: (reply) => {
            if (network.isLost(reply)) link.reset();
            else link.send("toClient", () => process.hear(() => this.#answered(reply)));
          },
          notify: (channel, payload) =>
            link.send("toClient", () =>
              process.hear(() => {
                this.pgClient.emit("notification", { channel, payload, processId: 0 });
              }),
            ),
          onEnd: () => link.closeFromServer(),
        });
        this.#session = session;
        link.send("toClient", () =>
          process.hear(() => {
            cancel();
            Object.assign(this.pgClient, { processID: session.pid });
            resolve();
          }),
        );
      });
    });
  }

  #query(given: string | pg.QueryConfig): Promise<Reply> {
    const { process } = this.#place;
    const {
      name,
      text,
      values = [],
    } = typeof given === "string" ? { name: undefined, text: given } : given;
    if (this.isDestroyed) {
      return Promise.reject(
        new Error("Client has encountered a connection error and is not queryable"),
      );
    }
    this.#lastId += 1;
    const id = this.#lastId;
    return new Promise((resolve, reject) => {
      const cancel = process.clock.after(this.#timeoutMs, () => {
        this.#pending.delete(id);
        reject(new Error("Query read timeout"));
        this.#wire.destroy();
      });
      this.#pending.set(id, { resolve, reject, cancel });
      this.#link?.send("toServer", () => this.#session?.receive({ id, name, text, values }));
    });
  }

  #answered(reply: Reply): void {
    const pending = this.#pending.get(reply.id);
    if (pending === undefined) return;
    this.#pending.delete(reply.id);
    pending.cancel();
    this.isInTransaction = reply.isInTransaction;
    if (reply.error === undefined) pending.resolve(reply);
    else pending.reject(reply.error);
  }

  /** Whoever ended it: what was on its way has no answer. */
  #destroyed(): void {
    this.#link?.closeFromClient();
    const pending = [...this.#pending.values()];
    this.#pending.clear();
    for (const { cancel, reject } of pending) {
      cancel();
      reject(new Error("Connection terminated unexpectedly"));
    }
    this.pgClient.emit("end");
  }

  /** Says goodbye when all was answered. */
  async end(): Promise<void> {
    this.#wire.destroy();
  }
}

/** The engine's database on the simulated one: the same statements, errors and transactions. */
export class SimDatabase extends Database {
  readonly #place: Place;
  readonly #poolSize: number;
  readonly #clients = new Map<pg.Client, SimClient>();
  readonly #idle: SimClient[] = [];
  #taken = 0;
  readonly #waiting: (() => void)[] = [];

  constructor(place: Place, poolSize: number) {
    super({
      url: "postgres://simulated/tidemill",
      names: NAMES,
      logger: silentLogger,
      poolSize,
      applicationName: "simulation",
      preparedStatements: true, // A statement is known by its name.
      queryTimeoutMs: QUERY_MS,
      connectTimeoutMs: CONNECT_MS,
    });
    this.#place = place;
    this.#poolSize = poolSize;
  }

  async #open(timeoutMs: number): Promise<SimClient> {
    const client = new SimClient(this.#place, timeoutMs);
    try {
      await client.connect();
    } catch (error) {
      throw mapConnectError(error, this.options.url);
    }
    return client;
  }

  override async connect(_purpose: string, options: ConnectionOptions = {}): Promise<Connection> {
    const client = await this.#open(options.timeoutMs ?? QUERY_MS);
    this.#clients.set(client.pgClient, client);
    return new Connection(client.pgClient, this);
  }

  override async withConnection<T>(work: (connection: Connection) => Promise<T>): Promise<T> {
    if (this.#taken >= this.#poolSize) await this.#turn();
    else this.#taken += 1;
    let client: SimClient | undefined;
    let isSound = true;
    try {
      client = this.#idle.pop();
      while (client?.isDestroyed === true) client = this.#idle.pop();
      client ??= await this.#open(QUERY_MS);
      return await work(new Connection(client.pgClient, this));
    } catch (error) {
      const cause = error instanceof Error ? error.cause : undefined;
      const isAnswered = (sqlState(error) ?? sqlState(cause))?.length === 5;
      isSound = isAnswered && client?.isInTransaction === false;
      throw error;
    } finally {
      if (client !== undefined && isSound && !client.isDestroyed) this.#idle.push(client);
      else void client?.end();
      this.#release();
    }
  }

  /** All connections are taken: waits for one, but not for ever. */
  #turn(): Promise<void> {
    return new Promise((resolve, reject) => {
      const take = (): void => {
        cancel();
        resolve();
      };
      const cancel = this.#place.process.clock.after(CONNECT_MS, () => {
        this.#waiting.splice(this.#waiting.indexOf(take), 1);
        const cause = new Error("timeout exceeded when trying to connect");
        reject(mapConnectError(cause, this.options.url));
      });
      this.#waiting.push(take);
    });
  }

  #release(): void {
    const next = this.#waiting.shift();
    if (next === undefined) this.#taken -= 1;
    else next();
  }

  override another(poolSize: number): Database {
    return new SimDatabase(this.#place, poolSize);
  }

  override async sayGoodbye(client: pg.Client): Promise<void> {
    await this.#clients.get(client)?.end();
    this.#clients.delete(client);
  }

  override async close(): Promise<void> {
    for (const client of this.#idle.splice(0)) await client.end();
  }
}
