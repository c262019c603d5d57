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
