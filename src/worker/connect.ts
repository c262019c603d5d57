import { ConfigError } from "../base/errors.ts";
import { fnv1a, quoteIdentifier } from "../base/identifier.ts";
import { type Logger, silentLogger } from "../base/log.ts";
import { refuseUnknown, requireNumber, requireOneOf } from "../base/options.ts";
import { Database } from "../db/database.ts";
import { type Names, type NamesOptions, resolveNames } from "../db/names.ts";
import { checkRoutes, type Route } from "../routes/route.ts";

export interface ConnectOptions extends NamesOptions {
  /** Events that cause tasks in the transaction of their append. Defaults to none. */
  readonly routes?: readonly Route[];
  /** Joins a cluster of the Go program of this name, on its tables. Defaults to none. */
  readonly compat?: "eventsalsa";
  /** The server's own address, when `url` leads through a pooler. Defaults to `url`. */
  readonly directUrl?: string;
  /** Structured log. Defaults to silence. */
  readonly logger?: Logger;
  /** Appends announce themselves on this channel. Defaults to none: workers poll. */
  readonly notifyChannel?: string;
  /** Connections for appends, reads and administration. Defaults to 10. */
  readonly poolSize?: number;
  /** "auto" turns them off through a pooler. Defaults to "auto". */
  readonly preparedStatements?: boolean | "auto";
  /** Longest wait for a statement, in milliseconds. Defaults to 30,000. */
  readonly queryTimeout?: number;
}

const CONNECT_KEYS = [
  "schema",
  "tables",
  "columnFamily",
  "compat",
  "directUrl",
  "logger",
  "notifyChannel",
  "poolSize",
  "preparedStatements",
  "queryTimeout",
  "routes",
];

/** eventsalsa/worker's advisory key, the same in every database. */
export const EVENTSALSA_KEY = 7237492748123847n;
const CONNECT_TIMEOUT_MS = 10_000;

export function openDatabase(url: string | undefined, options: ConnectOptions): Database {
  refuseUnknown("connect", options, CONNECT_KEYS);
  if (!url) {
    throw new ConfigError("no database: pass its address, such as postgres://user@host/database");
  }
  if (!/^postgres(ql)?:\/\//.test(url)) {
    throw new ConfigError("the database address must begin with postgres:// or postgresql://");
  }
  checkRoutes(options.routes ?? []);
  if (options.compat !== undefined) requireOneOf("compat", options.compat, ["eventsalsa"]);
  if (options.notifyChannel !== undefined) quoteIdentifier(options.notifyChannel);
  const { schema, tables, columnFamily } = options;
  return new Database({
    url,
    names: resolveNames({
      ...(schema === undefined ? {} : { schema }),
      ...(tables === undefined ? {} : { tables }),
      ...(columnFamily === undefined ? {} : { columnFamily }),
    }),
    logger: options.logger ?? silentLogger,
    poolSize: requireNumber("poolSize", options.poolSize ?? 10, { min: 1, integer: true }),
    applicationName: "tidemill",
    preparedStatements: options.preparedStatements === true,
    queryTimeoutMs: requireNumber("queryTimeout", options.queryTimeout ?? 30_000, { min: 1 }),
    connectTimeoutMs: CONNECT_TIMEOUT_MS,
  });
}

export function tasksChannel(names: Names): string {
  return channelOf(names, "tasks_channel");
}

/** Clusters on other tables of the same database do not wake each other. */
export function changesChannel(names: Names): string {
  return channelOf(names, "changes_channel");
}

function channelOf({ splices }: Names, name: string): string {
  const channel = splices[name];
  if (channel === undefined) throw new Error(`there is no ${name}`);
  return channel;
}

/** Clusters on other tables of the same database elect their own leaders. */
export function leaderKey(names: Names): bigint {
  const high = BigInt(fnv1a(`leader ${names.fingerprint}`));
  const low = BigInt(fnv1a(`${names.fingerprint} leader`));
  return BigInt.asIntN(64, (high << 32n) | low);
}
