import { Bell } from "../../base/bell.ts";
import { systemClock } from "../../base/clock.ts";
import { ConflictError, messageOf, UnavailableError } from "../../base/errors.ts";
import { runLoop, type TurnResult } from "../../base/loop.ts";
import type { Stopped } from "../../base/stop-signal.ts";
import { isUnavailable } from "../../db/sqlstate.ts";
import type { Queue } from "../../tasks/queue.ts";
import type { Tidemill } from "../../worker/tidemill.ts";
import type { Worker } from "../../worker/worker.ts";
import { announce } from "../progress.ts";
import { createDemoTables, type DemoNames } from "../sql/demo.ts";
import { formatCount } from "../table.ts";
import { Courier, type Mood } from "./courier.ts";
import { Fleet } from "./fleet.ts";
import { Ledger } from "./ledger.ts";
import type { LiveView } from "./live-view.ts";
import { takeOrders } from "./producer.ts";
import { type Score, Scoreboard, scoreText } from "./scoreboard.ts";
import {
  CLUSTER,
  DEMO_SCOPES,
  type Label,
  LEASE_SECONDS,
  labelsTo,
  REPORT,
  REPORT_CRON,
  reports,
} from "./shop.ts";
import type { WorkerOrder } from "./worker-process.ts";

const OUTAGE_MS_MAX = 10_000;
const CATCH_UP_MS_MAX = 30_000;
const JUDGE_MS = 1_000;
const CLOSE_LOOK_MS = 200;
const CALL_DRAIN_MS = 2_000;
const HAPPENINGS_MAX = 60;
/** Whoever calls the courier may call any port of this machine, and nothing else of it. */
const EGRESS = {
  allowHttp: true,
  allowCidrs: ["127.0.0.1/32"],
  ports: Array.from({ length: 65_535 }, (_, port) => port + 1),
};

export interface DemoOptions {
  readonly order: WorkerOrder;
  readonly names: DemoNames;
  readonly workers: number;
  readonly rate: number;
  readonly view: LiveView;
  /** Waits for everything that was begun, and fails unless all of it was done once. */
  readonly mustBeExact: boolean;
}

export interface DemoEnd extends Stopped {
  readonly report: string;
}

export interface Happening {
  readonly atMs: number;
  readonly text: string;
}

interface Parts {
  readonly courier: Courier;
  readonly labels: Queue<Label>;
  readonly caller: Worker;
  readonly scoreboard: Scoreboard;
  readonly ledger: Ledger;
}

/**
 * The shop: who takes orders, those who do its work in processes of their own, a courier who is
 * called over HTTP, a report by the clock, and who keeps the score.
 */
export class Demo implements AsyncDisposable {
  /** Events per second. */
  rate: number;
  readonly fleet: Fleet;
  readonly courier: Courier;
  readonly #mill: Tidemill;
  readonly #options: DemoOptions;
  readonly #parts: Parts;
  #happenings: Happening[] = [];
  /** Completions that came too late. */
  #refused = 0;
  #closing: Promise<Stopped> | undefined;

  private constructor(mill: Tidemill, options: DemoOptions, parts: Parts) {
    this.#mill = mill;
    this.#options = options;
    this.#parts = parts;
    this.rate = options.rate;
    this.courier = parts.courier;
    this.fleet = new Fleet(options.order, {
      happened: (text) => this.happened(text),
      notice: (text) => options.view.notice(text),
      refused: (name, { task, queue, generation }) => {
        this.#refused += 1;
        const what = `task ${task} of ${queue}, generation ${generation}`;
        this.happened(`${name} came too late to complete ${what}: refused, nothing was written`);
      },
    });
    for (let count = 0; count < options.workers; count += 1) this.fleet.add();
  }

  /** With everything but its orders: those come when it runs. */
  static async open(mill: Tidemill, options: DemoOptions): Promise<Demo> {
    const { names, mustBeExact } = options;
    await mill.transaction((tx) => createDemoTables(tx, names));
    const courier = await Courier.open(mustBeExact ? "good" : "flaky");
    try {
      const labels = labelsTo(courier.url);
      await mill.queues.define(labels);
      await mill.queues.define(reports);
      await mill.schedules.put(REPORT, { cron: REPORT_CRON, queue: reports, catchUp: "skip" });
      const ledger = new Ledger();
      const scoreboard = await Scoreboard.open(mill, names, ledger);
      const caller = await mill.startWorker({
        ...CLUSTER,
        leaseSeconds: LEASE_SECONDS,
        drainTimeout: CALL_DRAIN_MS,
        httpJobs: { concurrency: 8, breakerSeconds: 2, egress: EGRESS },
      });
      return new Demo(mill, options, { courier, labels, caller, scoreboard, ledger });
    } catch (error) {
      await courier.close();
      throw error;
    }
  }

  get score(): Score {
    return this.#parts.scoreboard.score;
  }

  get promised(): Ledger["counts"] {
    return this.#parts.ledger.counts;
  }

  get refused(): number {
    return this.#refused;
  }

  /** The latest first. */
  get happenings(): readonly Happening[] {
    return this.#happenings;
  }

  happened(text: string): void {
    this.#happenings = [{ atMs: Date.now(), text }, ...this.#happenings].slice(0, HAPPENINGS_MAX);
  }

  setRate(rate: number): void {
    if (rate === this.rate) return;
    this.rate = rate;
    this.happened(`the shop takes ${rate} events a second`);
  }

  setMood(mood: Mood): void {
    if (mood === this.courier.mood) return;
    this.courier.mood = mood;
    const said = { good: "answers everything", flaky: "is flaky again", down: "answers nothing" };
    this.happened(`the courier ${said[mood]}`);
  }

  /** Runs until `signal` aborts, then stops in order: orders, workers, courier, score. */
  async run(signal: AbortSignal): Promise<DemoEnd> {
    const { view, mustBeExact } = this.#options;
    const failed = new AbortController();
    const fail = (error: unknown): void => failed.abort(error);
    const stopped = AbortSignal.any([signal, failed.signal]);
    const { labels, ledger } = this.#parts;
    const onFailure = (error: unknown): void => view.notice(messageOf(error));
    const rate = (): number => this.rate;
    await Promise.all([
      takeOrders(this.#mill, { rate, labels, ledger, onFailure }, stopped).catch(fail),
      this.#watch(stopped).catch(fail),
      this.#keepScore(stopped).catch(fail),
    ]);
    if (mustBeExact && !failed.signal.aborted) await this.#catchUp(failed.signal).catch(fail);
    view.end();
    await announce("Stopping the workers");
    const { givenBack } = await this.close();
    failed.signal.throwIfAborted();
    return { report: await this.#report(), givenBack };
  }

  /** Ends everything that it started; may be called twice. */
  async close(): Promise<Stopped> {
    this.#closing ??= this.#close();
    return await this.#closing;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  async #close(): Promise<Stopped> {
    const { caller, courier } = this.#parts;
    const [workers, calls] = await Promise.all([this.fleet.stopAll(), caller.stop()]);
    await courier.close();
    // Nobody is there any more to make reports.
    await this.#mill.schedules.remove(REPORT).catch(() => {});
    return { givenBack: workers.givenBack + calls.givenBack };
  }

  /** A short outage is shown and survived, as the workers survive it. */
  async #watch(signal: AbortSignal): Promise<void> {
    const { view } = this.#options;
    let downSince: number | undefined;
    const turn = async (): Promise<TurnResult> => {
      view.show(await this.#mill.status(), this.score);
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

  async #keepScore(signal: AbortSignal, restMs = JUDGE_MS): Promise<void> {
    const turn = async (): Promise<TurnResult> => {
      await this.#judge();
      return { restMs };
    };
    const onFailure = (error: unknown): number => {
      if (!isUnavailable(error)) throw error;
      return restMs;
    };
    await runLoop(turn, { clock: systemClock, bell: new Bell(), onFailure }, signal);
  }

  async #judge(): Promise<void> {
    const before = this.score.findings.length;
    const { moved, losses } = await this.#parts.scoreboard.judge();
    for (const { consumer, action } of moved) {
      this.happened(`${consumer}: ${action} by a person; it is judged anew from here`);
    }
    for (const { worker, tasks } of losses) {
      const name = this.fleet.workers.find(({ workerId }) => workerId === worker)?.name;
      this.happened(`${tasks} task(s) of ${name ?? worker} are done by others: it was silent`);
    }
    for (const finding of this.score.findings.slice(before)) {
      this.#options.view.notice(finding);
      this.happened(finding);
    }
  }

  /** Until everything that was promised is done. */
  async #catchUp(signal: AbortSignal): Promise<void> {
    const position = await this.#mill.latestPosition();
    const wait = { timeoutMs: CATCH_UP_MS_MAX, signal };
    for (const name of Object.keys(DEMO_SCOPES)) await this.#mill.waitFor(name, { position }, wait);
    const done = new AbortController();
    const cancel = systemClock.after(CATCH_UP_MS_MAX, () => done.abort());
    const turn = async (): Promise<TurnResult> => {
      await this.#judge();
      if (this.score.tasksDone >= this.promised.tasks) done.abort();
      return { restMs: CLOSE_LOOK_MS };
    };
    const onFailure = (error: unknown): number => {
      throw error;
    };
    const clock = systemClock;
    const ended = AbortSignal.any([signal, done.signal]);
    await runLoop(turn, { clock, bell: new Bell(), onFailure }, ended).finally(cancel);
  }

  async #report(): Promise<string> {
    await this.#judge();
    const { tasksDone, eventsDone } = this.score;
    const { tasks, events } = this.promised;
    const done =
      `Handled ${formatCount(eventsDone)} of ${formatCount(events)} events, did ` +
      `${formatCount(tasksDone)} of ${formatCount(tasks)} tasks`;
    const line = `${done}: ${scoreText(this.score)}`;
    if (!this.#options.mustBeExact) return line;
    const { lost, doubled, outOfOrder } = this.score;
    const isExact = lost + doubled + outOfOrder === 0 && tasksDone >= tasks && eventsDone >= events;
    if (!isExact) throw new ConflictError(line);
    return line;
  }
}
