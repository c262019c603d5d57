import { createSecureContext } from "node:tls";
import { type ChannelCredentials, credentials } from "@grpc/grpc-js";
import { ConfigError, messageOf } from "../base/errors.ts";
import { refuseUnknown } from "../base/options.ts";

/** How the client knows the server, and the server the client. Certificates are PEM texts. */
export interface ClientTlsOptions {
  /** Authorities of servers. Defaults to those that Node trusts. */
  readonly ca?: string;
  /** The client's certificate, for servers that ask for one. Defaults to none. */
  readonly cert?: string;
  /** The key of that certificate. Defaults to none. */
  readonly key?: string;
  /** The name that the server's certificate must have. Defaults to the host of its address. */
  readonly serverName?: string;
}

/** Refuses what cannot work while a person is watching. */
export function checkTls(given: unknown): ClientTlsOptions | undefined {
  if (given === undefined || given === false) return undefined;
  if (given === true) return {};
  if (typeof given !== "object" || given === null) {
    throw new ConfigError("tls must be true, or an object such as { ca }");
  }
  refuseUnknown("tls", given, ["ca", "cert", "key", "serverName"]);
  const tls = given as ClientTlsOptions;
  for (const name of ["ca", "cert", "key"] as const) {
    const text: unknown = tls[name];
    if (text === undefined) continue;
    if (typeof text !== "string" || !text.includes("-----BEGIN ")) {
      throw new ConfigError(`tls.${name} must be the text of a PEM file, not its name`);
    }
  }
  if ((tls.cert === undefined) !== (tls.key === undefined)) {
    throw new ConfigError("tls.cert and tls.key belong together: give both or none");
  }
  const { serverName } = tls;
  if (serverName !== undefined && (typeof serverName !== "string" || serverName === "")) {
    throw new ConfigError("tls.serverName must be the name of a host");
  }
  try {
    createSecureContext(pemsOf(tls));
  } catch (error) {
    throw new ConfigError(`tls: the certificates cannot be used: ${messageOf(error)}`);
  }
  return tls;
}

function pemsOf({ ca, cert, key }: ClientTlsOptions): Record<string, string> {
  return {
    ...(ca === undefined ? {} : { ca }),
    ...(cert === undefined ? {} : { cert }),
    ...(key === undefined ? {} : { key }),
  };
}

export function credentialsOf(tls: ClientTlsOptions | undefined): ChannelCredentials {
  if (tls === undefined) return credentials.createInsecure();
  const bytes = (text: string | undefined): Buffer | null =>
    text === undefined ? null : Buffer.from(text);
  return credentials.createSsl(bytes(tls.ca), bytes(tls.key), bytes(tls.cert));
}
