import { TASK_STATES, type TaskState } from "../../api/types.ts";
import type { TaskChange } from "../../live/events.ts";

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

/** Whether what became of a task may change what the list shows. */
export function concerns(
  { queue }: TaskFilter,
  change: Pick<TaskChange, "id" | "queue">,
  shown: ReadonlySet<string>,
): boolean {
  if (shown.has(change.id)) return true;
  return queue === "" || change.queue === queue;
}
