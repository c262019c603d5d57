import type { Worker } from "../../api/types.ts";
import { formatBytes, formatCount } from "../../format.ts";

/** What workers tell of themselves may be more tomorrow. Settings are on the page of the ring. */
export function describeLoad({ running, slots, ...rest }: Worker["load"]): string {
  const parts = Object.entries(rest).flatMap(([name, value]) => {
    if (typeof value !== "number" || name.endsWith("Seconds")) return [];
    if (name === "rssBytes") return [`${formatBytes(value)} of memory`];
    return name === "consumers" ? [] : [`${formatCount(value)} ${name}`];
  });
  return [...tasksOf(running, slots), ...parts].join(", ") || "–";
}

function tasksOf(running: unknown, slots: unknown): string[] {
  if (typeof running !== "number") return [];
  const of = typeof slots === "number" ? ` of ${formatCount(slots)}` : "";
  return [`${formatCount(running)}${of} running`];
}
