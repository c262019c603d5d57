import type { Duplex } from "node:stream";
import pg from "pg";
import { systemClock } from "../base/clock.ts";
import { CommitUnknownError, ConfigError, messageOf } from "../base/errors.ts";
import type { Logger } from "../base/log.ts";
import type { SqlExecutor } from "./executor.ts";
import type { Names } from "./names.ts";
import { mapConnectError, mapDatabaseError, sqlState, wasRolledBack } from "./sqlstate.ts";
import { renderStatement, type Statement } from "./statement.ts";

/** Anything that runs our statements: the pool, a transaction, a connection, the caller's own. */
export interface Queryable {
  query<Row>(statement: Statement, values?: readonly unknown[]): Promise<Row[]>;
}

/** What administration and enqueues need of a database: all of it, or one tenant's part. */
export interface Store extends Queryable {
  /** Whether every statement runs behind the tenant wall, and so in a transaction. */
  readonly isWalled: boolean;
  transaction<T>(work: (tx: Connection) => Promise<T>): Promise<T>;
  withConnection<T>(work: (connection: Connection) => Promise<T>): Promise<T>;
  over(executor: SqlExecutor): Queryable;
}

export interface DatabaseOptions {
  readonly url: string;
  readonly names: Names;
  readonly logger: Logger;
  readonly poolSize: number;
  readonly applicationName: string;
  /** Named prepared statements. Must be off through a pooler that does not track them. */
  readonly preparedStatements: boolean;
  readonly queryTimeoutMs: number;
  readonly connectTimeoutMs: number;
}

export interface ConnectionOptions {
  /** Another address of the same server. Defaults to the pool's. */
  readonly url?: string;
  /** How long this loop can wait for an answer. Defaults to the pool's. */
  readonly timeoutMs?: number;
}

/** A row as PostgreSQL sent it. */
export type TextRow = readonly (string | null)[];

/** How long a goodbye may take: a server that cannot be reached never says it back. */
const GOODBYE_MS = 1_000;

const streamOf = (client: pg.Client | pg.PoolClient): Duplex => {
  const { stream } = Reflect.get(client, "connection") as { stream: Duplex };
  return stream;
};

async function endClient(client: pg.Client): Promise<void> {
  const cancel = systemClock.after(GOODBYE_MS, () => streamOf(client).destroy());
  await client.end().catch(() => {});
  cancel();
}

const identity = (text: string): string => text;
const AS_TEXT = { getTypeParser: () => identity };

/** One connection outside the pool, for a loop that must not wait for others. */
export class Connection implements Queryable {
  readonly client: pg.Client | pg.PoolClient;
  readonly #database: Database;

  constructor(client: pg.Client | pg.PoolClient, database: Database) {
    this.client = client;
    this.#database = database;
  }

  async query<Row>(statement: Statement, values: readonly unknown[] = []): Promise<Row[]> {
    try {
      const result = await this.client.query(this.#database.toQuery(statement, values));
      return result.rows as Row[];
    } catch (error) {
      throw mapDatabaseError(error, statement.name);
    }
  }

  /** For readers that decode lazily: rows as PostgreSQL's text, column by column. */
  async queryText(statement: Statement, values: readonly unknown[]): Promise<TextRow[]> {
    try {
      const query = this.#database.toQuery(statement, values);
      const result = await this.client.query({ ...query, rowMode: "array", types: AS_TEXT });
      return result.rows as TextRow[];
    } catch (error) {
      throw mapDatabaseError(error, statement.name);
    }
  }

  /**
   * Statements that `send` hands over before it first waits leave this process as one packet: to
   * send one costs as much as many a statement does, here and at the server.
   */
  together<T>(send: () => T): T {
    const stream = streamOf(this.client);
    stream.cork();
    try {
      return send();
    } finally {
      stream.uncork();
    }
  }

  /** For statements that are not ours. */
  get executor(): SqlExecutor {
    return { query: (text, values) => this.client.query(text, values) };
  }

  /** Whether it was cut, by us or by the driver when no answer came in time. */
  get isDestroyed(): boolean {
    return streamOf(this.client).destroyed;
  }

  /** Cuts the connection now, whatever is on the wire: the server rolls back what was open. */
  destroy(): void {
    streamOf(this.client).destroy();
  }

  /** Waits for what is on the wire, but not for long; so does its database when that closes. */
  async close(): Promise<void> {
    if (this.client instanceof pg.Client) await this.#database.sayGoodbye(this.client);
  }
}

/** However long its owner takes between two statements. */
export const BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED";
/**
 * For work that never waits for anything else: when its connection falls silent in the middle, the
 * server ends the session, and its locks, by itself. Otherwise it would notice by TCP alone, and a
 * row that every worker needs, such as that of the leader, would be locked until then.
 */
const BEGIN_BRIEF = `${BEGIN}; SET LOCAL idle_in_transaction_session_timeout = '10s'`;

export interface TransactionOptions {
  /** Defaults to one that may rest for ten seconds at most. */
  readonly begin?: string;
}

/** The pool, the names and the settings that every statement needs. */
export class Database implements Store {
  readonly isWalled = false;
  readonly options: DatabaseOptions;
  readonly names: Names;
  readonly #pool: pg.Pool;
  #preparedStatements: boolean;
  /** Of connections outside the pool: loops that end do not wait for them. */
  readonly #goodbyes = new Set<Promise<void>>();
  #closing: Promise<void> | undefined;

  constructor(options: DatabaseOptions) {
    this.options = options;
    this.names = options.names;
    this.#preparedStatements = options.preparedStatements;
    this.#pool = new pg.Pool({
      ...this.#clientConfig(options.applicationName, options.url),
      max: options.poolSize,
      idleTimeoutMillis: 30_000,
      allowExitOnIdle: true,
    });
    // Heard from its first moment to its last: what breaks a client that nobody listens to ends the
    // process, and a server may end a session in the same breath in which it greets it. Whoever has
    // the client learns of it from the next query.
    this.#pool.on("connect", (client) => void client.on("error", () => {}));
    // An idle client that loses its server is already out of the pool; nothing else is to be done.
    this.#pool.on("error", (error) => {
      options.logger.debug({ error: messageOf(error) }, "idle database connection closed");
    });
  }

  toQuery(statement: Statement, values: readonly unknown[]): pg.QueryConfig {
    const text = renderStatement(statement, this.names);
    return this.#preparedStatements
      ? { name: statement.name, text, values: [...values] }
      : { text, values: [...values] };
  }

  async query<Row>(statement: Statement, values: readonly unknown[] = []): Promise<Row[]> {
    return await this.withConnection((connection) => connection.query<Row>(statement, values));
  }

  /**
   * Runs `work` with a pooled connection. Any error destroys it: a client that timed out or broke
   * may still have a statement on the wire, and the next user would receive its answer. So does a
   * cut that `work` keeps to itself.
   */
  async withConnection<T>(work: (connection: Connection) => Promise<T>): Promise<T> {
    let client: pg.PoolClient;
    try {
      client = await this.#pool.connect();
    } catch (error) {
      throw mapConnectError(error, this.options.url);
    }
    const connection = new Connection(client, this);
    let failure: Error | undefined;
    try {
      return await work(connection);
    } catch (error) {
      failure = error instanceof Error ? error : new Error(messageOf(error));
      throw error;
    } finally {
      const isSuspect = failure !== undefined && !isReusable(client, failure);
      client.release(isSuspect || connection.isDestroyed);
    }
  }

  /**
   * Commits what `work` wrote when it resolves; rolls all of it back when it rejects. Every
   * statement sees what was committed before it: locks that were waited for mean nothing otherwise.
   * Throws CommitUnknownError when nobody knows which of the two it was.
   */
  async transaction<T>(
    work: (tx: Connection) => Promise<T>,
    { begin = BEGIN_BRIEF }: TransactionOptions = {},
  ): Promise<T> {
    return await this.withConnection(async (connection) => {
      const { client } = connection;
      let result: T;
      try {
        await client.query(begin);
        result = await work(connection);
      } catch (error) {
        await client.query("ROLLBACK").catch(() => {});
        throw mapDatabaseError(error, "transaction");
      }
      await commit(client);
      return result;
    });
  }

  /** A connection of its own, for a loop. The caller closes it. */
  async connect(
    purpose: string,
    { url = this.options.url, timeoutMs = this.options.queryTimeoutMs }: ConnectionOptions = {},
  ): Promise<Connection> {
    const config = this.#clientConfig(`${this.options.applicationName} ${purpose}`, url);
    const client = new pg.Client({
      ...config,
      query_timeout: timeoutMs,
      connectionTimeoutMillis: Math.min(timeoutMs, this.options.connectTimeoutMs),
    });
    client.on("error", () => {}); // The next query on it fails and says why.
    try {
      await client.connect();
    } catch (error) {
      await this.sayGoodbye(client);
      throw mapConnectError(error, url);
    }
    return new Connection(client, this);
  }

  /** A pool of its own with the same settings. */
  another(poolSize: number, logger: Logger): Database {
    const database = new Database({ ...this.options, poolSize, logger });
    database.usePreparedStatements(this.#preparedStatements);
    return database;
  }

  usePreparedStatements(use: boolean): void {
    this.#preparedStatements = use;
  }

  /** Our statements in a transaction that the caller began and will end. */
  over(executor: SqlExecutor): Queryable {
    if (typeof executor?.query !== "function") {
      throw new ConfigError(
        "tx must have query(text, values) and give { rows }, as a node-postgres client does; " +
          "wrap another library's transaction so that it does",
      );
    }
    return {
      query: async <Row>(statement: Statement, values: readonly unknown[] = []): Promise<Row[]> => {
        const text = renderStatement(statement, this.names);
        const result = await executor.query(text, [...values]);
        return result.rows as Row[];
      },
    };
  }

  async sayGoodbye(client: pg.Client): Promise<void> {
    const goodbye = endClient(client);
    this.#goodbyes.add(goodbye);
    await goodbye;
    this.#goodbyes.delete(goodbye);
  }

  /** May be called twice. */
  async close(): Promise<void> {
    this.#closing ??= this.#pool.end();
    await Promise.all([this.#closing, ...this.#goodbyes]);
  }

  #clientConfig(applicationName: string, url: string): pg.ClientConfig {
    const { queryTimeoutMs, connectTimeoutMs } = this.options;
    return {
      connectionString: url,
      application_name: applicationName.slice(0, 63),
      query_timeout: queryTimeoutMs,
      connectionTimeoutMillis: connectTimeoutMs,
      keepAlive: true,
      keepAliveInitialDelayMillis: 5_000,
      pipeline: true,
    };
  }
}

async function commit(client: pg.Client | pg.PoolClient): Promise<void> {
  let command: string;
  try {
    ({ command } = await client.query("COMMIT"));
  } catch (error) {
    if (wasRolledBack(error)) throw mapDatabaseError(error, "commit");
    throw new CommitUnknownError(
      `COMMIT was not answered (${messageOf(error)}): what was written is stored, or it is not`,
      { cause: error },
    );
  }
  if (command !== "COMMIT") throw new Error("the transaction had failed and was rolled back");
}

/** An error that the server sent leaves the connection usable; anything else makes it suspect. */
function isReusable(client: pg.PoolClient, error: Error): boolean {
  const answered = (sqlState(error) ?? sqlState(error.cause))?.length === 5;
  return answered && client.getTransactionStatus() === "I";
}
