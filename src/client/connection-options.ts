import { type Clock, chance, systemClock } from "../base/clock.ts";
import { ConfigError } from "../base/errors.ts";
import { type Logger, silentLogger } from "../base/log.ts";
import { requireNumber } from "../base/options.ts";
import { resolveAddresses } from "./address.ts";
import type { LineOptions, TokenSource } from "./line.ts";
import { type ClientTlsOptions, checkTls, credentialsOf } from "./tls.ts";

/** What a producer and a worker need to reach a server. */
export interface ConnectionOptions {
  /** One server as "host:port", or several: the next is tried when one is lost. */
  readonly url: string | readonly string[];
  /** Who is calling. A function is asked before every connection, for tokens that expire. */
  readonly token: TokenSource;
  /** Encryption, with the authorities of Node or others. Defaults to none. */
  readonly tls?: ClientTlsOptions | boolean;
  /** Defaults to silence. */
  readonly logger?: Logger;
  /** How long one attempt to connect may take, and the first success. Defaults to 10. */
  readonly connectSeconds?: number;
  /** The longest pause between attempts; it doubles from 0.1, with jitter. Defaults to 5. */
  readonly reconnectSecondsMax?: number;
  /** How often an idle connection is asked for a sign of life. Defaults to 10. */
  readonly keepaliveSeconds?: number;
  /** How long the sign may take before the connection is given up. Defaults to 5. */
  readonly keepaliveTimeoutSeconds?: number;
}

export const CONNECTION_KEYS = [
  "url",
  "token",
  "tls",
  "logger",
  "connectSeconds",
  "reconnectSecondsMax",
  "keepaliveSeconds",
  "keepaliveTimeoutSeconds",
] as const;

const RECONNECT_MS = 100;
const HOUR = 3_600;

export interface Ambience {
  readonly clock?: Clock;
  readonly random?: () => number;
}

/** Applies defaults and refuses nonsense at the start, where a person is watching. */
export function resolveConnection(
  given: ConnectionOptions,
  path: string,
  defaultPort: number,
  { clock = systemClock, random = chance }: Ambience = {},
): LineOptions {
  const { token } = given;
  const seconds = (
    name: "connectSeconds" | "reconnectSecondsMax" | "keepaliveSeconds" | "keepaliveTimeoutSeconds",
    fallback: number,
  ): number => requireNumber(name, given[name] ?? fallback, { min: 0.1, max: HOUR }) * 1000;
  if (typeof token !== "function" && (typeof token !== "string" || token === "")) {
    throw new ConfigError("token must be a text that is not empty, or a function that gives one");
  }
  const tls = checkTls(given.tls);
  return {
    path,
    addresses: resolveAddresses(given.url, defaultPort),
    token,
    credentials: credentialsOf(tls),
    serverName: tls?.serverName,
    keepaliveMs: seconds("keepaliveSeconds", 10),
    keepaliveTimeoutMs: seconds("keepaliveTimeoutSeconds", 5),
    connectMs: seconds("connectSeconds", 10),
    clock,
    logger: given.logger ?? silentLogger,
    reconnect: { baseMs: RECONNECT_MS, maxMs: seconds("reconnectSecondsMax", 5), random },
  };
}
