import { peerProgram, peerVersion } from "../../support/program.ts";
import { readCount, type TaskSystem } from "../system.ts";

const JOBS = "graphile_worker._private_jobs";

/** Deletes what it completed, so that is what was enqueued and is there no more. */
export const graphileWorker = (): TaskSystem => ({
  name: "graphile-worker",
  version: peerVersion("graphile-worker"),
  tuning: {
    throughput: "localQueue 500, batched completion (delay 0 ms), 100 concurrent",
    latency: "LISTEN/NOTIFY, no local queue, 4 concurrent",
  },
  history: "none, rows are deleted",
  table: JOBS,
  program: peerProgram("graphile-worker.mjs"),
  async completed(client, enqueued) {
    const made = await enqueued();
    const left = await readCount(client, JOBS);
    return { ...left, completed: made - left.completed };
  },
});
