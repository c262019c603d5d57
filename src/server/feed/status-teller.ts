import { Bell } from "../../base/bell.ts";
import type { Clock } from "../../base/clock.ts";
import { messageOf } from "../../base/errors.ts";
import { writeJson } from "../../base/json-text.ts";
import type { Logger } from "../../base/log.ts";
import { runLoop, type TurnResult } from "../../base/loop.ts";
import type { Service } from "../../base/supervisor.ts";
import type { FeedClient } from "./client.ts";
import type { FeedHub } from "./hub.ts";
import { TimeBudget } from "./time-budget.ts";

export interface StatusTellerOptions {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly readStatus: () => Promise<object>;
}

/** How often it is read when nothing changes. */
const EVERY_MS = 2_000;
/** However long a read takes: pages call what is older than ten seconds old. */
const SLOWEST_MS = 5_000;
const LOOK_MS = 250;
/** How soon it is read when something has changed: what changes at once is told at once. */
const NEWS_MS = 100;
const FAILED_MS = 5_000;
/** A read looks at everything and writes a fence: so much of the time goes into it at most. */
const SHARE = 0.04;
/** And so much at once after a rest. */
const RESTED_MS = 250;

/**
 * Tells those who read summaries and may see the cluster how it is. It is read once for all of
 * them, and not at all while there are none. Those who wait for the feed are told as well: while
 * something holds it, this is how they learn what.
 *
 * It is read at once when something has changed, and the less often the longer changes go on and
 * the longer a read takes. What people did has a budget of its own: others see it soon, however
 * busy the cluster is.
 */
export class StatusTeller implements Service {
  readonly name = "feed status";
  /** Rung when somebody came, or something of the cluster has changed. */
  readonly bell = new Bell();
  readonly #hub: () => FeedHub;
  readonly #options: StatusTellerOptions;
  readonly #budget = new TimeBudget(SHARE, RESTED_MS);
  readonly #actBudget = new TimeBudget(SHARE, RESTED_MS);
  #text = "";
  /** How often it was read, and which of them each client was told. */
  #reads = 0;
  readonly #told = new WeakMap<FeedClient, number>();
  #readAtMs = Number.NEGATIVE_INFINITY;
  #seen = { changes: 0, acts: 0 };

  constructor(hub: () => FeedHub, options: StatusTellerOptions) {
    this.#hub = hub;
    this.#options = options;
  }

  async run(signal: AbortSignal): Promise<void> {
    const { clock, logger } = this.#options;
    const onFailure = (error: unknown): number => {
      logger.warn({ error: messageOf(error) }, "the feed cannot tell the state of the cluster");
      return FAILED_MS;
    };
    await runLoop(() => this.#tell(), { clock, bell: this.bell, onFailure }, signal);
  }

  async #tell(): Promise<TurnResult> {
    const { clock } = this.#options;
    if (this.#listeners().length === 0) return { restMs: LOOK_MS };
    if (this.#dueInMs(clock.now()) <= 0) await this.#read();
    for (const client of this.#listeners()) {
      if (this.#told.get(client) === this.#reads) continue;
      // Who has just come has not taken its first words yet, and is told behind them.
      const isSent = this.#told.has(client) ? client.beat(this.#text) : client.greet(this.#text);
      if (isSent) this.#told.set(client, this.#reads);
    }
    return { restMs: Math.max(0, Math.min(LOOK_MS, this.#dueInMs(clock.now()))) };
  }

  async #read(): Promise<void> {
    const { clock, readStatus } = this.#options;
    const { clusterChanges: changes, acts } = this.#hub();
    const startedAtMs = clock.now();
    const budget = this.#dueByItselfInMs(startedAtMs) <= 0 ? this.#budget : this.#actBudget;
    this.#seen = { changes, acts };
    this.#readAtMs = startedAtMs;
    this.#text = `event: status\ndata: ${writeJson(await readStatus())}\n\n`;
    this.#reads += 1;
    const endedAtMs = clock.now();
    budget.spend(endedAtMs - this.#readAtMs, endedAtMs);
  }

  #dueInMs(nowMs: number): number {
    const dueMs = this.#dueByItselfInMs(nowMs);
    if (this.#hub().acts === this.#seen.acts) return dueMs;
    const newsMs = NEWS_MS - (nowMs - this.#readAtMs);
    return Math.min(dueMs, Math.max(newsMs, this.#actBudget.waitMs(nowMs)));
  }

  /** Whatever people did. */
  #dueByItselfInMs(nowMs: number): number {
    const restedMs = nowMs - this.#readAtMs;
    const { clusterChanges, acts } = this.#hub();
    const hasNews = clusterChanges - acts > this.#seen.changes - this.#seen.acts;
    const dueMs = Math.max((hasNews ? NEWS_MS : EVERY_MS) - restedMs, this.#budget.waitMs(nowMs));
    return Math.min(dueMs, SLOWEST_MS - restedMs);
  }

  #listeners(): FeedClient[] {
    return [...this.#hub().clients].filter(
      (client) => client.hasSummary && client.filter.withCluster,
    );
  }
}
