import { Tidemill } from "tidemill";
import { TidemillServer } from "tidemill/server";
import { serve } from "../tasks/role.ts";
import { openProducer } from "./producer.ts";
import { TOKEN } from "./token.ts";
import { openWorker } from "./worker.ts";

/** Producer, server and worker, each a process; only the server has the database. */
serve({
  async prepare(url) {
    await Tidemill.migrate(url);
  },

  async openServer({ url, server: ports }) {
    if (ports === undefined) throw new Error("where is the server to listen?");
    const mill = await Tidemill.connect(url);
    const server = new TidemillServer(mill, {
      host: "127.0.0.1",
      producer: { port: ports.producer },
      worker: { port: ports.worker },
      http: { port: ports.http },
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
  },

  openProducer,
  openWorker,
});
