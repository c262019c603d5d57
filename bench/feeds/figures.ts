import type { Figure } from "../support/figure.ts";
import type { BenchServer } from "../support/server.ts";
import { Stage } from "../tasks/stage.ts";
import { kafkaFigures } from "./kafka.ts";
import { priorityFigures } from "./priority.ts";
import { sseFigures } from "./sse.ts";

/** The feeds suite: what comes in and goes out beside tasks. */
export async function* feedFigures(server: BenchServer, quick: boolean): AsyncGenerator<Figure> {
  await using stage = new Stage(server, { reuseProcesses: quick });
  yield* sseFigures(stage, quick);
  yield* priorityFigures(server, quick);
  yield* kafkaFigures(server, quick);
}
