import { type Figure, median } from "../support/figure.ts";
import type { BenchServer } from "../support/server.ts";
import { Spoken } from "../support/spoken.ts";
import { settingsOf } from "../tasks/comparison.ts";
import { freePorts } from "../tasks/ports.ts";
import { Session, type Window } from "../tasks/session.ts";
import { Stage } from "../tasks/stage.ts";
import { tidemill } from "../tasks/systems/tidemill.ts";
import { Tabs } from "./browser.ts";

const TABS = 20;

interface Scale {
  readonly pairs: number;
  readonly window: Window;
}

const FULL: Scale = {
  pairs: 5,
  window: { ahead: 20_000, warmUpMs: 2_000, until: { ms: 8_000 } },
};
const QUICK: Scale = {
  pairs: 3,
  window: { ahead: 20_000, warmUpMs: 1_000, until: { ms: 2_000 } },
};

interface Run {
  readonly perSecond: number;
  /** Of both cores, taken by the server of the dashboard while tasks ran. */
  readonly serverShare: number;
}

/**
 * Producer and worker run as fast as they can, beside a server. In every second run a browser has
 * its dashboard open in twenty tabs, all of them looked at. The browser is on the same two cores,
 * and what it takes for itself counts as a loss, too.
 */
export async function* tabsFigure(server: BenchServer, quick: boolean): AsyncGenerator<Figure> {
  const { pairs, window } = quick ? QUICK : FULL;
  await using stage = new Stage(server, { reuseProcesses: quick });
  const off: Run[] = [];
  const on: Run[] = [];
  let browser = "";
  for (let pair = 0; pair < pairs; pair += 1) {
    // The one that goes first finds another machine than the second: they take turns.
    for (const isOn of pair % 2 === 0 ? [false, true] : [true, false]) {
      const run = await measure(stage, window, isOn ? TABS : 0);
      (isOn ? on : off).push(run);
      browser = run.browser ?? browser;
    }
  }
  yield {
    figure: "dashboard.tabs_throughput_loss",
    value: median(on.map((run, pair) => 1 - run.perSecond / (off[pair]?.perSecond ?? Number.NaN))),
    ours: median(on.map((run) => run.perSecond)),
    anchor: median(off.map((run) => run.perSecond)),
    unit: "of the tasks/s while no tab is open",
    settings: {
      ...settingsOf({ stage, ours: tidemill(), peers: [], quick }),
      pairs,
      window,
      tabs: TABS,
      browser,
      serverShare: median(on.map((run) => run.serverShare)),
    },
  };
}

async function measure(
  stage: Stage,
  window: Window,
  count: number,
): Promise<Run & { readonly browser: string | undefined }> {
  await using session = await Session.open(stage, tidemill(), { purpose: "throughput" });
  const { http } = await freePorts();
  const file = new URL("server-program.ts", import.meta.url);
  await using server = await Spoken.start(file, { url: session.url, port: http });
  await using tabs = count > 0 ? await Tabs.open(`http://127.0.0.1:${http}`, count) : undefined;
  await session.startWorker();
  const startedAt = performance.now();
  const before = await server.ask<{ us: number }>("time");
  const { perSecond } = await session.steady(window);
  const after = await server.ask<{ us: number }>("time");
  const tookUs = (performance.now() - startedAt) * 1000;
  await tabs?.assertLive();
  return { perSecond, serverShare: (after.us - before.us) / tookUs / 2, browser: tabs?.version };
}
