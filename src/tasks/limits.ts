import { refuseUnknown, requireNumber, withoutUndefined } from "../base/options.ts";

export interface RateOptions {
  /** Starts allowed per period. */
  readonly count: number;
  /** Length of the period. Defaults to 1. */
  readonly seconds?: number;
}

/** Held by the whole cluster at every instant, also through crashes. */
export interface LimitOptions {
  /** Tasks of the queue that may be claimed at once. Defaults to no limit. */
  readonly concurrency?: number;
  /** Claims of the queue per period. Defaults to no limit. */
  readonly rate?: RateOptions;
  /** Claims of one key per period. Defaults to no limit. */
  readonly keyRate?: RateOptions;
}

/** What a person changes: a limit that is left out stays as it is, `null` lifts it. */
export interface LimitChanges {
  readonly concurrency?: number | null;
  readonly rate?: RateOptions | null;
  readonly keyRate?: RateOptions | null;
}

export interface Rate {
  readonly count: number;
  readonly seconds: number;
}

export interface Limits {
  readonly concurrency: number | null;
  readonly rate: Rate | null;
  readonly keyRate: Rate | null;
}

const NAMES = ["concurrency", "rate", "keyRate"] as const;
export const NO_LIMITS: Limits = Object.freeze({ concurrency: null, rate: null, keyRate: null });

export function resolveLimits(queue: string, options: LimitOptions): Limits {
  refuseUnknown(`limits of queue "${queue}"`, options, NAMES);
  const { concurrency } = options;
  if (concurrency !== undefined) {
    requireNumber(`limits.concurrency of queue "${queue}"`, concurrency, {
      min: 0,
      max: 1_000_000,
      integer: true,
    });
  }
  return Object.freeze({
    concurrency: concurrency ?? null,
    rate: resolveRate(queue, "rate", options.rate),
    keyRate: resolveRate(queue, "keyRate", options.keyRate),
  });
}

/** As the database has them: a queue that nobody has defined yet has none. */
export function storedLimits(stored: unknown): Limits {
  return { ...NO_LIMITS, ...(stored as Partial<Limits> | null) };
}

/** Only those that are given. */
export function resolveLimitChanges(queue: string, changes: LimitChanges): Partial<Limits> {
  refuseUnknown(`limits of queue "${queue}"`, changes, NAMES);
  const given = withoutUndefined(changes);
  const kept = Object.entries(given).filter(([, limit]) => limit !== null);
  const resolved = resolveLimits(queue, Object.fromEntries(kept));
  return Object.fromEntries(
    NAMES.filter((name) => name in given).map((name) => [name, resolved[name]]),
  );
}

function resolveRate(queue: string, name: string, rate: RateOptions | undefined): Rate | null {
  if (rate === undefined) return null;
  refuseUnknown(`limits.${name} of queue "${queue}"`, rate, ["count", "seconds"]);
  const at = `limits.${name}`;
  return {
    count: requireNumber(`${at}.count of queue "${queue}"`, rate.count, {
      min: 1,
      max: 1_000_000_000,
      integer: true,
    }),
    seconds: requireNumber(`${at}.seconds of queue "${queue}"`, rate.seconds ?? 1, {
      min: 0.001,
      max: 31 * 86_400,
    }),
  };
}
