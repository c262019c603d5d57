import { Tidemill } from "../src/index.ts";
import { TidemillServer } from "../src/server/index.ts";
import { logTo } from "./log.ts";
import type { ProcessSpec } from "./processes.ts";
import { SERVER } from "./scene.ts";

/** A server as a process of its own, as `tidemill serve` is one. */
const { url } = JSON.parse(process.argv[2] ?? "{}") as ProcessSpec;
const mill = await Tidemill.connect(url, { logger: logTo(process.stderr) });
const server = new TidemillServer(mill, SERVER);
await server.start();
process.once("SIGTERM", () => void server.stop());
const ports = {
  producer: server.address("producer").port,
  worker: server.address("worker").port,
};
process.send?.({ worker: server.workerId ?? null, ports });
await server.finished; // What cannot go on ends the process: it is started again.
await server.stop();
await mill.close();
process.disconnect?.();
