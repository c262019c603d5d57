import { ownProgram } from "../support/program.ts";
import type { TaskSystem } from "../tasks/system.ts";
import { tidemill } from "../tasks/systems/tidemill.ts";
import { CALLS_PER_SECOND, CONNECTIONS } from "./token.ts";

/** The same engine and tables with a server between, whose clients speak CodeQ's protocol. */
export const remoteTidemill = (): TaskSystem => ({
  ...tidemill(),
  name: "tidemill over gRPC",
  tuning: { readiesAtOnce: 16, protocol: "CodeQ's", results: "with a body, acked" },
  program: ownProgram("bench/stream/remote-program"),
  isServed: true,
});

/** The same by HTTP: three calls for each task. */
export const restTidemill = (): TaskSystem => ({
  ...tidemill(),
  name: "tidemill by HTTP",
  tuning: {
    producerConnections: CONNECTIONS,
    workerConnections: CONNECTIONS,
    callsPerSecondMax: CALLS_PER_SECOND,
    results: "with a body, answered",
  },
  program: ownProgram("bench/stream/rest-program"),
  isServed: true,
});
