import { exponentialMs, withJitter } from "../base/backoff.ts";
import { Bell } from "../base/bell.ts";
import type { Clock } from "../base/clock.ts";
import { ConfigError, messageOf } from "../base/errors.ts";
import { quoteIdentifier } from "../base/identifier.ts";
import type { Logger } from "../base/log.ts";
import { runLoop, type TurnResult } from "../base/loop.ts";
import type { Service } from "../base/supervisor.ts";
import type { Connection, Database } from "./database.ts";
import { checkAlive, readServerFacts } from "./sql/session.ts";

export interface ListenerOptions {
  readonly url: string;
  /** Channel to what a notification on it means. Also called for each after a reconnect. */
  readonly channels: ReadonlyMap<string, (payload: string) => void>;
  readonly clock: Clock;
  /** Between 0 and 1, for jitter. */
  readonly random: () => number;
  readonly logger: Logger;
}

const CHECK_MS = 15_000;
const ANSWER_MS = 5_000;
const RECONNECT_MS_BASE = 100;
const RECONNECT_MS_MAX = 30_000;

/** A pooler invents the process id that it tells its client; a server tells its own. */
export async function isPooled(connection: Connection): Promise<boolean> {
  const told: unknown = Reflect.get(connection.client, "processID");
  const { pid } = await readServerFacts(connection);
  return told !== pid;
}

/**
 * Refuses a connection that goes through a pooler: session locks and LISTEN seem to work there and
 * do nothing.
 */
export async function assertDirect(connection: Connection, what: string): Promise<void> {
  if (!(await isPooled(connection))) return;
  throw new ConfigError(
    `${what} needs a direct connection and this one goes through a pooler; ` +
      'set directUrl to the server\'s own address, or use leaderStrategy "lease" with ' +
      'dispatcherStrategy "poll"',
  );
}

/**
 * Keeps one connection that LISTENs. Notifications only ring bells: whoever is woken looks for
 * itself, so a lost one costs latency and never work. It never opens a transaction, because a
 * listener inside one keeps the server's notification queue from being cleaned.
 */
export class Listener implements Service {
  readonly name = "listener";
  readonly #database: Database;
  readonly #options: ListenerOptions;
  readonly #bell = new Bell();
  #connection: Connection | undefined;

  constructor(database: Database, options: ListenerOptions) {
    this.#database = database;
    this.#options = options;
  }

  async run(signal: AbortSignal): Promise<void> {
    const { clock, random, logger } = this.#options;
    const onFailure = (error: unknown, failures: number): number => {
      logger.warn({ error: messageOf(error), failures }, "listener connection lost");
      this.#drop();
      return withJitter(exponentialMs(failures, RECONNECT_MS_BASE, RECONNECT_MS_MAX), random);
    };
    await runLoop(() => this.#turn(), { clock, bell: this.#bell, onFailure }, signal);
    this.#drop();
  }

  /** The first connect, so that a start can be refused before anything else runs. */
  async open(): Promise<void> {
    await this.#connect();
  }

  async close(): Promise<void> {
    const connection = this.#connection;
    this.#connection = undefined;
    await connection?.close();
  }

  async #turn(): Promise<TurnResult> {
    const connection = this.#connection ?? (await this.#connect());
    await checkAlive(connection); // Finds a half-open connection that no event would report.
    return { restMs: CHECK_MS };
  }

  async #connect(): Promise<Connection> {
    const { url, channels, logger } = this.#options;
    const connection = await this.#database.connect("listener", { url, timeoutMs: ANSWER_MS });
    try {
      await assertDirect(connection, "LISTEN");
      connection.client.on("notification", ({ channel, payload }) => {
        channels.get(channel)?.(payload ?? "");
      });
      for (const channel of channels.keys()) {
        await connection.client.query(`LISTEN ${quoteIdentifier(channel)}`);
      }
    } catch (error) {
      await connection.close();
      throw error;
    }
    connection.client.once("end", () => {
      if (this.#connection === connection) this.#drop();
      this.#bell.ring();
    });
    this.#connection = connection;
    for (const wake of channels.values()) wake(""); // What was sent while we were away.
    logger.debug({}, "listener connected");
    return connection;
  }

  #drop(): void {
    const connection = this.#connection;
    this.#connection = undefined;
    void connection?.close();
  }
}
