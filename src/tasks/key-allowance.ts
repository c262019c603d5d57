import type { KeyRates } from "./key-rates.ts";
import type { KeyAllowance } from "./sql/keys.ts";

/** What keeps a claim of keyed tasks from taking whatever comes. */
export interface AllowanceFacts {
  readonly queues: readonly string[];
  /** Whether several queues share the keys: then a paused one holds back keys, not itself alone. */
  readonly isShared: boolean;
  /** Tasks of one key that may be claimed at once; 1 is strict order, without a bound. */
  readonly keyConcurrency: number;
  /** So many of one key may wait in memory. */
  readonly perKey: number;
  /** How many of each key are held; asked only where that counts. */
  readonly held: () => Iterable<{ tenant: string; key: string; count: number }>;
  readonly rates: KeyRates | undefined;
  /** How many of the queue a limit allows; Infinity: there is none. */
  readonly limitOf: (queue: string) => number;
  /** How many of the queue are asked for. Infinity: whoever runs them takes any. */
  readonly roomOf: (queue: string) => number;
}

/** Undefined: as many of a key and of a queue as come. */
export function allowanceOf(facts: AllowanceFacts): KeyAllowance | undefined {
  const { isShared, keyConcurrency, rates } = facts;
  const queues = facts.queues.flatMap((queue) => {
    const allowed = Math.min(facts.limitOf(queue), facts.roomOf(queue));
    return allowed === Infinity ? [] : [{ queue, allowed: Math.max(0, allowed) }];
  });
  const isFree = keyConcurrency === 1 && rates === undefined && !isShared;
  if (isFree && queues.length === 0) return undefined;
  const most = keyConcurrency === 1 ? facts.perKey : keyConcurrency;
  const limits = new Map<string, { tenant: string; key: string; allowed: number }>();
  const limit = (tenant: string, key: string, allowed: number): void => {
    const id = JSON.stringify([tenant, key]);
    const known = limits.get(id);
    limits.set(id, { tenant, key, allowed: Math.min(known?.allowed ?? Infinity, allowed) });
  };
  for (const { tenant, key, count } of keyConcurrency === 1 ? [] : facts.held()) {
    limit(tenant, key, Math.max(0, most - count));
  }
  for (const { tenant, key, allowed } of rates?.spent() ?? []) limit(tenant, key, allowed);
  const otherwise = Math.min(most, rates?.fresh() ?? most);
  return { otherwise, keys: [...limits.values()], queues };
}
