import { Bell } from "../../base/bell.ts";
import type { Clock } from "../../base/clock.ts";
import { messageOf } from "../../base/errors.ts";
import { writeJson } from "../../base/json-text.ts";
import type { Logger } from "../../base/log.ts";
import { runLoop, type TurnResult } from "../../base/loop.ts";
import type { Service } from "../../base/supervisor.ts";
import type { FeedClient } from "./client.ts";
import type { FeedHub } from "./hub.ts";

export interface StatusTellerOptions {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly readStatus: () => Promise<object>;
}

/** How old what newcomers are told may be, and how often the others are told. */
const EVERY_MS = 2_000;
const LOOK_MS = 250;
/** How soon they are told when something has changed: what changes at once is told at once. */
const NEWS_MS = 100;
const FAILED_MS = 5_000;

/**
 * Tells those who read summaries and may see the cluster how it is. It is read once for all of
 * them, and not at all while there are none. Those who wait for the feed are told as well: while
 * something holds it, this is how they learn what.
 */
export class StatusTeller implements Service {
  readonly name = "feed status";
  /** Rung when something of the cluster has changed. */
  readonly bell = new Bell();
  readonly #hub: () => FeedHub;
  readonly #options: StatusTellerOptions;
  #told = new WeakSet<FeedClient>();
  #toldAtMs = Number.NEGATIVE_INFINITY;
  #toldChanges = 0;

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
    const { clock, readStatus } = this.#options;
    const { clusterChanges } = this.#hub();
    const hasNews = clusterChanges > this.#toldChanges;
    const waitedMs = clock.now() - this.#toldAtMs;
    if (hasNews && waitedMs < NEWS_MS) {
      return { restMs: NEWS_MS - waitedMs, isDeaf: true };
    }
    const isDue = hasNews || waitedMs >= EVERY_MS;
    const rest = { restMs: LOOK_MS };
    const wanting = this.#listeners().filter((client) => isDue || !this.#told.has(client));
    this.#toldChanges = clusterChanges;
    if (wanting.length === 0) return rest;
    const text = `event: status\ndata: ${writeJson(await readStatus())}\n\n`;
    for (const client of wanting) {
      client.beat(text);
      this.#told.add(client);
    }
    if (isDue) this.#toldAtMs = clock.now();
    return rest;
  }

  #listeners(): FeedClient[] {
    return [...this.#hub().clients].filter(
      (client) => client.hasSummary && client.filter.withCluster,
    );
  }
}
