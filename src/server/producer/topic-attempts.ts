import { BoundedMap } from "../../base/bounded-map.ts";
import type { Clock } from "../../base/clock.ts";
import { type TaskOptions, withDefaultAttempts } from "../../tasks/new-task.ts";

/** By command. */
export type Attempts = ReadonlyMap<string, number>;

/** So long the topics of a tenant are believed: creates come in thousands. */
const FRESH_MS = 1_000;
const TENANTS_MAX = 10_000;

/** How often the tasks of CodeQ's topics are tried, of creates that do not say it themselves. */
export class TopicAttempts {
  readonly #read: (tenant: string) => Promise<Attempts>;
  readonly #clock: Clock;
  readonly #known = new BoundedMap<string, { untilMs: number; attempts: Promise<Attempts> }>(
    TENANTS_MAX,
  );

  constructor(read: (tenant: string) => Promise<Attempts>, clock: Clock) {
    this.#read = read;
    this.#clock = clock;
  }

  /** Those of one tenant, who all wait for the same answer. Rejects when they cannot be read. */
  of(tenant: string): Promise<Attempts> {
    const nowMs = this.#clock.now();
    const known = this.#known.get(tenant);
    if (known !== undefined && nowMs < known.untilMs) return known.attempts;
    const attempts = this.#read(tenant);
    this.#known.set(tenant, { untilMs: nowMs + FRESH_MS, attempts });
    attempts.catch(() => {
      // Whoever comes next tries again.
      if (this.#known.get(tenant)?.attempts === attempts) this.#known.delete(tenant);
    });
    return attempts;
  }
}

/** Adds its attempts to what has none. Equal options stay equal: those are checked once. */
export function completing(
  attempts: Attempts,
): (queue: string, options: TaskOptions) => TaskOptions {
  const completed = new Map<TaskOptions, TaskOptions>();
  return (queue, options) => {
    const count = options.maxAttempts === undefined ? attempts.get(queue) : undefined;
    if (count === undefined) return options;
    const known = completed.get(options) ?? withDefaultAttempts(options, count);
    completed.set(options, known);
    return known;
  };
}
