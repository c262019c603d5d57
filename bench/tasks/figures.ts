import type { Figure } from "../support/figure.ts";
import type { BenchServer } from "../support/server.ts";
import type { Contest } from "./comparison.ts";
import { backlogFigures, heldSnapshotFigure } from "./endurance.ts";
import { idleFigure } from "./idle.ts";
import { Stage } from "./stage.ts";
import { startFigures } from "./start-latency.ts";
import { graphileWorker } from "./systems/graphile-worker.ts";
import { pgBoss } from "./systems/pg-boss.ts";
import { tidemill } from "./systems/tidemill.ts";
import { throughputFigures } from "./throughput.ts";

/** The tasks suite. Quick: fewer and shorter rounds, and nothing that needs minutes. */
export async function* taskFigures(server: BenchServer, quick: boolean): AsyncGenerator<Figure> {
  const peers = [graphileWorker(), pgBoss()];
  await using stage = new Stage(server, { reuseProcesses: quick });
  const contest: Contest = { stage, ours: tidemill(), peers, quick };
  yield* await throughputFigures(contest);
  yield* await startFigures(contest);
  if (quick) return;
  yield await heldSnapshotFigure(contest);
  yield* await backlogFigures(contest);
  yield await idleFigure(contest);
}
