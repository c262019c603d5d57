import type { Fault } from "./fault.ts";
import { NETWORK_FAULTS } from "./network.ts";
import { REMOTE_FAULTS } from "./remote.ts";
import { SERVER_FAULTS } from "./server.ts";
import { WORKER_FAULTS } from "./workers.ts";

/** Everything that can be made to go wrong. */
export const FAULTS: readonly Fault[] = [
  ...WORKER_FAULTS,
  ...NETWORK_FAULTS,
  ...REMOTE_FAULTS,
  ...SERVER_FAULTS,
];

/** What a run meets before all others, however short it is, by their kinds. */
export const FIRST: readonly string[] = [
  "kill",
  "pause-past-lease",
  "terminate-in-commit",
  "crash-server",
  "half-open",
];
