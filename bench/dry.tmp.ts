import { printFigure } from "./support/figure.ts";
import { startBenchServer } from "./support/server.ts";
import { Stage } from "./tasks/stage.ts";
import { startFigures } from "./tasks/start-latency.ts";
import { graphileWorker } from "./tasks/systems/graphile-worker.ts";
import { pgBoss } from "./tasks/systems/pg-boss.ts";
import { throughputFigures } from "./tasks/throughput.ts";

const quick = process.argv[2] !== "full";
const t0 = performance.now();
await using server = await startBenchServer();
console.log("server", performance.now() - t0);
const contest = {
  stage: new Stage(server, { reuseProcesses: quick }),
  ours: { ...pgBoss(), name: "twin" },
  peers: [graphileWorker(), pgBoss()],
  quick,
};
for (const f of await throughputFigures(contest)) {
  printFigure(f, false);
  console.log(JSON.stringify(f.settings.medians));
}
console.log("throughput", performance.now() - t0);
for (const f of await startFigures(contest)) {
  printFigure(f, false);
  console.log(JSON.stringify(f.settings.medians));
}
await contest.stage[Symbol.asyncDispose]();
console.log("start", performance.now() - t0);
