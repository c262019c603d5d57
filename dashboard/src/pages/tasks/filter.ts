import { TASK_STATES, type TaskState } from "../../api/types.ts";
import type { FeedSummary } from "../../live/events.ts";

/** What is looked for, as it is in the address. */
export interface TaskFilter {
  readonly queue: string;
  readonly state: TaskState | "";
  readonly partitionKey: string;
}

export function readFilter(search: string): TaskFilter {
  const given = new URLSearchParams(search);
  const state = TASK_STATES.find((one) => one === given.get("state")) ?? "";
  return { queue: given.get("queue") ?? "", state, partitionKey: given.get("key") ?? "" };
}

/** As the part of an address behind the path; "" when nothing is filtered. */
export function writeFilter({ queue, state, partitionKey }: TaskFilter): string {
  const parts = Object.entries({ queue, state, key: partitionKey }).filter(([, one]) => one !== "");
  return parts.length === 0 ? "" : `?${new URLSearchParams(parts)}`;
}

/** Whether what became of tasks may change what the list shows. */
export function concernsList(
  { queue }: TaskFilter,
  { isComplete, changes, counts }: Pick<FeedSummary, "isComplete" | "changes" | "counts">,
  shown: ReadonlySet<string>,
): boolean {
  const isOfIt = (name: string): boolean => queue === "" || name === queue;
  if (isComplete) return changes.some((change) => shown.has(change.id) || isOfIt(change.queue));
  // Of very many queues the feed tells the counts without their names.
  return counts.some((count) => count.queue === null || isOfIt(count.queue));
}
