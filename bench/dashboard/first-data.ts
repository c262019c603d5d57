import { Tidemill } from "../../src/index.ts";
import { TidemillServer } from "../../src/server/index.ts";
import { type Figure, quantile } from "../support/figure.ts";
import type { BenchServer } from "../support/server.ts";
import { type Amounts, fill } from "./fill.ts";
import { pagesOf } from "./pages.ts";
import { TOKEN } from "./token.ts";

interface Scale extends Amounts {
  readonly rounds: number;
}

const FULL: Scale = {
  history: 5_000_000,
  pending: 1_000_000,
  dead: 100_000,
  events: 100_000,
  rounds: 60,
};
const QUICK: Scale = { history: 200_000, pending: 50_000, dead: 5_000, events: 5_000, rounds: 20 };

/** Calls to warm caches and plans: a page that nobody opened for a week is not what is measured. */
const WARM_UP = 6;

interface Measured {
  readonly call: string;
  readonly p95: number;
}

/**
 * How long the server takes for what each page fetches first, by the clock of a caller beside it: a
 * little more than the server's own time. A page is as slow as its slowest call, because they are
 * sent at once.
 */
export async function* firstDataFigure(bench: BenchServer, quick: boolean): AsyncGenerator<Figure> {
  const scale = quick ? QUICK : FULL;
  const { rounds, ...amounts } = scale;
  const url = await bench.database();
  const mill = await Tidemill.connect(url);
  const server = new TidemillServer(mill, {
    host: "127.0.0.1",
    producer: false,
    worker: false,
    http: { port: 0 },
    httpLimits: { callsPerSecond: 100_000, callsBurst: 100_000 },
    metrics: false,
    deliverWebhooks: false,
    drainSeconds: 1,
    auth: { staticTokens: [{ token: TOKEN, tenant: "default", scopes: ["admin"] }] },
  });
  try {
    const named = await fill(url, mill, amounts);
    await server.start();
    const base = `http://127.0.0.1:${server.address("http").port}`;
    const measured: Record<string, Measured> = {};
    for (const { page, calls } of pagesOf(named)) {
      for (const call of calls) {
        const p95 = await measure(rounds, () => fetchAll(base + call));
        const slowest = measured[page];
        if (slowest === undefined || p95 > slowest.p95) measured[page] = { call, p95 };
      }
    }
    // The server answers it from memory for two seconds, which would hide what it costs.
    const p95 = await measure(rounds, () => mill.queues.ringLoad(named.keySpace));
    measured["ring, not from memory"] = { call: "/v1/ring/load", p95 };
    yield {
      figure: "dashboard.first_data_p95_ms",
      value: Math.max(...Object.values(measured).map(({ p95 }) => p95)),
      unit: "ms, p95 of the slowest page",
      settings: { ...bench.settings, ...scale, pages: measured },
    };
  } finally {
    await server.stop();
    await mill.close();
    await bench.drop(url);
  }
}

async function fetchAll(url: string): Promise<void> {
  const response = await fetch(url, { headers: { authorization: `Bearer ${TOKEN}` } });
  await response.text();
  if (response.status !== 200) throw new Error(`${url} answered ${response.status}`);
}

/** The 95th percentile, in milliseconds. */
async function measure(rounds: number, ask: () => Promise<unknown>): Promise<number> {
  const samples: number[] = [];
  for (let round = 0; round < WARM_UP + rounds; round += 1) {
    const startedAt = performance.now();
    await ask();
    if (round >= WARM_UP) samples.push(performance.now() - startedAt);
  }
  return quantile(samples, 0.95);
}
