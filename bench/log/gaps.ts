import { runStress, type StressResult } from "../../test/support/stress.ts";
import { type Figure, quantile } from "../support/figure.ts";
import type { BenchServer } from "../support/server.ts";

/** Ten appenders with rollbacks and slow transactions: what is lost, repeated or delayed. */
export async function gapFigures(
  server: BenchServer,
  seeds: number,
  seconds: number,
): Promise<Figure[]> {
  const runs: StressResult[] = [];
  for (let seed = 1; seed <= seeds; seed += 1) {
    runs.push(await runStress({ url: await server.database(), seed, seconds }));
  }
  const sum = (count: (run: StressResult) => number): number =>
    runs.reduce((total, run) => total + count(run), 0);
  const settings = {
    ...server.settings,
    seeds,
    seconds,
    appenders: 10,
    rollbacks: 0.12,
    slow: 0.05,
    appended: sum((run) => run.appended),
    holes: sum((run) => run.holes),
    // From the end of the last append below the event, whatever else was open.
    delayP99Ms: Math.max(...runs.map((run) => run.gapDelayP99Ms)),
    longestAppendMs: Math.max(...runs.map((run) => run.longestAppendMs)),
  };
  return [
    {
      figure: "log.gap_delay_p99_ms",
      // The worst seed: a median of percentiles would hide it.
      value: quantile(
        runs.map((run) => run.overrunP99Ms),
        1,
      ),
      unit: "ms beyond the end of the last append that was open",
      settings,
    },
    { figure: "log.stress_lost", value: sum((run) => run.lost), unit: "events", settings },
    { figure: "log.stress_repeated", value: sum((run) => run.repeated), unit: "events", settings },
    {
      figure: "log.stress_reordered",
      value: sum((run) => run.reordered),
      unit: "events",
      settings,
    },
  ];
}
