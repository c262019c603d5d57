import type { Figure } from "../support/figure.ts";
import type { BenchServer } from "../support/server.ts";
import { firstDataFigure } from "./first-data.ts";
import { tabsFigure } from "./tabs.ts";

/** The dashboard suite: how long people wait, and what they cost. */
export async function* dashboardFigures(
  server: BenchServer,
  quick: boolean,
): AsyncGenerator<Figure> {
  yield* firstDataFigure(server, quick);
  yield* tabsFigure(server, quick);
}
