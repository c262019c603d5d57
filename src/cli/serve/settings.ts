import { InvalidArgumentError } from "commander";
import type { HttpJobsOptions } from "../../delivery/jobs/options.ts";
import type { DeliverOptions } from "../../delivery/options.ts";
import type { ListenOptions } from "../../server/options.ts";
import { type GlobalFlags, list, oneOf, seconds, wholeNumber } from "../options.ts";
import type { Setting } from "../settings.ts";

export const LOG_LEVELS = ["debug", "info", "warn", "error"] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];

export type Place = ListenOptions | false;

/** Flags of `tidemill serve`, each of which the environment may give. */
export interface ServeFlags extends GlobalFlags {
  readonly host?: string;
  readonly http?: Place;
  readonly producer?: Place;
  readonly worker?: Place;
  readonly metrics?: Place;
  readonly tlsCert?: string;
  readonly tlsKey?: string;
  readonly tlsClientCa?: string;
  readonly tokensFile?: string;
  readonly issuersFile?: string;
  readonly jwtIssuer?: string;
  readonly jwtAudience?: readonly string[];
  readonly jwksUrl?: string;
  readonly insecureNoAuth?: boolean;
  readonly reflection?: boolean;
  readonly requireWall?: boolean;
  readonly leaseSeconds?: number;
  readonly graceSeconds?: number;
  readonly keepaliveSeconds?: number;
  readonly keepaliveTimeoutSeconds?: number;
  readonly drainSeconds?: number;
  readonly webhooks?: "on" | "off";
  readonly webhookConcurrency?: number;
  readonly httpJobs?: "on" | "off";
  readonly httpJobConcurrency?: number;
  readonly egressAllowHosts?: readonly string[];
  readonly egressAllowCidrs?: readonly string[];
  readonly egressAllowHttp?: boolean;
  readonly egressPorts?: readonly number[];
  readonly egressCa?: string;
  readonly poolSize?: number;
  readonly processes?: number;
  readonly logLevel?: LogLevel;
}

/** `[host:]port`, or off. */
export function place(text: string): Place {
  if (text === "off") return false;
  const [, bracketed, plain, digits = ""] =
    /^(?:\[([0-9a-fA-F:.]+)\]:|([^:\s]+):)?(\d{1,5})$/.exec(text) ?? [];
  const port = Number(digits);
  if (digits === "" || port > 65_535) {
    throw new InvalidArgumentError("It must be a port, host:port, or off; 0 is any free port.");
  }
  const host = bracketed ?? plain;
  return host === undefined ? { port } : { host, port };
}

const ports = (text: string): number[] => list(text).map(wholeNumber(1, 65_535));

export const SERVE_SETTINGS: readonly Setting[] = [
  { flags: "--host <address>", says: 'address to listen on (default: "0.0.0.0")' },
  { flags: "--http <place>", says: "[host:]port of HTTP, or off (default: 8080)", read: place },
  { flags: "--producer <place>", says: "the same for producers (default: 9092)", read: place },
  { flags: "--worker <place>", says: "the same for workers (default: 9091)", read: place },
  {
    flags: "--metrics <place>",
    says: "the same for metrics (default: 127.0.0.1:9464)",
    read: place,
  },
  { flags: "--tls-cert <file>", says: "certificate in PEM, with its chain" },
  { flags: "--tls-key <file>", says: "its key in PEM" },
  { flags: "--tls-client-ca <file>", says: "clients need a certificate of this authority" },
  { flags: "--tokens-file <file>", says: "static tokens, as JSON" },
  { flags: "--issuers-file <file>", says: "issuers of JSON Web Tokens, as JSON" },
  { flags: "--jwt-issuer <issuer>", says: "one issuer: what iss must be" },
  { flags: "--jwt-audience <names>", says: "its aud must be one of these", read: list },
  { flags: "--jwks-url <url>", says: "where it publishes its keys, by https" },
  { flags: "--insecure-no-auth", says: "everybody on this machine may do everything" },
  { flags: "--reflection", says: "tell anybody what the streams are (gRPC reflection)" },
  { flags: "--require-wall", says: "refuse a database without row-level security of tenants" },
  { flags: "--lease-seconds <n>", says: "lease of a remote worker (default: 60)", read: seconds },
  {
    flags: "--grace-seconds <n>",
    says: "how long a worker whose stream broke keeps its tasks (default: 2, or a quarter lease)",
    read: seconds,
  },
  {
    flags: "--keepalive-seconds <n>",
    says: "how often connections are asked for a sign of life (default: 30, or less)",
    read: seconds,
  },
  {
    flags: "--keepalive-timeout-seconds <n>",
    says: "how long the sign may take (default: 10, or less for a short lease)",
    read: seconds,
  },
  { flags: "--drain-seconds <n>", says: "how long a stop waits (default: 30)", read: seconds },
  {
    flags: "--webhooks <on|off>",
    says: "whether this server sends webhooks (default: on)",
    read: oneOf(["on", "off"]),
  },
  {
    flags: "--webhook-concurrency <n>",
    says: "webhooks under way at once (default: 64)",
    read: wholeNumber(1, 10_000),
  },
  {
    flags: "--http-jobs <on|off>",
    says: "whether this server makes the calls of http queues (default: off)",
    read: oneOf(["on", "off"]),
  },
  {
    flags: "--http-job-concurrency <n>",
    says: "such calls under way at once (default: 64)",
    read: wholeNumber(1, 10_000),
  },
  {
    flags: "--egress-allow-hosts <names>",
    says: "hosts of the own network that may be called",
    read: list,
  },
  {
    flags: "--egress-allow-cidrs <blocks>",
    says: "blocks of the own network that may be called",
    read: list,
  },
  { flags: "--egress-allow-http", says: "call http: addresses, too" },
  { flags: "--egress-ports <ports>", says: "the only ports that are called", read: ports },
  { flags: "--egress-ca <file>", says: "authorities in PEM to trust instead of Node's" },
  {
    flags: "--pool-size <n>",
    says: "database connections for calls (default: 10)",
    read: wholeNumber(1, 1_000),
  },
  {
    flags: "--processes <n>",
    says: "servers that share the ports, each a process of its own (default: 1)",
    read: wholeNumber(1, 64),
  },
  {
    flags: "--log-level <level>",
    says: `${LOG_LEVELS.join(", ")} (default: info)`,
    read: oneOf(LOG_LEVELS),
  },
];

/** How calls of tasks are made, where that was said. */
export function callsOf({ httpJobs, httpJobConcurrency }: ServeFlags): boolean | HttpJobsOptions {
  if (httpJobs !== "on") return false;
  return httpJobConcurrency === undefined ? true : { concurrency: httpJobConcurrency };
}

/** How webhooks are sent, where that was said. */
export function deliveryOf({ webhooks, webhookConcurrency }: ServeFlags): boolean | DeliverOptions {
  if (webhooks === "off") return false;
  return webhookConcurrency === undefined ? true : { concurrency: webhookConcurrency };
}
