import { ConfigError } from "../base/errors.ts";
import { refuseUnknown, requireNumber, withoutUndefined } from "../base/options.ts";
import type { EgressOptions } from "../delivery/egress/options.ts";
import { type HttpJobsOptions, resolveHttpJobs } from "../delivery/jobs/options.ts";
import { type DeliverOptions, resolveDeliverOptions } from "../delivery/options.ts";
import type { AuthOptions } from "./auth/create.ts";
import { type ClusterOptions, resolveCluster } from "./cluster-options.ts";
import { checkTls, type TlsOptions } from "./grpc/tls.ts";
import { type HttpLimits, resolveHttpLimits } from "./http/options.ts";
import { isLoopback } from "./loopback.ts";
import { resolveSilence } from "./silence.ts";

/** Where one kind of client is served. */
export interface ListenOptions {
  /** Defaults to the server's. */
  readonly host?: string;
  /** 0 for any that is free. Defaults to the one of its kind. */
  readonly port?: number;
}

export interface ServerOptions {
  /** Which tokens are accepted. Defaults to API keys alone. */
  readonly auth?: AuthOptions;
  /**
   * What may be called, for webhooks and for the keys of issuers.
   *
   * Defaults to public hosts by https.
   */
  readonly egress?: EgressOptions;
  /** Whether it sends webhooks; as an object, how. Defaults to true. */
  readonly deliverWebhooks?: boolean | DeliverOptions;
  /**
   * Whether it makes the calls of `http` queues; as an object, how.
   *
   * Defaults to false: a server calls nobody at the wish of a tenant unless that is wanted.
   */
  readonly httpJobs?: boolean | HttpJobsOptions;
  /** The address to listen on. Defaults to "0.0.0.0": all of this machine's. */
  readonly host?: string;
  /** Streams of producers; false for none. Defaults to port 9092. */
  readonly producer?: ListenOptions | false;
  /** Streams of workers; false for none. Defaults to port 9091. */
  readonly worker?: ListenOptions | false;
  /** REST, OpenAPI, health, dashboard; false for none. Defaults to port 8080. */
  readonly http?: ListenOptions | false;
  /** What one call, and the calls of one tenant, may take. Defaults to those of the REST API. */
  readonly httpLimits?: HttpLimits;
  /**
   * Whether the dashboard is served at / of the same port; as a text, the folder of another build.
   *
   * Defaults to true.
   */
  readonly dashboard?: boolean | string;
  /** The page of metrics; false for none. Defaults to port 9464 of 127.0.0.1. */
  readonly metrics?: ListenOptions | false;
  /**
   * How it takes part in the cluster. Whoever leads judges all by its own settings, so those of
   * servers and workers must agree.
   *
   * Defaults to those of workers, with `dispatcherStrategy` "notify".
   */
  readonly cluster?: ClusterOptions;
  /**
   * Whether the ports of streams tell anybody what they serve (gRPC reflection).
   *
   * Defaults to false.
   */
  readonly reflection?: boolean;
  /** Refuses a database whose tenants have no second wall. Defaults to false: it is logged. */
  readonly requireWall?: boolean;
  /** Defaults to none: clients must be on the same machine, or behind a proxy that has one. */
  readonly tls?: TlsOptions;
  /**
   * How often a connection is asked for a sign of life. With `keepaliveTimeoutSeconds` and
   * `graceSeconds` at most `leaseSeconds`: it is the one way to notice that a worker is gone.
   *
   * Defaults to 30, or to what the other two leave of a shorter lease.
   */
  readonly keepaliveSeconds?: number;
  /**
   * How long the sign may take before the connection is closed.
   *
   * Defaults to 10, or to two thirds of what the grace leaves of a shorter lease.
   */
  readonly keepaliveTimeoutSeconds?: number;
  /** How long a client may take for its hello. Defaults to 10. */
  readonly helloSeconds?: number;
  /** How long a client may leave unread what was sent to it. Defaults to 60. */
  readonly stallSeconds?: number;
  /** How long a stop waits for clients and for what they have under way. Defaults to 30. */
  readonly drainSeconds?: number;
  /** How often the token of a stream is looked at again, at most 60. Defaults to 5. */
  readonly tokenCheckSeconds?: number;
  /** Streams of one kind in all; more are turned away. Defaults to 4,000. */
  readonly streamsMax?: number;
  /** The same of one tenant. Defaults to three quarters of `streamsMax`. */
  readonly streamsPerTenantMax?: number;
  /** Streams on one connection; more wait. Defaults to 1,000. */
  readonly connectionStreamsMax?: number;
  /** Streams of one kind whose hello is awaited; more are turned away. Defaults to 256. */
  readonly strangersMax?: number;
  /**
   * The same from one address, or from one network of IPv6. Behind a proxy all clients have the
   * address of the proxy: make it as large as `strangersMax` there.
   *
   * Defaults to half of `strangersMax`.
   */
  readonly strangersPerAddressMax?: number;
  /** How long a claim for a remote worker lasts; it is renewed meanwhile. Defaults to 60. */
  readonly leaseSeconds?: number;
  /** How long a worker whose stream broke keeps its tasks. Defaults to 2, or a quarter lease. */
  readonly graceSeconds?: number;
  /** What creates of all producers may weigh until they are answered. Defaults to 64 MiB. */
  readonly createBytesMax?: number;
  /** Queues that one tenant may name before anybody defined them. Defaults to 200. */
  readonly queuesPerTenantMax?: number;
}

export interface ResolvedListen {
  readonly host: string;
  readonly port: number;
}

export interface ResolvedServerOptions {
  readonly auth: AuthOptions;
  readonly egress: EgressOptions;
  readonly deliverWebhooks: false | DeliverOptions;
  readonly httpJobs: false | HttpJobsOptions;
  readonly producer: ResolvedListen | undefined;
  readonly worker: ResolvedListen | undefined;
  readonly http: ResolvedListen | undefined;
  readonly httpLimits: HttpLimits;
  readonly dashboard: boolean | string;
  readonly metrics: ResolvedListen | undefined;
  readonly cluster: ClusterOptions;
  readonly reflection: boolean;
  readonly requireWall: boolean;
  readonly tls: TlsOptions | undefined;
  readonly keepaliveSeconds: number;
  readonly keepaliveTimeoutSeconds: number;
  readonly helloSeconds: number;
  readonly stallSeconds: number;
  readonly drainSeconds: number;
  readonly tokenCheckSeconds: number;
  readonly streamsMax: number;
  readonly streamsPerTenantMax: number;
  readonly connectionStreamsMax: number;
  readonly strangersMax: number;
  readonly strangersPerAddressMax: number;
  readonly leaseSeconds: number;
  readonly graceSeconds: number;
  readonly createBytesMax: number;
  readonly queuesPerTenantMax: number;
}

const MIB = 1024 * 1024;
const HOUR = 3_600;
const COUNT = { min: 1, max: 1_000_000, integer: true };

/** Each with its default and what it may be. */
const NUMBERS = {
  helloSeconds: [10, { min: 0.1, max: HOUR }],
  stallSeconds: [60, { min: 0.1, max: HOUR }],
  drainSeconds: [30, { min: 0, max: HOUR }],
  tokenCheckSeconds: [5, { min: 0.1, max: 60 }],
  streamsMax: [4_000, COUNT],
  connectionStreamsMax: [1_000, COUNT],
  strangersMax: [256, COUNT],
  leaseSeconds: [60, { min: 1, max: 86_400 }],
  createBytesMax: [64 * MIB, { min: 16 * MIB, max: 16 * 1024 * MIB, integer: true }],
  queuesPerTenantMax: [200, { min: 0, max: 100_000, integer: true }],
} as const;

const KNOWN = [
  "auth",
  "egress",
  "deliverWebhooks",
  "httpJobs",
  "host",
  "producer",
  "worker",
  "http",
  "httpLimits",
  "dashboard",
  "metrics",
  "cluster",
  "reflection",
  "requireWall",
  "tls",
  "keepaliveSeconds",
  "keepaliveTimeoutSeconds",
  "graceSeconds",
  "streamsPerTenantMax",
  "strangersPerAddressMax",
  ...Object.keys(NUMBERS),
];
const PRODUCER_PORT = 9_092;
const WORKER_PORT = 9_091;
const HTTP_PORT = 8_080;
export const METRICS_PORT = 9_464;
const METRICS = { host: "127.0.0.1", port: METRICS_PORT };

/** Applies defaults and refuses nonsense at the start, where a person is watching. */
export function resolveServerOptions(options: ServerOptions): ResolvedServerOptions {
  refuseUnknown("server", options, KNOWN);
  const given = withoutUndefined(options);
  const number = (name: keyof typeof NUMBERS): number => {
    const [fallback, rule] = NUMBERS[name];
    return requireNumber(name, given[name] ?? fallback, rule);
  };
  const leaseSeconds = number("leaseSeconds");
  const host = requireHost("host", given.host ?? "0.0.0.0");
  const { auth = {}, egress = {} } = given;
  const places = {
    producer: resolveListen("producer", given.producer, { host, port: PRODUCER_PORT }),
    worker: resolveListen("worker", given.worker, { host, port: WORKER_PORT }),
    http: resolveListen("http", given.http, { host, port: HTTP_PORT }),
    metrics: resolveListen("metrics", given.metrics, METRICS),
  };
  if (auth.insecureNoAuth !== undefined) requireLoopback(Object.values(places));
  return Object.freeze({
    auth,
    egress,
    deliverWebhooks: resolveDelivery(given.deliverWebhooks ?? true, egress),
    httpJobs: resolveCalls(given.httpJobs ?? false, egress),
    ...places,
    httpLimits: resolveHttpLimits(given.httpLimits ?? {}),
    cluster: resolveCluster(given.cluster ?? {}),
    reflection: given.reflection === true,
    dashboard: requireDashboard(given.dashboard ?? true),
    requireWall: given.requireWall === true,
    tls: given.tls === undefined ? undefined : checkTls(given.tls),
    ...resolveSilence(places.worker === undefined ? Infinity : leaseSeconds, given),
    helloSeconds: number("helloSeconds"),
    stallSeconds: number("stallSeconds"),
    drainSeconds: number("drainSeconds"),
    tokenCheckSeconds: number("tokenCheckSeconds"),
    ...resolveStreams(number("streamsMax"), number("strangersMax"), given),
    connectionStreamsMax: number("connectionStreamsMax"),
    leaseSeconds,
    createBytesMax: number("createBytesMax"),
    queuesPerTenantMax: number("queuesPerTenantMax"),
  });
}

type StreamLimits =
  | "streamsMax"
  | "streamsPerTenantMax"
  | "strangersMax"
  | "strangersPerAddressMax";

/** One tenant leaves a quarter to the others, and one address half of what strangers may have. */
function resolveStreams(
  streamsMax: number,
  strangersMax: number,
  given: Pick<ServerOptions, StreamLimits>,
): Pick<ResolvedServerOptions, StreamLimits> {
  const {
    streamsPerTenantMax = Math.ceil((streamsMax * 3) / 4),
    strangersPerAddressMax = Math.ceil(strangersMax / 2),
  } = given;
  return {
    streamsMax,
    streamsPerTenantMax: requireNumber("streamsPerTenantMax", streamsPerTenantMax, COUNT),
    strangersMax,
    strangersPerAddressMax: requireNumber("strangersPerAddressMax", strangersPerAddressMax, COUNT),
  };
}

/** With the server's own rules of egress, unless it has others. Refuses nonsense. */
function resolveDelivery(
  given: boolean | DeliverOptions,
  egress: EgressOptions,
): false | DeliverOptions {
  if (resolveDeliverOptions(given) === undefined) return false;
  const options = { egress, ...(typeof given === "object" ? given : {}) };
  resolveDeliverOptions(options);
  return options;
}

/** The same, for calls of tasks. */
function resolveCalls(
  given: boolean | HttpJobsOptions,
  egress: EgressOptions,
): false | HttpJobsOptions {
  if (resolveHttpJobs(given) === undefined) return false;
  const options = { egress, ...(typeof given === "object" ? given : {}) };
  resolveHttpJobs(options);
  return options;
}

/** Whoever reaches a server without tokens may do everything. */
function requireLoopback(places: readonly (ResolvedListen | undefined)[]): void {
  for (const place of places) {
    if (place === undefined || isLoopback(place.host)) continue;
    throw new ConfigError(
      "a server without tokens must not be reached from elsewhere: listen on 127.0.0.1, not on " +
        `${place.host}, or let callers have tokens`,
    );
  }
}

/** Undefined when that kind of client is not served. */
function resolveListen(
  name: string,
  given: ListenOptions | false | undefined,
  fallback: ResolvedListen,
): ResolvedListen | undefined {
  if (given === false) return undefined;
  if (given !== undefined && (typeof given !== "object" || given === null)) {
    throw new ConfigError(`${name} must be { host, port }, or false`);
  }
  refuseUnknown(name, given ?? {}, ["host", "port"]);
  const { host, port } = { ...fallback, ...withoutUndefined(given ?? {}) };
  const rule = { min: 0, max: 65_535, integer: true };
  return {
    host: requireHost(`${name}.host`, host),
    port: requireNumber(`${name}.port`, port, rule),
  };
}

function requireDashboard(given: unknown): boolean | string {
  if (typeof given === "boolean" || (typeof given === "string" && given !== "")) return given;
  throw new ConfigError("dashboard must be true, false or a folder");
}

function requireHost(name: string, host: unknown): string {
  if (typeof host === "string" && /^[\w.:-]+$/.test(host)) return host;
  throw new ConfigError(`${name} must be a name or an address such as "127.0.0.1"`);
}
