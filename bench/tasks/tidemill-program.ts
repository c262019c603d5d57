import { queue, Tidemill } from "tidemill";
import { type Payload, serve } from "./role.ts";

const bench = queue<Payload>("bench");

serve({
  async prepare(url) {
    await Tidemill.migrate(url);
  },

  async openProducer({ url, keys }) {
    const mill = await Tidemill.connect(url);
    const task = (payload: Payload): { payload: Payload; partitionKey?: string } =>
      keys === undefined ? { payload } : { payload, partitionKey: `key-${payload.n % keys}` };
    return {
      async enqueue(payloads) {
        const [only] = payloads;
        if (only !== undefined && payloads.length === 1) await mill.enqueue(bench, only);
        else await mill.enqueueMany(bench, payloads.map(task));
      },
      close: async () => await mill.close(),
    };
  },

  async openWorker({ url }, handler) {
    const mill = await Tidemill.connect(url);
    const worker = await mill.startWorker({
      handlers: [bench.handle(async ({ payload }) => await handler(payload))],
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
