import { createSecureContext } from "node:tls";
import { ServerCredentials } from "@grpc/grpc-js";
import { ConfigError, messageOf } from "../../base/errors.ts";
import { refuseUnknown } from "../../base/options.ts";

/** Certificates as PEM texts. */
export interface TlsOptions {
  /** The server's certificate, with those between it and its authority. */
  readonly cert: string;
  /** The key of that certificate. */
  readonly key: string;
  /**
   * Authorities of clients: those without a certificate of one of them are turned away.
   *
   * Defaults to none: clients need no certificate.
   */
  readonly clientCa?: string;
}

/** Refuses what cannot work while a person is watching. */
export function checkTls(tls: TlsOptions): TlsOptions {
  refuseUnknown("tls", tls, ["cert", "key", "clientCa"]);
  const { cert, key, clientCa } = tls;
  for (const [name, text] of Object.entries({ cert, key, clientCa })) {
    if (name === "clientCa" && text === undefined) continue;
    if (typeof text !== "string" || !text.includes("-----BEGIN ")) {
      throw new ConfigError(`tls.${name} must be the text of a PEM file, not its name`);
    }
  }
  try {
    createSecureContext({ cert, key, ...(clientCa === undefined ? {} : { ca: clientCa }) });
  } catch (error) {
    throw new ConfigError(`tls: certificate and key cannot be used: ${messageOf(error)}`);
  }
  return tls;
}

export function credentialsOf(tls: TlsOptions | undefined): ServerCredentials {
  if (tls === undefined) return ServerCredentials.createInsecure();
  const { cert, key, clientCa } = tls;
  const pair = { cert_chain: Buffer.from(cert), private_key: Buffer.from(key) };
  const ca = clientCa === undefined ? null : Buffer.from(clientCa);
  return ServerCredentials.createSsl(ca, [pair], ca !== null);
}
