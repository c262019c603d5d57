import { VERSION } from "../../../src/index.ts";
import { modernProgram, readCount, type TaskSystem } from "../system.ts";

const TASKS = "tidemill.tasks";
const PROGRAM = new URL("../tidemill-program.ts", import.meta.url);

/** The built package, on the same Node as its peers. Moves what it completed to its history. */
export const tidemill = (): TaskSystem => ({
  name: "tidemill",
  version: VERSION,
  tuning: { concurrency: 20, dispatcherStrategy: "notify", otherwise: "defaults" },
  history: "rows in task_history",
  table: TASKS,
  program: modernProgram(PROGRAM),
  completed: async (client) => await readCount(client, "tidemill.task_history"),
  async pending(client) {
    return (await readCount(client, "tidemill.live_tasks")).completed;
  },
});
