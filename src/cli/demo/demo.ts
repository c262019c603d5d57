import { Bell } from "../../base/bell.ts";
import { systemClock } from "../../base/clock.ts";
import { ConflictError, messageOf, UnavailableError } from "../../base/errors.ts";
import { runLoop, type TurnResult } from "../../base/loop.ts";
import type { Stopped } from "../../base/stop-signal.ts";
import { isUnavailable } from "../../db/sqlstate.ts";
import type { Tidemill } from "../../worker/tidemill.ts";
import type { Worker } from "../../worker/worker.ts";
import { announce } from "../progress.ts";
import { countReceipts, createDemoTables, type DemoNames } from "../sql/demo.ts";
import { formatCount } from "../table.ts";
import { DEMO_SCOPES, demoConsumers } from "./consumers.ts";
import type { LiveView } from "./live-view.ts";
import { ORDER } from "./orders.ts";
import { appendOrders } from "./producer.ts";

const OUTAGE_MS_MAX = 10_000;
const CATCH_UP_MS_MAX = 30_000;

export interface DemoOptions {
  readonly names: DemoNames;
  readonly workers: number;
  readonly rate: number;
  readonly view: LiveView;
  /** Waits for the consumers, and fails unless each handled every event once. */
  readonly mustBeExact: boolean;
}

export interface DemoEnd extends Stopped {
  readonly report: string;
}

/** Runs the shop until `signal` aborts, then stops in order: producer, workers, check. */
export async function runDemo(
  mill: Tidemill,
  options: DemoOptions,
  signal: AbortSignal,
): Promise<DemoEnd> {
  const { names, rate, view, mustBeExact } = options;
  await mill.transaction((tx) => createDemoTables(tx, names));
  const start = await mill.latestPosition();
  const failed = new AbortController();
  const fail = (error: unknown): void => failed.abort(error);
  const stopped = AbortSignal.any([signal, failed.signal]);
  const crew = new Crew(mill, options, fail);
  const onFailure = (error: unknown): void => view.notice(messageOf(error));
  await Promise.all([
    appendOrders(mill, { rate, onFailure }, stopped).catch(fail),
    watch(mill, view, stopped).catch(fail),
  ]);
  if (mustBeExact && !failed.signal.aborted) await catchUp(mill, failed.signal).catch(fail);
  view.end();
  await announce("Stopping the workers");
  const { givenBack } = await crew.stop();
  failed.signal.throwIfAborted();
  return { report: await check(mill, options, start), givenBack };
}

/** The workers of the demo. One that cannot go on ends the demo. */
class Crew {
  readonly #stop = new AbortController();
  readonly #workers: readonly Worker[];
  readonly #ended: readonly Promise<void>[];

  constructor(mill: Tidemill, options: DemoOptions, onFailure: (error: unknown) => void) {
    const consumers = demoConsumers(options.names);
    this.#workers = Array.from({ length: options.workers }, () => mill.worker({ consumers }));
    this.#ended = this.#workers.map((worker) => worker.start(this.#stop.signal).catch(onFailure));
  }

  async stop(): Promise<Stopped> {
    this.#stop.abort();
    await Promise.all(this.#ended);
    const stopped = await Promise.all(this.#workers.map((worker) => worker.stop()));
    return { givenBack: stopped.reduce((sum, { givenBack }) => sum + givenBack, 0) };
  }
}

/** A short outage is shown and survived, as the workers survive it. */
async function watch(mill: Tidemill, view: LiveView, signal: AbortSignal): Promise<void> {
  let downSince: number | undefined;
  const turn = async (): Promise<TurnResult> => {
    view.show(await mill.status());
    downSince = undefined;
    return { restMs: view.everyMs };
  };
  const onFailure = (error: unknown): number => {
    downSince ??= systemClock.now();
    if (!isUnavailable(error)) throw error;
    if (systemClock.now() - downSince > OUTAGE_MS_MAX) {
      throw new UnavailableError(`the database went away: ${messageOf(error)}`, { cause: error });
    }
    view.outage(messageOf(error));
    return view.everyMs;
  };
  await runLoop(turn, { clock: systemClock, bell: new Bell(), onFailure }, signal);
}

async function catchUp(mill: Tidemill, signal: AbortSignal): Promise<void> {
  const position = await mill.latestPosition();
  const wait = { timeoutMs: CATCH_UP_MS_MAX, signal };
  for (const name of Object.keys(DEMO_SCOPES)) await mill.waitFor(name, { position }, wait);
}

/** Compares the log with what each consumer did, up to where it is. */
async function check(mill: Tidemill, options: DemoOptions, start: bigint): Promise<string> {
  const reports: string[] = [];
  let isExact = true;
  for (const { name, checkpoint } of await mill.listConsumers()) {
    const eventTypes = DEMO_SCOPES[name];
    if (eventTypes === undefined) continue;
    const request = { consumer: name, streamType: ORDER, eventTypes, after: start };
    const count = await mill.transaction((tx) =>
      countReceipts(tx, options.names, { ...request, upTo: checkpoint }),
    );
    const isRight = count.missed === 0 && count.repeated === 0;
    const wrong = isRight ? "" : ` (${count.missed} missed, ${count.repeated} repeated)`;
    reports.push(`${name} ${formatCount(count.events)}${wrong}`);
    isExact &&= isRight;
  }
  const line = `Events handled: ${reports.join(", ")}`;
  if (isExact) return `${line}; each exactly once.`;
  if (options.mustBeExact) throw new ConflictError(`${line}; not each exactly once`);
  return `${line}; a rewound or skipped consumer looks like this.`;
}
