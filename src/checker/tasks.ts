import { doubled, lost, torn, unexpected } from "./calls.ts";
import { type Facts, hasEnded } from "./facts.ts";
import type { Finding, Rule } from "./rule.ts";
import type { TaskFact } from "./truth.ts";

/** Everything that is known of a task. */
export function storyOf({ lives, tasks }: Facts, id: string): unknown[] {
  const life = lives.get(id);
  if (life === undefined) return [];
  const call = life.task === undefined ? undefined : tasks.items.get(life.task.name)?.call;
  const known = [life.task, call, life.effect].filter((one) => one !== undefined);
  return [...known, ...life.attempts, ...life.claims];
}

/** A task is in one place: it waits, it runs, it ended or it died. */
function* doubledEnds(facts: Facts): Generator<Finding> {
  for (const fact of facts.spareTasks) {
    const { id, name, state } = fact;
    const other = facts.lives.get(id)?.task?.state;
    const message = `task ${id} (${name}) is ${other} and ${state}`;
    yield { message, slice: [fact, ...storyOf(facts, id)] };
  }
}

function plightOf({ state, leaseUntilMs }: TaskFact, atMs: number): string {
  if (state !== "running") return `is still ${state}`;
  if (leaseUntilMs === null) return "runs without a lease";
  if (leaseUntilMs > atMs) return "still runs";
  return `runs though its lease ended ${atMs - leaseUntilMs} ms ago, and nobody took it`;
}

/** All was quiet and mended, and had time. */
function* stuck(facts: Facts): Generator<Finding> {
  const { tasks, atMs } = facts.truth;
  for (const task of tasks) {
    if (hasEnded(task)) continue;
    const message = `task ${task.id} (${task.name}) of ${task.queue} ${plightOf(task, atMs)}`;
    yield { message, slice: [task, ...storyOf(facts, task.id)] };
  }
}

/** Tasks that were enqueued, and those that are there. */
export const TASK_RULES: readonly Rule[] = [
  { name: "lost-task", count: "lost", find: ({ tasks }) => lost(tasks) },
  { name: "unexpected-task", count: null, find: ({ tasks }) => unexpected(tasks) },
  { name: "torn-enqueue", count: null, find: ({ tasks }) => torn(tasks) },
  { name: "doubled-enqueue", count: "doubled", find: ({ tasks }) => doubled(tasks) },
  { name: "doubled-end", count: "doubled", find: doubledEnds },
  { name: "stuck-task", count: "stuck", find: stuck },
];
