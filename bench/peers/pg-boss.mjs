import { PgBoss } from "pg-boss";
import { BATCH } from "../tasks/protocol.ts";
import { serve } from "../tasks/role.ts";

const QUEUE = "bench";
/** The same with notifications, which cost something at each insert. */
const NOTIFYING_QUEUE = "bench-notifying";
const LOOPS = 2;
const POLL_MS = 2;

async function connect(url, more = {}) {
  const boss = new PgBoss({ connectionString: url, supervise: false, schedule: false, ...more });
  boss.on("error", (error) => {
    throw error;
  });
  return await boss.start();
}

serve({
  async prepare(url) {
    const boss = await connect(url);
    await boss.createQueue(QUEUE);
    await boss.createQueue(NOTIFYING_QUEUE, { notify: true });
    await boss.stop();
  },

  async openProducer({ url, purpose }) {
    const boss = await connect(url);
    const queue = purpose === "latency" ? NOTIFYING_QUEUE : QUEUE;
    return {
      async enqueue(payloads) {
        if (payloads.length === 1) await boss.send(queue, payloads[0]);
        else {
          const jobs = payloads.map((data) => ({ data }));
          await boss.insert(queue, jobs);
        }
      },
      close: async () => await boss.stop(),
    };
  },

  openWorker: async ({ url, purpose }, handler) =>
    purpose === "latency" ? await listen(url, handler) : await fetchInLoops(url, handler),
});

async function listen(url, handler) {
  const boss = await connect(url, { useListenNotify: true });
  await boss.work(NOTIFYING_QUEUE, async (jobs) => {
    for (const job of jobs) await handler(job.data);
  });
  return { close: async () => await boss.stop() };
}

/** Its own worker makes at most one fetch at a time and is several times slower than this. */
async function fetchInLoops(url, handler) {
  const boss = await connect(url);
  const stop = new AbortController();
  const loop = async () => {
    while (!stop.signal.aborted) {
      const jobs = await boss.fetch(QUEUE, { batchSize: BATCH });
      for (const job of jobs) await handler(job.data);
      if (jobs.length === 0) await new Promise((resolve) => setTimeout(resolve, POLL_MS));
      else {
        const ids = jobs.map((job) => job.id);
        await boss.complete(QUEUE, ids);
      }
    }
  };
  const loops = Array.from({ length: LOOPS }, loop);
  return {
    async close() {
      stop.abort();
      await Promise.all(loops);
      await boss.stop();
    },
  };
}
