import type { EffectFact } from "../truth.ts";
import { type Facts, groupBy } from "./facts.ts";
import type { Finding, Rule } from "./rule.ts";

const nameOf = ({ task, name }: EffectFact): string => `task ${task} (${name})`;

/**
 * Only lines of one process have an order, so should two share a key, each has its own. Of equal
 * times nothing is known: they may come in milliseconds.
 */
function* outOfOrder({ enqueues, tasks, lives }: Facts): Generator<Finding> {
  const latestByProcess = new Map<string, Map<string, EffectFact>>();
  for (const { proc, what } of enqueues) {
    if (what.keys === undefined || what.phase === "fail") continue;
    const latestByKey = latestByProcess.get(proc) ?? new Map<string, EffectFact>();
    latestByProcess.set(proc, latestByKey);
    for (const [place, key] of what.keys.entries()) {
      const task = tasks.items.get(what.names[place] ?? "")?.fact;
      const effect = task === undefined ? undefined : lives.get(task.id)?.effect;
      if (effect === undefined) continue;
      const latest = latestByKey.get(key);
      if (latest === undefined || effect.atMs >= latest.atMs) {
        latestByKey.set(key, effect);
        continue;
      }
      const calls = [latest, effect].map(({ name }) => tasks.items.get(name)?.call);
      const message = `${nameOf(effect)} ran before ${nameOf(latest)}, which is ahead in its key`;
      yield { message, slice: [...calls, latest, effect] };
    }
  }
}

function* overlapping({ truth }: Facts): Generator<Finding> {
  const keyed = truth.effects.filter(({ key }) => key !== null);
  for (const [key, effects] of groupBy(keyed, (effect) => effect.key ?? "")) {
    effects.sort((a, b) => a.atMs - b.atMs || a.startedAtMs - b.startedAtMs);
    let before: EffectFact | undefined;
    for (const effect of effects) {
      if (before !== undefined && effect.startedAtMs < before.atMs) {
        const message = `${nameOf(effect)} of key ${key} started before ${nameOf(before)} was done`;
        yield { message, slice: [before, effect] };
      }
      before = effect;
    }
  }
}

/** One after another of a key, in the order in which they were enqueued. */
export const KEY_RULES: readonly Rule[] = [
  { name: "key-order", count: "reordered", find: outOfOrder },
  { name: "key-overlap", count: "reordered", find: overlapping },
];
