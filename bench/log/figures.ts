import type { Figure } from "../support/figure.ts";
import type { BenchServer } from "../support/server.ts";
import { catchUpFigures } from "./catch-up.ts";
import { failoverFigures } from "./failover.ts";
import { gapFigures } from "./gaps.ts";
import { wakeFigure } from "./wake.ts";

/** The log suite. Quick: fewer pairs and seeds, and no failover, which waits for real timeouts. */
export async function* logFigures(server: BenchServer, quick: boolean): AsyncGenerator<Figure> {
  yield* await catchUpFigures(server, quick ? 3 : 5);
  yield await wakeFigure(server);
  yield* await gapFigures(server, quick ? 2 : 5, quick ? 4 : 10);
  if (!quick) yield* await failoverFigures(server);
}
