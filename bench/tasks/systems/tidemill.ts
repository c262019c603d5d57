import { fileURLToPath } from "node:url";
import { VERSION } from "../../../src/index.ts";
import { readCount, type TaskSystem } from "../system.ts";

const TASKS = "tidemill.tasks";
const PROGRAM = new URL("../tidemill-program.ts", import.meta.url);

/** Moves what it completed to its history. */
export const tidemill = (): TaskSystem => ({
  name: "tidemill",
  version: VERSION,
  tuning: { concurrency: 20, dispatcherStrategy: "notify", otherwise: "defaults" },
  history: "rows in task_history",
  table: TASKS,
  program: {
    command: process.execPath,
    args: ["--import", "tsx", fileURLToPath(PROGRAM)],
  },
  completed: async (client) => await readCount(client, "tidemill.task_history"),
  async pending(client) {
    return (await readCount(client, TASKS)).completed;
  },
});
