import { ownProgram, type TaskSystem } from "../tasks/system.ts";
import { tidemill } from "../tasks/systems/tidemill.ts";

/** The same engine and tables with a server between, whose clients speak CodeQ's protocol. */
export const remoteTidemill = (): TaskSystem => ({
  ...tidemill(),
  name: "tidemill over gRPC",
  tuning: { readiesAtOnce: 16, protocol: "CodeQ's", results: "with a body, acked" },
  program: ownProgram("bench/stream/remote-program"),
  isServed: true,
});
