import { withoutUndefined } from "../../base/options.ts";
import type { EgressOptions } from "../../delivery/egress/options.ts";
import type { AuthOptions } from "../../server/auth/create.ts";
import type { TlsOptions } from "../../server/grpc/tls.ts";
import type { ServerOptions } from "../../server/options.ts";
import { UsageError } from "../errors.ts";
import { readIssuers, readText, readTokens } from "./files.ts";
import { callsOf, deliveryOf, type ServeFlags } from "./settings.ts";
import { metricsOf } from "./shared-ports.ts";

/** What everybody is without tokens. */
const ANYBODY = { tenant: "default", scopes: ["admin"] } as const;

/** What the flags say, with the files that they name; of several that share ports, to which. */
export function serverOptionsOf(flags: ServeFlags, seat = 0): ServerOptions {
  const { host, http, producer, worker, reflection, requireWall } = flags;
  const { leaseSeconds, graceSeconds, drainSeconds } = flags;
  const { keepaliveSeconds, keepaliveTimeoutSeconds } = flags;
  return withoutUndefined({
    auth: authOf(flags),
    egress: egressOf(flags),
    deliverWebhooks: deliveryOf(flags),
    httpJobs: callsOf(flags),
    tls: tlsOf(flags),
    host: host ?? (flags.insecureNoAuth === true ? "127.0.0.1" : undefined),
    http,
    producer,
    worker,
    metrics: metricsOf(flags, seat),
    reflection,
    requireWall,
    leaseSeconds,
    graceSeconds,
    keepaliveSeconds,
    keepaliveTimeoutSeconds,
    drainSeconds,
  });
}

function authOf(flags: ServeFlags): AuthOptions {
  const { tokensFile, issuersFile, jwtIssuer, jwtAudience, jwksUrl, insecureNoAuth } = flags;
  if (insecureNoAuth === true) {
    if (tokensFile === undefined && issuersFile === undefined && jwtIssuer === undefined) {
      return { insecureNoAuth: ANYBODY };
    }
    throw new UsageError("--insecure-no-auth lets everybody in: leave it out, or the tokens");
  }
  const issuers = issuersFile === undefined ? [] : [...readIssuers(issuersFile)];
  if (jwtIssuer !== undefined && jwtAudience !== undefined && jwksUrl !== undefined) {
    issuers.push({ issuer: jwtIssuer, audience: jwtAudience, jwksUrl });
  } else if (jwtIssuer !== undefined || jwtAudience !== undefined || jwksUrl !== undefined) {
    throw new UsageError("--jwt-issuer, --jwt-audience and --jwks-url go together");
  }
  const staticTokens = tokensFile === undefined ? [] : readTokens(tokensFile);
  return { staticTokens, issuers };
}

function tlsOf({ tlsCert, tlsKey, tlsClientCa }: ServeFlags): TlsOptions | undefined {
  if (tlsCert === undefined && tlsKey === undefined && tlsClientCa === undefined) return undefined;
  if (tlsCert === undefined || tlsKey === undefined) {
    throw new UsageError("--tls-cert and --tls-key go together");
  }
  return {
    cert: readText("--tls-cert", tlsCert),
    key: readText("--tls-key", tlsKey),
    ...(tlsClientCa === undefined ? {} : { clientCa: readText("--tls-client-ca", tlsClientCa) }),
  };
}

function egressOf(flags: ServeFlags): EgressOptions {
  const { egressCa } = flags;
  return withoutUndefined({
    allowHosts: flags.egressAllowHosts,
    allowCidrs: flags.egressAllowCidrs,
    allowHttp: flags.egressAllowHttp,
    ports: flags.egressPorts,
    ca: egressCa === undefined ? undefined : readText("--egress-ca", egressCa),
  });
}
