import { setTimeout as pause } from "node:timers/promises";
import { httpQueue, Tidemill } from "../../src/index.ts";
import { type Figure, median, quantile } from "../support/figure.ts";
import { type BenchServer, withClient } from "../support/server.ts";
import { Spoken } from "../support/spoken.ts";
import { freePorts } from "../tasks/ports.ts";

import type { Arrivals } from "./target-program.ts";

const program = (file: string): URL => new URL(file, import.meta.url);

interface Scale {
  readonly backlog: number;
  /** Of high priority, whose wait is measured: without the others, and with them. */
  readonly samples: number;
  /** How long so many of high priority wait that nothing else would run without aging. */
  readonly floodMs: number;
}

/** So many samples take longer than a low job needs to age past a new high one. */
const FULL: Scale = { backlog: 100_000, samples: 15_000, floodMs: 20_000 };
/** So few low ones that all of them can be called. */
const QUICK: Scale = { backlog: 5_000, samples: 400, floodMs: 4_000 };
/** How long the target takes for a job. */
const JOB_MS = 100;
/** Of each sender, of whom there are some. */
const EVERY_MS = 10;
const SENDERS = 2;
/** The default of workers. Low jobs that waited six times as long outrank new high ones. */
const AGING_SECONDS = 10;
/** So that all low ones have aged while the flood is measured. */
const FLOOD_AGING_SECONDS = 0.5;
/** More than the pool does meanwhile. */
const FLOOD_AHEAD = 500;
const BULK = 10_000;
const WARM_UP = 100;
const SETTLE_MS = 20;
const PATIENCE_MS = 60_000;
/** For each low job that is still to be called, more than twice of what the host takes. */
const DRAIN_MS_EACH = 10;
const LOOK_MS = 250;

/**
 * How long jobs of high priority wait for their call, behind a hundred thousand of low priority
 * whose target is the same host; against the wait without these and the time of one job.
 */
export async function* priorityFigures(
  server: BenchServer,
  quick: boolean,
): AsyncGenerator<Figure> {
  const scale = quick ? QUICK : FULL;
  const url = await server.database();
  const { http: port } = await freePorts();
  await using target = await Spoken.start(program("target-program.ts"), { port, jobMs: JOB_MS });
  const scene = new Scene(await Tidemill.connect(url), target, port);
  await scene.begin();
  const idle: number[] = [];
  const behind: number[] = [];
  {
    const aging = { agingSeconds: AGING_SECONDS };
    await using _worker = await Spoken.start(program("jobs-program.ts"), { url, port, ...aging });
    await scene.waits(WARM_UP);
    idle.push(...(await scene.waits(scale.samples)));
    await scene.fill(scale.backlog);
    behind.push(...(await scene.waits(scale.samples)));
  }
  const beside = scene.others;
  const aging = { agingSeconds: FLOOD_AGING_SECONDS };
  await using _worker = await Spoken.start(program("jobs-program.ts"), { url, port, ...aging });
  const underFlood = await scene.flood(scale.floodMs);
  const drainMs = await scene.drain(url, scale.backlog);
  await scene.mill.close();
  if (beside === 0 || underFlood === 0) {
    throw new Error("jobs of low priority did not run beside those of high priority");
  }
  const [ours, alone] = [quantile(behind, 0.99), quantile(idle, 0.99)];
  const anchor = alone + JOB_MS;
  yield {
    figure: "feeds.high_priority_p99_ratio",
    value: ours / anchor,
    ours,
    anchor,
    unit: "of the ms that one waits alone, and a job takes (p99, less is better)",
    bar: { atMost: 1 },
    settings: {
      ...server.settings,
      ...scale,
      jobMs: JOB_MS,
      agingSeconds: AGING_SECONDS,
      floodAgingSeconds: FLOOD_AGING_SECONDS,
      idleP50: median(idle),
      idleP99: alone,
      behindP50: median(behind),
      lowBeside: beside,
      lowUnderFlood: underFlood,
      drainMs,
    },
  };
}

class Scene {
  readonly mill: Tidemill;
  /** Jobs of low priority that were called during the last measurement. */
  others = 0;
  readonly #target: Spoken;
  readonly #port: number;
  #next = 0;

  constructor(mill: Tidemill, target: Spoken, port: number) {
    this.mill = mill;
    this.#target = target;
    this.#port = port;
  }

  async begin(): Promise<void> {
    await this.mill.queues.define(httpQueue("jobs"));
  }

  #urlOf(path: string): string {
    return `http://hooks.test:${this.#port}/${path}`;
  }

  async fill(count: number): Promise<void> {
    const http = { targetUrl: this.#urlOf("others") };
    for (let from = 0; from < count; from += BULK) {
      const length = Math.min(BULK, count - from);
      const some = Array.from({ length }, (_, n) => ({
        payload: from + n,
        priority: "low" as const,
        http,
      }));
      await this.mill.enqueueMany("jobs", some);
    }
  }

  async #enqueueUrgent(sentMs: Map<number, number>): Promise<void> {
    const n = this.#next;
    this.#next += 1;
    sentMs.set(n, performance.timeOrigin + performance.now());
    const http = { targetUrl: this.#urlOf("urgent") };
    await this.mill.enqueue("jobs", n, { priority: "high", http });
  }

  /** Milliseconds from an enqueue to its call, one job every few milliseconds. */
  async waits(count: number): Promise<number[]> {
    await this.#target.ask("forget");
    this.others = 0;
    const sentMs = new Map<number, number>();
    let left = count;
    const send = async (): Promise<void> => {
      while (left > 0) {
        left -= 1;
        await this.#enqueueUrgent(sentMs);
        await pause(EVERY_MS);
      }
    };
    await Promise.all(Array.from({ length: SENDERS }, send));
    const waits: number[] = [];
    for (let ms = 0; waits.length < count; ms += SETTLE_MS) {
      if (ms > PATIENCE_MS) throw new Error(`${waits.length} of ${count} jobs were called`);
      const { urgent, others } = await this.#target.ask<Arrivals>("told");
      this.others += others;
      for (const [n, atMs] of urgent) waits.push(atMs - (sentMs.get(n) ?? Number.NaN));
      if (waits.length < count) await pause(SETTLE_MS);
    }
    return waits;
  }

  /** More of high priority than can be called, all the time. Returns how many others were. */
  async flood(ms: number): Promise<number> {
    await this.#target.ask("forget");
    const untilMs = performance.now() + ms;
    let [called, sent, others] = [0, 0, 0];
    while (performance.now() < untilMs) {
      const missing = FLOOD_AHEAD - (sent - called);
      const http = { targetUrl: this.#urlOf("urgent") };
      const some = Array.from({ length: Math.max(0, missing) }, (_, n) => ({
        payload: this.#next + n,
        priority: "high" as const,
        http,
      }));
      if (some.length > 0) await this.mill.enqueueMany("jobs", some);
      sent += some.length;
      this.#next += some.length;
      await pause(SETTLE_MS);
      const told = await this.#target.ask<Arrivals>("told");
      called += told.urgent.length;
      others += told.others;
    }
    return others;
  }

  /** Resolves when every job of low priority was completed; with how long that took. */
  async drain(url: string, count: number): Promise<number> {
    const begunMs = performance.now();
    const untilMs = begunMs + PATIENCE_MS + count * DRAIN_MS_EACH;
    return await withClient(url, async (client) => {
      for (;;) {
        const { rows } = await client.query<{ left: number; ended: number }>(
          `SELECT (SELECT count(*)::int FROM tidemill.live_tasks) AS left,
                  (SELECT count(*)::int FROM tidemill.task_history
                    WHERE state = 'completed' AND priority = 2) AS ended`,
        );
        const { left, ended } = rows[0] ?? { left: Number.NaN, ended: Number.NaN };
        if (left === 0 && ended === count) return performance.now() - begunMs;
        if (performance.now() > untilMs) {
          throw new Error(`${ended} of ${count} jobs of low priority were completed`);
        }
        await pause(LOOK_MS);
      }
    });
  }
}
