import { Tidemill } from "tidemill";
import { serve } from "../tasks/role.ts";
import { openProducer } from "./producer.ts";
import { openServer } from "./server.ts";
import { openWorker } from "./worker.ts";

/** Producer, server and worker, each a process; only the server has the database. */
serve({
  async prepare(url) {
    await Tidemill.migrate(url);
  },
  openServer,
  openProducer,
  openWorker,
});
