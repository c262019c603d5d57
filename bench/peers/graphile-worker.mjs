import { Logger, makeWorkerUtils, run, runMigrations } from "graphile-worker";
import { serve } from "../tasks/role.ts";

const TASK = "bench";
const logger = new Logger(() => () => {});

const FOR_THROUGHPUT = {
  concurrentJobs: 100,
  localQueue: { size: 500 },
  completeJobBatchDelay: 0,
  failJobBatchDelay: 0,
};
const FOR_LATENCY = { concurrentJobs: 4 };

serve({
  async prepare(url) {
    await runMigrations({ connectionString: url, logger });
  },

  async openProducer({ url }) {
    const utils = await makeWorkerUtils({ connectionString: url, logger });
    return {
      async enqueue(payloads) {
        if (payloads.length === 1) await utils.addJob(TASK, payloads[0]);
        else await utils.addJobs(payloads.map((payload) => ({ identifier: TASK, payload })));
      },
      close: async () => await utils.release(),
    };
  },

  async openWorker({ url, purpose }, handler) {
    const runner = await run({
      preset: {
        worker: {
          connectionString: url,
          maxPoolSize: 10,
          logger,
          ...(purpose === "throughput" ? FOR_THROUGHPUT : FOR_LATENCY),
        },
      },
      noHandleSignals: true,
      taskList: { [TASK]: handler },
    });
    return { close: async () => await runner.stop() };
  },
});
