import type { WorkerOptions } from "../../src/index.ts";

/** The source's test settings: everything happens within a second. */
export const FAST: Omit<WorkerOptions, "consumers"> = {
  batchSize: 50,
  batchPause: 10,
  pollInterval: 50,
  maxPollInterval: 200,
  dispatcherInterval: 50,
  heartbeatInterval: 100,
  heartbeatTimeout: 500,
  rebalanceInterval: 200,
};
