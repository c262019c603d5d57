import { inspect } from "node:util";
import { ConfigError } from "../../base/errors.ts";
import { refuseUnknown, requireNumber, withoutUndefined } from "../../base/options.ts";
import { type Cidr, parseAddress, parseCidr } from "./address.ts";
import { normalHostName } from "./host-name.ts";
import { lookupAll, type Resolver } from "./resolver.ts";

export interface EgressOptions {
  /** Whether `http:` targets are called too. What they carry can be read on the way. */
  readonly allowHttp?: boolean;
  /** The only ports that are called. Defaults to 443, and 80 with `allowHttp`. */
  readonly ports?: readonly number[];
  /**
   * Hosts of the own network that may be called: names, or `*.` and a name for all below it. They
   * may have no dot and resolve to loopback, private or carrier addresses. Nothing opens the
   * metadata services of clouds.
   *
   * Defaults to none.
   */
  readonly allowHosts?: readonly string[];
  /**
   * Blocks of the own network that may be called, such as `10.20.0.0/16`, under any name that
   * resolves to them.
   *
   * Defaults to none.
   */
  readonly allowCidrs?: readonly string[];
  /**
   * How many redirects of one call are followed; each is checked as the first address was. A call
   * with a body follows only 307 and 308, because the others would drop the body.
   *
   * Defaults to 0: a redirect is refused.
   */
  readonly redirectsMax?: number;
  /** Limit of each connection, with its TLS handshake. Defaults to 5. */
  readonly connectSeconds?: number;
  /** Limit of a whole call: resolving, connecting, redirects, answer. Defaults to 30. */
  readonly callSeconds?: number;
  /** How long a connection is kept for the next call; 0 closes it after each. Defaults to 4. */
  readonly idleSeconds?: number;
  /** Longer addresses are refused. Defaults to 2,048. */
  readonly urlLengthMax?: number;
  /** Larger bodies are not sent. Defaults to 1 MiB. */
  readonly requestBytesMax?: number;
  /** What is read of an answer; the rest is dropped with its connection. Defaults to 64 KiB. */
  readonly responseBytesMax?: number;
  /** Headers of a call, and those of an answer, beyond which it fails. Defaults to 16 KiB. */
  readonly headerBytesMax?: number;
  /** Certificate authorities in PEM to trust instead of Node's. Defaults to Node's. */
  readonly ca?: string | readonly string[];
  /** How names become addresses. Defaults to the resolver of the system. */
  readonly resolve?: Resolver;
}

/** What decides about a target; see `readTarget` and `denialOf`. */
export interface EgressRules {
  readonly allowHttp: boolean;
  readonly ports: readonly number[];
  /** Normalised; one that starts with a dot stands for everything below it. */
  readonly allowHosts: readonly string[];
  readonly allowCidrs: readonly Cidr[];
  readonly urlLengthMax: number;
}

export interface ResolvedEgressOptions extends EgressRules {
  readonly redirectsMax: number;
  readonly connectSeconds: number;
  readonly callSeconds: number;
  readonly idleSeconds: number;
  readonly requestBytesMax: number;
  readonly responseBytesMax: number;
  readonly headerBytesMax: number;
  readonly ca: readonly string[] | undefined;
  readonly resolve: Resolver;
}

const KIB = 1_024;
const NUMBERS = {
  redirectsMax: { value: 0, min: 0, max: 20, integer: true },
  connectSeconds: { value: 5, min: 0.01, max: 300 },
  callSeconds: { value: 30, min: 0.01, max: 3_600 },
  idleSeconds: { value: 4, min: 0, max: 300 },
  urlLengthMax: { value: 2_048, min: 16, max: 64 * KIB, integer: true },
  requestBytesMax: { value: KIB * KIB, min: 0, max: 64 * KIB * KIB, integer: true },
  responseBytesMax: { value: 64 * KIB, min: 0, max: 64 * KIB * KIB, integer: true },
  headerBytesMax: { value: 16 * KIB, min: KIB, max: 256 * KIB, integer: true },
} as const;
const OTHERS = ["allowHttp", "ports", "allowHosts", "allowCidrs", "ca", "resolve"];

/** Applies defaults and refuses nonsense at start-up, where a person is watching. */
export function resolveEgressOptions(options: EgressOptions = {}): ResolvedEgressOptions {
  refuseUnknown("egress", options, [...OTHERS, ...Object.keys(NUMBERS)]);
  const given = withoutUndefined(options);
  const number = (name: keyof typeof NUMBERS): number =>
    requireNumber(name, given[name] ?? NUMBERS[name].value, NUMBERS[name]);
  const allowHttp = requireBoolean("allowHttp", given.allowHttp ?? false);
  const { ca } = given;
  return Object.freeze({
    allowHttp,
    ports: list("ports", given.ports ?? (allowHttp ? [443, 80] : [443])).map(requirePort),
    allowHosts: list("allowHosts", given.allowHosts ?? []).map(requireHost),
    allowCidrs: list("allowCidrs", given.allowCidrs ?? []).map(requireCidr),
    redirectsMax: number("redirectsMax"),
    connectSeconds: number("connectSeconds"),
    callSeconds: number("callSeconds"),
    idleSeconds: number("idleSeconds"),
    urlLengthMax: number("urlLengthMax"),
    requestBytesMax: number("requestBytesMax"),
    responseBytesMax: number("responseBytesMax"),
    headerBytesMax: number("headerBytesMax"),
    ca: ca === undefined ? undefined : list("ca", typeof ca === "string" ? [ca] : ca).map(pem),
    resolve: requireResolver(given.resolve ?? lookupAll),
  });
}

function requireBoolean(name: string, value: unknown): boolean {
  if (typeof value === "boolean") return value;
  throw new ConfigError(`${name} must be true or false, not ${inspect(value)}`);
}

function list(name: string, value: unknown): readonly unknown[] {
  if (Array.isArray(value)) return value;
  throw new ConfigError(`${name} must be a list, not ${inspect(value, { depth: 0 })}`);
}

function requirePort(value: unknown): number {
  return requireNumber("each of ports", value, { min: 1, max: 65_535, integer: true });
}

function requireHost(value: unknown): string {
  const text = typeof value === "string" ? value : "";
  const isBelow = text.startsWith("*.");
  const name = normalHostName(isBelow ? text.slice(2) : text);
  if (name !== undefined && parseAddress(name) === undefined) return isBelow ? `.${name}` : name;
  throw new ConfigError(
    `allowHosts has ${inspect(value)}, which is no name of a host: write hooks.internal, or ` +
      "*.internal for all below it; addresses go to allowCidrs",
  );
}

function requireCidr(value: unknown): Cidr {
  const block = typeof value === "string" ? parseCidr(value) : undefined;
  if (block !== undefined) return block;
  throw new ConfigError(
    `allowCidrs has ${inspect(value)}, which is no block of addresses: write 10.20.0.0/16 or ` +
      "fd12:3456::/32, with zeros after the prefix",
  );
}

function pem(value: unknown): string {
  if (typeof value === "string" && value.includes("-----BEGIN CERTIFICATE-----")) return value;
  throw new ConfigError("ca must be certificates in PEM, not the names of their files");
}

function requireResolver(value: unknown): Resolver {
  if (typeof value === "function") return value as Resolver;
  throw new ConfigError(`resolve must be a function, not ${inspect(value, { depth: 0 })}`);
}
