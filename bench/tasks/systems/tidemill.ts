import { VERSION } from "../../../src/index.ts";
import { ownProgram } from "../../support/program.ts";
import { readCount, type TaskSystem } from "../system.ts";

const TASKS = "tidemill.tasks";
const HISTORY = "tidemill.task_history";
/** Rows that wait or run, and those that do so in packs. */
const LIVE = `
  (SELECT 1 FROM tidemill.tasks
    UNION ALL
   SELECT unnest(ids) FROM tidemill.task_packs) AS live`;

/**
 * The built package, on the same Node as its peers. Moves what it completed to its history. Counted
 * is what was enqueued and is live no more, as of the peer that deletes its rows: reading millions
 * of rows of history took seconds of the window that was measured, and wrote each of their pages to
 * the log once more where a checkpoint had come between, in some windows and not in others. That
 * each of them is in history is found out behind the window.
 */
export const tidemill = (): TaskSystem => ({
  name: "tidemill",
  version: VERSION,
  tuning: { concurrency: 20, dispatcherStrategy: "notify", otherwise: "defaults" },
  history: "rows in task_history",
  table: TASKS,
  program: ownProgram("bench/tasks/tidemill-program"),
  async completed(client, enqueued) {
    const made = await enqueued();
    const live = await readCount(client, LIVE);
    return { ...live, completed: made - live.completed };
  },
  async verify(client, enqueued) {
    const made = await enqueued();
    const ended = `SELECT 1 FROM ${HISTORY} WHERE state = 'completed'`;
    const kept = `(${ended} UNION ALL SELECT 1 FROM ${LIVE}) AS kept`;
    const { completed: found } = await readCount(client, kept);
    if (found !== made) throw new Error(`${made} tasks were enqueued, and the store has ${found}`);
  },
});
