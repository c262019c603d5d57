import { type ConstructorOptions, type Job, PgBoss } from "pg-boss";
import { BATCH, type Purpose } from "../tasks/protocol.ts";
import { type Closeable, type Handler, type Payload, serve } from "../tasks/role.ts";

const QUEUE = "bench";
/** The same with notifications, which cost something at each insert. */
const NOTIFYING_QUEUE = "bench-notifying";
const LOOPS = 2;
const POLL_MS = 2;

const queueFor = (purpose: Purpose): string => (purpose === "latency" ? NOTIFYING_QUEUE : QUEUE);

async function connect(url: string, more: Partial<ConstructorOptions> = {}): Promise<PgBoss> {
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
    const queue = queueFor(purpose);
    return {
      async enqueue(payloads) {
        const [only] = payloads;
        if (only !== undefined && payloads.length === 1) await boss.send(queue, only);
        else
          await boss.insert(
            queue,
            payloads.map((data) => ({ data })),
          );
      },
      close: async () => await boss.stop(),
    };
  },

  openWorker: async ({ url, purpose }, handler) =>
    purpose === "latency" ? await listen(url, handler) : await fetchInLoops(url, handler),
});

async function listen(url: string, handler: Handler): Promise<Closeable> {
  const boss = await connect(url, { useListenNotify: true });
  await boss.work(NOTIFYING_QUEUE, async (jobs: Job<Payload>[]) => {
    for (const job of jobs) await handler(job.data);
  });
  return { close: async () => await boss.stop() };
}

/** Its own worker makes at most one fetch at a time and is several times slower than this. */
async function fetchInLoops(url: string, handler: Handler): Promise<Closeable> {
  const boss = await connect(url);
  const stop = new AbortController();
  const loop = async (): Promise<void> => {
    while (!stop.signal.aborted) {
      const jobs = await boss.fetch<Payload>(QUEUE, { batchSize: BATCH });
      for (const job of jobs) await handler(job.data);
      if (jobs.length > 0)
        await boss.complete(
          QUEUE,
          jobs.map((job) => job.id),
        );
      else await new Promise((resolve) => setTimeout(resolve, POLL_MS));
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
