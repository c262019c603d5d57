import { exponentialMs } from "../../base/backoff.ts";
import { Bell } from "../../base/bell.ts";
import type { Clock } from "../../base/clock.ts";
import { messageOf } from "../../base/errors.ts";
import type { Logger } from "../../base/log.ts";
import { runLoop, type TurnResult } from "../../base/loop.ts";
import type { Service } from "../../base/supervisor.ts";
import type { Queryable } from "../../db/database.ts";
import { NO_LIMITS } from "../../tasks/limits.ts";
import type { QueueDefinition, QueueSettings } from "../../tasks/queue.ts";
import { findGoneQueues, findHttpQueues } from "../sql/http-queues.ts";

export interface HttpQueueWatchOptions {
  /** Undefined: every queue of kind http. */
  readonly names: readonly string[] | undefined;
  /** Those that this worker defines itself, and works from the start. */
  readonly own: readonly string[];
  readonly clock: Clock;
  readonly logger: Logger;
  /** Their tasks are claimed when this resolves. */
  readonly begin: (queues: readonly QueueDefinition[]) => Promise<void>;
  /** Their tasks are not claimed any more when this resolves. */
  readonly end: (queues: readonly string[]) => Promise<void>;
}

/** How late a queue may be noticed of which nobody tells. */
const LOOK_MS = 2_000;
const FAILED_MS_MAX = 5_000;

/**
 * Finds queues of kind http that others define, also later ones, and begins with them; and leaves
 * those that are of kind http no more to whoever runs them now.
 */
export class HttpQueueWatch implements Service {
  readonly name = "http-queues";
  /** Rung when something changed in the cluster. */
  readonly bell = new Bell();
  readonly #db: Queryable;
  readonly #options: HttpQueueWatchOptions;
  /** Those that were found. */
  readonly #known = new Set<string>();

  constructor(db: Queryable, options: HttpQueueWatchOptions) {
    this.#db = db;
    this.#options = options;
  }

  async run(signal: AbortSignal): Promise<void> {
    const { clock, logger } = this.#options;
    const onFailure = (error: unknown, failures: number): number => {
      logger.warn({ error: messageOf(error), failures }, "could not look for queues of kind http");
      return exponentialMs(failures, 100, FAILED_MS_MAX);
    };
    await runLoop(() => this.#turn(), { clock, bell: this.bell, onFailure }, signal);
  }

  async #turn(): Promise<TurnResult> {
    const { names, own } = this.#options;
    if (names?.every((name) => own.includes(name)) === true) return { restMs: LOOK_MS };
    await this.#leaveGone();
    await this.#beginFound([...own, ...this.#known]);
    return { restMs: LOOK_MS };
  }

  async #leaveGone(): Promise<void> {
    const { end, logger } = this.#options;
    if (this.#known.size === 0) return;
    const gone = await findGoneQueues(this.#db, [...this.#known]);
    if (gone.length === 0) return;
    await end(gone);
    for (const name of gone) this.#known.delete(name);
    logger.info({ queues: gone }, "leaves queues that are not of kind http any more");
  }

  async #beginFound(known: readonly string[]): Promise<void> {
    const { names, begin, logger } = this.#options;
    if (names?.every((name) => known.includes(name)) === true) return;
    const found = await findHttpQueues(this.#db, known, names);
    if (found.length === 0) return;
    await begin(
      found.map(({ name, key_space: keySpace, settings }) => ({
        name,
        keySpace,
        settings: settings as QueueSettings,
        limits: NO_LIMITS,
        schema: undefined,
        resultSchema: undefined,
      })),
    );
    for (const { name } of found) this.#known.add(name);
    logger.info({ queues: found.map(({ name }) => name) }, "calls targets of more queues");
  }
}
