import cluster from "node:cluster";
import { METRICS_PORT } from "../../server/options.ts";
import type { Place, ServeFlags } from "./settings.ts";

/** Which of several processes this is. */
const PLACE = "TIDEMILL_PROCESS_PLACE";
/** What the process that shares the ports says when it is to stop. */
const STOP = "stop";
/** What a server says when all its ports are open. */
const SERVING = "serving";

/** Of the process that shares ports: how the others are told which they are. */
export const environmentOf = (place: number): Readonly<Record<string, string>> => ({
  [PLACE]: String(place),
});

export const isServing = (message: unknown): boolean => message === SERVING;

export const stopMessage = STOP;

/** One of several servers that share their ports, as far as it knows of that. */
export interface SharedPlace {
  /** From 0 on. */
  readonly place: number;
  /** Aborts when it is to stop. */
  readonly stopping: AbortSignal;
  /** All its ports are open. */
  readonly serving: () => void;
  /** It has stopped, and may end. */
  readonly leave: () => void;
}

/** Undefined in a process that shares its ports with nobody. */
export function sharedPlace(): SharedPlace | undefined {
  const { worker } = cluster;
  if (worker === undefined) return undefined;
  const stop = new AbortController();
  process.on("message", (message) => {
    if (message === STOP) stop.abort();
  });
  return {
    place: Number(process.env[PLACE] ?? 0),
    stopping: stop.signal,
    serving: () => void process.send?.(SERVING),
    leave: () => void worker.disconnect(),
  };
}

/** Metrics are of one process: each has a port of its own, one behind the other. */
export function metricsOf({ metrics }: ServeFlags, place: number): Place | undefined {
  if (place === 0 || metrics === false || metrics?.port === 0) return metrics;
  return { ...metrics, port: (metrics?.port ?? METRICS_PORT) + place };
}
