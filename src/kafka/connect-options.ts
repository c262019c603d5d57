import type { ConnectionOptions } from "node:tls";
import { ConfigError } from "../base/errors.ts";
import { refuseUnknown, requireNumber, requireOneOf, withoutUndefined } from "../base/options.ts";

export interface KafkaSaslOptions {
  readonly mechanism: "PLAIN" | "SCRAM-SHA-256" | "SCRAM-SHA-512" | "OAUTHBEARER";
  readonly username?: string;
  readonly password?: string;
  /** Of OAUTHBEARER, asked for at every connection. */
  readonly token?: () => Promise<string>;
}

export interface KafkaOptions {
  /** Addresses to begin with, such as `["kafka-1:9092"]`. */
  readonly brokers: readonly string[];
  /**
   * The package that speaks to Kafka: `@platformatic/kafka`, or `kafkajs`, which cannot tell a
   * topic from another one of the same name, and which an ingest therefore takes only with
   * `allowUnnoticedRecreation`. Install the one that you use.
   *
   * Defaults to "platformatic".
   */
  readonly client?: "platformatic" | "kafkajs";
  /** How the brokers see this program. Defaults to "tidemill". */
  readonly clientId?: string;
  /** As Node has them; `true` for the authorities of this machine. Defaults to no TLS. */
  readonly tls?: boolean | ConnectionOptions;
  /** Defaults to none. */
  readonly sasl?: KafkaSaslOptions;
  /** How long an answer of a broker is waited for. Defaults to 10. */
  readonly requestSeconds?: number;
  /**
   * Whether brokers recognise what is sent to them again, so that it is stored once. Only for
   * brokers that cannot do it is it to be off. Defaults to true.
   */
  readonly idempotent?: boolean;
  /**
   * Messages that have more bytes are refused without being sent: a request that is larger than
   * `socket.request.max.bytes` of a broker is never answered. Defaults to 100,000,000.
   */
  readonly messageBytesMax?: number;
}

export interface ResolvedKafkaOptions {
  readonly brokers: readonly string[];
  readonly client: "platformatic" | "kafkajs";
  readonly clientId: string;
  readonly tls: ConnectionOptions | undefined;
  readonly sasl: KafkaSaslOptions | undefined;
  readonly requestMs: number;
  readonly idempotent: boolean;
  readonly messageBytesMax: number;
}

const KNOWN = [
  "brokers",
  "client",
  "clientId",
  "tls",
  "sasl",
  "requestSeconds",
  "idempotent",
  "messageBytesMax",
];
const MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] as const;

/** Applies defaults and refuses nonsense. */
export function resolveKafkaOptions(options: KafkaOptions): ResolvedKafkaOptions {
  refuseUnknown("Kafka", options, KNOWN);
  const given = withoutUndefined(options);
  const { brokers, tls, sasl } = given;
  if (!Array.isArray(brokers) || brokers.length === 0 || !brokers.every(isAddress)) {
    throw new ConfigError('brokers must be a list of addresses such as ["kafka-1:9092"]');
  }
  const clientId = given.clientId ?? "tidemill";
  if (typeof clientId !== "string" || !/^[!-~]{1,200}$/.test(clientId)) {
    throw new ConfigError("clientId must be a text without blanks, of at most 200 letters");
  }
  if (tls !== undefined && typeof tls !== "boolean" && (typeof tls !== "object" || tls === null)) {
    throw new ConfigError("tls must be true, false, or options of node:tls");
  }
  const { idempotent = true, messageBytesMax = 100_000_000 } = given;
  if (typeof idempotent !== "boolean") throw new ConfigError("idempotent must be true or false");
  const requestMs = 1000 * requireNumber("requestSeconds", given.requestSeconds ?? 10, RANGE);
  return {
    brokers: brokers as readonly string[],
    client: requireOneOf("client", given.client ?? "platformatic", ["platformatic", "kafkajs"]),
    clientId,
    tls: tls === true ? {} : tls === false ? undefined : tls,
    sasl: sasl === undefined ? undefined : checkSasl(sasl),
    requestMs,
    idempotent,
    messageBytesMax: requireNumber("messageBytesMax", messageBytesMax, BYTES_RANGE),
  };
}

const RANGE = { min: 1, max: 300 };
const BYTES_RANGE = { min: 1_000, max: 1_000_000_000, integer: true };

const isAddress = (value: unknown): boolean =>
  typeof value === "string" && /^[^\s:/]+:\d{1,5}$|^\[[0-9A-Fa-f:.]+\]:\d{1,5}$/.test(value);

function checkSasl(sasl: KafkaSaslOptions): KafkaSaslOptions {
  refuseUnknown("sasl", sasl, ["mechanism", "username", "password", "token"]);
  const mechanism = requireOneOf("sasl.mechanism", sasl.mechanism, MECHANISMS);
  const isToken = mechanism === "OAUTHBEARER";
  if (isToken ? typeof sasl.token === "function" : sasl.username && sasl.password) return sasl;
  throw new ConfigError(
    isToken
      ? "sasl needs token: a function that gives one"
      : `sasl needs username and password for ${mechanism}`,
  );
}
