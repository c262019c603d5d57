import type { Lane } from "./lanes.ts";
import { PROBATION } from "./priority.ts";
import type { QueueLines } from "./queue-lines.ts";

/** Lanes of which something is ready here. */
export const isHere =
  (lines: QueueLines) =>
  ({ queue, lane }: Lane): boolean =>
    lines.readyOf(queue)?.has(lane) === true;

/**
 * Lanes that rank above all that is ready here. What would start after it, turns or not, is left to
 * other workers.
 */
export function isLacked(lines: QueueLines): (lane: Lane) => boolean {
  let highest: number | undefined;
  return ({ queue, tenant, priority }) => {
    // Probation: one at a time, with what is claimed for all.
    if (priority === PROBATION || !lines.has(queue)) return false;
    const ready = lines.readyOf(queue);
    if (ready !== undefined && ready.size > 0) return priority > ready.highest(tenant.name);
    highest ??= Math.max(...lines.names.map((name) => lines.readyOf(name)?.highest() ?? -Infinity));
    return priority > highest;
  };
}
