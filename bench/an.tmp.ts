import { startBenchServer, withClient } from "./support/server.ts";
import { graphileWorker } from "./tasks/systems/graphile-worker.ts";
import { Session } from "./tasks/session.ts";
import { Stage } from "./tasks/stage.ts";
await using server = await startBenchServer();
await using stage = new Stage(server, { reuseProcesses: false });
for (const mode of ["none", "analyze", "vacuum analyze", "none", "analyze"]) {
  await using session = await Session.open(stage, graphileWorker(), { purpose: "throughput" });
  await session.fill(200000);
  if (mode !== "none") await withClient(session.url, (c) => c.query(mode));
  await session.startWorker();
  console.log(mode, (await session.drain(200000, 200, 8000)).toFixed(0));
  if (mode === "none") continue;
}
