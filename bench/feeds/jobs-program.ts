import { Tidemill } from "tidemill";
import { listen } from "../support/spoken.ts";

interface Options {
  readonly url: string;
  readonly port: number;
  readonly agingSeconds: number;
}

/** A worker that calls targets, with the pool that it has by default. */
const { url, port, agingSeconds } = JSON.parse(process.argv.at(-1) ?? "{}") as Options;
const mill = await Tidemill.connect(url);
const worker = await mill.startWorker({
  agingSeconds,
  dispatcherStrategy: "notify",
  httpJobs: {
    egress: {
      allowHttp: true,
      ports: [port],
      allowHosts: ["hooks.test"],
      resolve: () => Promise.resolve(["127.0.0.1"]),
    },
  },
});

await listen(() => Promise.resolve({ running: worker.id !== "" }));
await worker.stop();
await mill.close();
process.exit(0);
