import { type Facts, groupBy } from "../../src/checker/facts.ts";
import type { Finding, Rule } from "../../src/checker/rule.ts";
import type { FiringFact, ScheduleFact } from "../../src/checker/truth.ts";
import { deadlineOf, lostLeads } from "./recovery.ts";

/** Whoever takes over from a leader fires within as long as is promised for all that it did. */
const lateMs = ({ scene }: Facts): number => (scene.leaseSeconds + 2) * 1_000;

const momentOf = (ms: number): string => new Date(ms).toISOString();

/** What is between the first and the last tick another rule tells. */
function* faultsOf(
  facts: Facts,
  { schedule, createdAtMs, pausedAtMs }: ScheduleFact,
  firings: readonly FiringFact[],
): Generator<string> {
  if (pausedAtMs === null) yield `${schedule} was never paused`;
  const { tickMs: everyMs } = facts.scene;
  const ticks = firings.map(({ tickMs }) => tickMs);
  const first = ticks.reduce((a, b) => Math.min(a, b), Infinity);
  const last = ticks.reduce((a, b) => Math.max(a, b), createdAtMs);
  if (firings.length === 0) yield `${schedule} never fired`;
  else if (first > createdAtMs + everyMs) {
    const made = momentOf(createdAtMs);
    yield `${schedule} was there from ${made} on, and first fired for ${momentOf(first)}`;
  }
  const dueMs = last + everyMs;
  const setbacks = [...facts.faults, ...lostLeads(facts, lateMs(facts))];
  const endMs = pausedAtMs ?? facts.truth.atMs;
  if (firings.length === 0 || endMs <= deadlineOf(dueMs, dueMs + lateMs(facts), setbacks)) return;
  yield `${schedule} last fired for ${momentOf(last)}, and was paused at ${momentOf(endMs)}`;
}

function* silent(facts: Facts): Generator<Finding> {
  const firings = groupBy(facts.truth.firings, ({ schedule }) => schedule);
  for (const schedule of facts.truth.schedules) {
    const own = firings.get(schedule.schedule) ?? [];
    const slice = [schedule, own.at(0), own.at(-1)].filter((one) => one !== undefined);
    for (const message of faultsOf(facts, schedule, own)) yield { message, slice };
  }
}

/** Schedules fire from their beginning to their end. */
export const SCHEDULE_RULES: readonly Rule[] = [
  { name: "silent-schedule", count: null, find: silent },
];
