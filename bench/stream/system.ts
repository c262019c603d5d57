import { modernProgram, type TaskSystem } from "../tasks/system.ts";
import { tidemill } from "../tasks/systems/tidemill.ts";

const PROGRAM = new URL("remote-program.ts", import.meta.url);

/** The same engine and tables with a server between, whose clients speak CodeQ's protocol. */
export const remoteTidemill = (): TaskSystem => ({
  ...tidemill(),
  name: "tidemill over gRPC",
  tuning: { readiesAtOnce: 16, protocol: "CodeQ's", results: "with a body, acked" },
  program: modernProgram(PROGRAM),
  isServed: true,
});
