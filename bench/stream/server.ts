import { Tidemill } from "tidemill";
import { TidemillServer } from "tidemill/server";
import type { OpenOptions } from "../tasks/protocol.ts";
import type { Closeable } from "../tasks/role.ts";
import { CALLS_PER_SECOND, TOKEN } from "./token.ts";

/** The only process that has the database. */
export async function openServer({ url, server: ports }: OpenOptions): Promise<Closeable> {
  if (ports === undefined) throw new Error("where is the server to listen?");
  const mill = await Tidemill.connect(url);
  const server = new TidemillServer(mill, {
    host: "127.0.0.1",
    producer: { port: ports.producer },
    worker: { port: ports.worker },
    http: { port: ports.http },
    httpLimits: { callsPerSecond: CALLS_PER_SECOND, callsBurst: CALLS_PER_SECOND },
    metrics: false,
    drainSeconds: 1,
    auth: {
      staticTokens: [{ token: TOKEN, tenant: "bench", scopes: ["producer", "worker"] }],
    },
  });
  await server.start();
  return {
    async close() {
      await server.stop();
      await mill.close();
    },
  };
}
