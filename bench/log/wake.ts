import pg from "pg";
import { consumer, Tidemill } from "../../src/index.ts";
import { type Figure, median } from "../support/figure.ts";
import type { BenchServer } from "../support/server.ts";

const SAMPLES = 5_000;
const BLOCK = 500;

/** From the call of append to the start of the handler, against a bare ping and pong. */
export async function wakeFigure(server: BenchServer): Promise<Figure> {
  const url = await server.database();
  const ping = await PingPong.open(url);
  const channel = { notifyChannel: "worker_events" };
  const mill = await Tidemill.connect(url, channel);
  const appender = await Tidemill.connect(url, channel); // Another connection, as another process.
  let woken: (at: number) => void = () => {};
  const reader = consumer("woken", { handle: () => woken(performance.now()) });
  await mill.startWorker({ consumers: [reader], dispatcherStrategy: "notify" });
  const once = async (): Promise<number> => {
    const started = new Promise<number>((resolve) => {
      woken = resolve;
    });
    const startedAt = performance.now();
    await appender.append({ type: "Order", id: "1" }, [{ type: "OrderPaid", data: { total: 1 } }]);
    return (await started) - startedAt;
  };
  for (let warm = 0; warm < 200; warm += 1) await once();
  const bare: number[] = [];
  const ours: number[] = [];
  const ratios: number[] = [];
  for (let done = 0; done < SAMPLES; done += BLOCK) {
    const pings: number[] = [];
    const wakes: number[] = [];
    for (let sample = 0; sample < BLOCK; sample += 1) pings.push(await ping.roundTrip());
    for (let sample = 0; sample < BLOCK; sample += 1) wakes.push(await once());
    ratios.push(median(wakes) / median(pings));
    bare.push(...pings);
    ours.push(...wakes);
  }
  await Promise.all([mill.close(), appender.close(), ping.close()]);
  return {
    figure: "log.wake_vs_notify_round_trip",
    value: median(ratios),
    ours: median(ours),
    anchor: median(bare),
    unit: "times a bare round trip (p50, ms)",
    settings: { ...server.settings, samples: SAMPLES, from: "call of append, commit included" },
  };
}

/** Two connections: NOTIFY there, NOTIFY back. */
class PingPong {
  readonly #here: pg.Client;
  readonly #there: pg.Client;

  private constructor(here: pg.Client, there: pg.Client) {
    this.#here = here;
    this.#there = there;
  }

  static async open(url: string): Promise<PingPong> {
    const here = new pg.Client({ connectionString: url });
    const there = new pg.Client({ connectionString: url });
    await here.connect();
    await there.connect();
    await here.query("LISTEN pong");
    await there.query("LISTEN ping");
    there.on("notification", () => {
      there.query("SELECT pg_notify('pong', '')").catch(() => {});
    });
    return new PingPong(here, there);
  }

  async roundTrip(): Promise<number> {
    const answered = new Promise<void>((resolve) => {
      this.#here.once("notification", () => resolve());
    });
    const startedAt = performance.now();
    const [, elapsed] = await Promise.all([
      this.#here.query("SELECT pg_notify('ping', '')"),
      answered.then(() => performance.now() - startedAt),
    ]);
    return elapsed;
  }

  async close(): Promise<void> {
    await Promise.all([this.#here.end(), this.#there.end()]);
  }
}
