import { createInterface } from "node:readline";
import { Tidemill } from "../../src/index.ts";
import { type ServerOptions, TidemillServer } from "../../src/server/index.ts";

/** A server as a program of its own, to be killed. Says in a JSON line where it listens. */
export interface ServerProcessSpec {
  readonly url: string;
  readonly options: ServerOptions;
}

const spec = JSON.parse(process.argv[2] ?? "{}") as ServerProcessSpec;
const mill = await Tidemill.connect(spec.url);
const server = new TidemillServer(mill, spec.options);
await server.start();
const { producer, worker, http } = spec.options;
const portOf = (name: "producer" | "worker" | "http", at: unknown): number =>
  at === false ? 0 : server.address(name).port;
const ports = {
  producer: portOf("producer", producer),
  worker: portOf("worker", worker),
  http: portOf("http", http),
};
process.stdout.write(`${JSON.stringify({ event: "listening", ports })}\n`);

/** A line on standard input stops it in order. */
createInterface({ input: process.stdin }).once("line", () => {
  void server
    .stop()
    .then(() => mill.close())
    .then(() => process.exit(0));
});
