import { queue, Tidemill } from "tidemill";
import { type Payload, serve } from "./role.ts";

const bench = queue<Payload>("bench");
const limited = queue<Payload>("bench", {
  limits: { concurrency: 100_000, rate: { count: 100_000_000, seconds: 60 } },
});

serve({
  async prepare(url) {
    await Tidemill.migrate(url);
  },

  async openProducer({ url, keys, isLimited = false }) {
    const mill = await Tidemill.connect(url);
    const target = isLimited ? limited : bench;
    const task = (payload: Payload): { payload: Payload; partitionKey?: string } =>
      keys === undefined ? { payload } : { payload, partitionKey: `key-${payload.n % keys}` };
    return {
      async enqueue(payloads) {
        const [only] = payloads;
        if (only !== undefined && payloads.length === 1) await mill.enqueue(target, only);
        else await mill.enqueueMany(target, payloads.map(task));
      },
      close: async () => await mill.close(),
    };
  },

  async openWorker({ url, isLimited = false }, handler) {
    const mill = await Tidemill.connect(url);
    const worker = await mill.startWorker({
      handlers: [
        (isLimited ? limited : bench).handle(async ({ payload }) => await handler(payload)),
      ],
      concurrency: 20,
      dispatcherStrategy: "notify",
    });
    return {
      async close() {
        await worker.stop();
        await mill.close();
      },
    };
  },
});
