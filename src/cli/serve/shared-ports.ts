import cluster from "node:cluster";
import { METRICS_PORT } from "../../server/options.ts";
import type { Place, ServeFlags } from "./settings.ts";

/** Which of several processes this is. */
const SEAT = "TIDEMILL_PROCESS_SEAT";
/** What the process that shares the ports says when it is to stop. */
const STOP = "stop";
/** What a server says when all its ports are open. */
const SERVING = "serving";

/** Of the process that shares ports: how the others are told which they are. */
export const environmentOf = (seat: number): Readonly<Record<string, string>> => ({
  [SEAT]: String(seat),
});

export const isServing = (message: unknown): boolean => message === SERVING;

export const stopMessage = STOP;

/** One of several servers that share their ports, as far as it knows of that. */
export interface SharedPorts {
  /** From 0 on. */
  readonly seat: number;
  /** Aborts when it is to stop. */
  readonly stopping: AbortSignal;
  /** All its ports are open. */
  readonly serving: () => void;
  /** It has stopped, and may end. */
  readonly leave: () => void;
}

/** Undefined in a process that shares its ports with nobody. */
export function sharedPorts(): SharedPorts | undefined {
  const { worker } = cluster;
  if (worker === undefined) return undefined;
  const stop = new AbortController();
  process.on("message", (message) => {
    if (message === STOP) stop.abort();
  });
  return {
    seat: Number(process.env[SEAT] ?? 0),
    stopping: stop.signal,
    serving: () => void process.send?.(SERVING),
    leave: () => void worker.disconnect(),
  };
}

/** Metrics are of one process: each has a port of its own, one behind the other. */
export function metricsOf({ metrics }: ServeFlags, seat: number): Place | undefined {
  if (seat === 0 || metrics === false || metrics?.port === 0) return metrics;
  return { ...metrics, port: (metrics?.port ?? METRICS_PORT) + seat };
}
