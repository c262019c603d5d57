import type { Figure } from "../support/figure.ts";
import type { BenchServer } from "../support/server.ts";
import { catchUpFigures } from "./catch-up.ts";
import { wakeFigure } from "./wake.ts";

/** The log suite. Quick: fewer pairs and seeds, and no failover, which waits for real timeouts. */
export async function* logFigures(server: BenchServer, quick: boolean): AsyncGenerator<Figure> {
  yield* await catchUpFigures(server, quick ? 3 : 5);
  yield await wakeFigure(server);
}
