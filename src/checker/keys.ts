import { type Facts, groupBy } from "./facts.ts";
import type { Life } from "./life.ts";
import type { Finding, Rule } from "./rule.ts";
import type { Scene } from "./scene.ts";
import type { EffectFact, TaskFact } from "./truth.ts";

const nameOf = ({ task, name }: Pick<EffectFact, "task" | "name">): string =>
  `task ${task} (${name})`;

/** What shows that a task was done, and when, by the database's clock. */
interface Done {
  readonly task: string;
  readonly name: string;
  readonly atMs: number;
}

/** By its effect; of tasks that have none, by when its completion was accepted. */
function doneOf(scene: Scene, task: TaskFact, life: Life | undefined): Done | undefined {
  if (life?.effect !== undefined) return life.effect;
  const { id, name, queue, state, finishedAtMs } = task;
  if (!scene.isOrderedByEnd(queue) || state !== "completed" || finishedAtMs === null) {
    return undefined;
  }
  return { task: id, name, atMs: finishedAtMs };
}

/**
 * Only lines of one process have an order, so should two share a key, each has its own. Of equal
 * times nothing is known: they may come in milliseconds.
 */
function* outOfOrder({ scene, enqueues, tasks, lives }: Facts): Generator<Finding> {
  const latestByProcess = new Map<string, Map<string, Done>>();
  for (const { proc, what } of enqueues) {
    if (what.keys === undefined || what.phase === "fail") continue;
    const space = `${proc} ${scene.keySpaceOf(what.queue)}`;
    const latestByKey = latestByProcess.get(space) ?? new Map<string, Done>();
    latestByProcess.set(space, latestByKey);
    for (const [place, key] of what.keys.entries()) {
      const task = tasks.items.get(what.names[place] ?? "")?.fact;
      const done = task === undefined ? undefined : doneOf(scene, task, lives.get(task.id));
      if (done === undefined) continue;
      const latest = latestByKey.get(key);
      if (latest === undefined || done.atMs >= latest.atMs) {
        latestByKey.set(key, done);
        continue;
      }
      const calls = [latest, done].map(({ name }) => tasks.items.get(name)?.call);
      const message = `${nameOf(done)} ran before ${nameOf(latest)}, which is ahead in its key`;
      yield { message, slice: [...calls, latest, done] };
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

/** What is known of a task that must have waited for the one before it in its key. */
interface Turn {
  readonly task: TaskFact;
  readonly life: Life;
}

/**
 * Why it cannot have waited. Who holds several of a key may claim them together, so a claim tells
 * only of a worker that did not have the one before. Only the claim that stands is judged: others
 * may have been given back.
 */
function hasteOf(before: Turn, { task, life }: Turn): string | undefined {
  const endedAtMs = before.task.finishedAtMs;
  if (endedAtMs === null) return undefined;
  if ((life.begunAtMs ?? Infinity) < endedAtMs) return "started";
  const { worker = null } = task;
  const isOther = worker !== null && before.task.worker != null && worker !== before.task.worker;
  return isOther && (life.claimedAtMs ?? Infinity) < endedAtMs
    ? "was claimed elsewhere"
    : undefined;
}

/** Of those whose order the lines of one process tell, each beside the one before it in its key. */
function* hasty({ scene, enqueues, tasks, lives }: Facts): Generator<Finding> {
  const latest = new Map<string, Turn>();
  for (const { proc, what } of enqueues) {
    if (what.keys === undefined || what.phase === "fail") continue;
    if (!scene.isOrderedByEnd(what.queue) && !scene.hasEffect(what.queue)) continue;
    for (const [place, key] of what.keys.entries()) {
      const task = tasks.items.get(what.names[place] ?? "")?.fact;
      const life = task === undefined ? undefined : lives.get(task.id);
      if (task === undefined || life === undefined) continue;
      const name = `${proc} ${scene.keySpaceOf(what.queue)} ${key}`;
      const before = latest.get(name);
      latest.set(name, { task, life });
      const haste = before === undefined ? undefined : hasteOf(before, { task, life });
      if (before === undefined || haste === undefined) continue;
      const [next, first] = [task, before.task].map((one) =>
        nameOf({ task: one.id, name: one.name }),
      );
      const message = `${next} of key ${key} ${haste} before the end of ${first} was accepted`;
      yield { message, slice: [before.task, task, life] };
    }
  }
}

function* exclusive(facts: Facts): Generator<Finding> {
  yield* overlapping(facts);
  yield* hasty(facts);
}

/** One after another of a key, in the order in which they were enqueued. */
export const KEY_RULES: readonly Rule[] = [
  { name: "key-order", count: "reordered", find: outOfOrder },
  { name: "key-overlap", count: "reordered", find: exclusive },
];
