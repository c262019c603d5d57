import { Tidemill } from "tidemill";
import { connectProducer, connectWorker, type RemoteWorker } from "tidemill/client";
import { TidemillServer } from "tidemill/server";
import { invoices, writeInvoice } from "./definitions.ts";

const url = process.env["DATABASE_URL"];
const TOKEN = "only-for-this-example-0123456789";

// The server: usually a program of its own, and the only one that knows the database.
await Tidemill.migrate(url);
await using mill = await Tidemill.connect(url);
await using server = new TidemillServer(mill, {
  host: "127.0.0.1",
  producer: { port: 0 },
  worker: { port: 0 },
  http: false,
  metrics: false,
  drainSeconds: 1,
  auth: { staticTokens: [{ token: TOKEN, tenant: "acme", scopes: ["producer", "worker"] }] },
});
await server.start();
const at = (kind: "producer" | "worker"): string => `127.0.0.1:${server.address(kind).port}`;

// A producer.
await using producer = await connectProducer({ url: at("producer"), token: TOKEN });
const tasks = Array.from({ length: 100 }, (_, number) => ({ payload: { number } }));
const stored = await producer.enqueueMany(invoices, tasks);
console.log(`${stored.length} tasks are stored`);

// Two workers.
const completedBy = new Map<string, string>();
let half: () => void = () => {};
let all: () => void = () => {};
const halfDone = new Promise<void>((resolve) => {
  half = resolve;
});
const allDone = new Promise<void>((resolve) => {
  all = resolve;
});

async function startWorker(workerId: string): Promise<RemoteWorker> {
  return await connectWorker({
    url: at("worker"),
    token: TOKEN,
    workerId,
    concurrency: 4,
    handlers: [writeInvoice],
    onAck({ task, state }) {
      if (state !== "completed") return;
      if (completedBy.has(task.id)) throw new Error(`task ${task.id} was completed twice`);
      completedBy.set(task.id, workerId);
      if (completedBy.size === 50) half();
      if (completedBy.size === 100) all();
    },
  });
}

const first = await startWorker("worker-1");
await halfDone;
console.log("worker-1 leaves");
await first.stop();
await using second = await startWorker("worker-2");
await allDone;
const names = [...new Set(completedBy.values())].toSorted().join(" and ");
console.log(`${completedBy.size} tasks completed once, by ${names}`);
await second.stop();
