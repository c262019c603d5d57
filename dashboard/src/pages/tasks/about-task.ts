import type { LiveEvent } from "../../live/events.ts";

/** Whether it tells of this task, or of too many of its queue to know. */
export function isAbout(event: LiveEvent, id: string, queue: string | undefined): boolean {
  if (event.kind !== "summary") return false;
  const { isComplete, changes } = event.summary;
  return isComplete ? changes.some((change) => change.id === id) : mayMove(event, queue);
}

/** Whether it may change why a task of this queue does not run: others moved, or workers did. */
export function mayMove(event: LiveEvent, queue: string | undefined): boolean {
  if (event.kind === "cluster") return event.about === "worker" || event.about === "ring";
  if (event.kind !== "summary") return false;
  // Of very many queues the feed tells the counts without their names.
  return event.summary.counts.some((count) => count.queue === queue || count.queue === null);
}
