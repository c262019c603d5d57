import { ConfigError } from "../base/errors.ts";
import { refuseUnknown, withoutUndefined } from "../base/options.ts";
import { resolveWorkerOptions, type WorkerOptions } from "../worker/options.ts";

const KEYS = [
  "dispatcherStrategy",
  "heartbeatInterval",
  "heartbeatTimeout",
  "leaderStrategy",
  "rebalanceInterval",
] as const satisfies readonly (keyof WorkerOptions)[];

/** Options of the worker in a server, on which the members of a cluster must agree. */
export type ClusterOptions = Pick<WorkerOptions, (typeof KEYS)[number]>;

/** Refuses nonsense, as the options of a worker do. */
export function resolveCluster(given: unknown): ClusterOptions {
  if (typeof given !== "object" || given === null) {
    throw new ConfigError("cluster must be an object such as { heartbeatTimeout: 10_000 }");
  }
  refuseUnknown("cluster", given, KEYS);
  const options: ClusterOptions = { dispatcherStrategy: "notify", ...withoutUndefined(given) };
  // The rest of a worker's options is the server's: it only has to have something to do.
  resolveWorkerOptions({ ...options, deliverWebhooks: true }, undefined);
  return options;
}
