import { startBenchServer } from "./support/server.ts";
import { graphileWorker } from "./tasks/systems/graphile-worker.ts";
import { Session } from "./tasks/session.ts";
import { Stage } from "./tasks/stage.ts";
await using server = await startBenchServer();
await using stage = new Stage(server, { reuseProcesses: false });
const g = graphileWorker();
const variants: Record<string,string>[] = [
 {DELAY:"0",CONC:"20"},{DELAY:"0",CONC:"100"},{DELAY:"0",CONC:"500"},{DELAY:"5",CONC:"100"},{DELAY:"20",CONC:"20"},{DELAY:"5",CONC:"500"},{DELAY:"50",CONC:"20",LQ:"1000"}
];
const n = 30000;
const out = variants.map(() => [] as string[]);
for (let r = 0; r < 3; r++) for (const [i,env] of variants.entries()) {
  delete process.env["LQ"];
  Object.assign(process.env, env);
  await using session = await Session.open(stage, g, { purpose: "throughput" });
  const e = await session.fill(n);
  await session.startWorker();
  const d = await session.drain(n, 100, 60000);
  const s = await session.steady({ ahead: 20000, warmUpMs: 500, until: { ms: 2500 } });
  out[i]!.push(`e${(e/1000).toFixed(0)} d${(d/1000).toFixed(1)} s${(s.perSecond/1000).toFixed(1)}`);
}
for (const [i, env] of variants.entries()) console.log(JSON.stringify(env), out[i]!.join(" | "));
