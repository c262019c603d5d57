import { Tidemill } from "../src/index.ts";
import { TidemillServer } from "../src/server/index.ts";
import { endRemoved, endUnbegun, stopWhenTold } from "./ending.ts";
import { logTo } from "./log.ts";
import type { ProcessSpec } from "./processes.ts";
import { SERVER } from "./scene.ts";

/** A server as a process of its own, as `tidemill serve` is one. */
const { url } = JSON.parse(process.argv[2] ?? "{}") as ProcessSpec;
const logger = logTo(process.stderr);
const mill = await Tidemill.connect(url, { logger }).catch(endUnbegun);
const server = new TidemillServer(mill, SERVER);
await server.start().catch(endUnbegun);
const exitCode = stopWhenTold(server);
const ports = {
  producer: server.address("producer").port,
  worker: server.address("worker").port,
};
process.send?.({ worker: server.workerId ?? null, ports });
await server.finished.catch(endRemoved);
process.exitCode = await exitCode();
await mill.close();
process.disconnect?.();
