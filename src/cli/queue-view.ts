import type { Limits, Rate } from "../tasks/limits.ts";
import type { QueueView } from "../tasks/queue-admin.ts";
import { colors } from "./output.ts";
import { type Column, formatCount, formatCut, formatSeconds, tableLines } from "./table.ts";
import { shown } from "./text.ts";

/** A line each. Columns that would say nothing are left out. */
export function queueLines(queues: readonly QueueView[]): string[] {
  const columns: (Column<QueueView> & { readonly isTold?: boolean })[] = [
    { title: "QUEUE", value: (one) => one.name },
    { title: "STATE", value: stateOf, paint: paintState },
    { title: "DEPTH", value: (one) => formatCount(depthOf(one)), align: "right" },
    { title: "RUNNING", value: (one) => formatCount(one.running), align: "right" },
    {
      title: "DEAD",
      value: (one) => (one.dead === 0 ? "-" : formatCut(one.dead, one.isDeadCut)),
      align: "right",
      paint: (text, one) => (one.dead === 0 ? text : colors.red(text)),
    },
    { title: "OLDEST", value: oldestOf, align: "right" },
    {
      title: "KEY SPACE",
      value: (one) => one.keySpace,
      isTold: queues.some((one) => one.keySpace !== one.name),
    },
    {
      title: "LIMITS",
      value: (one) => limitsText(one.limits) || "-",
      isTold: queues.some((one) => limitsText(one.limits) !== ""),
    },
    {
      title: "REASON",
      value: (one) => shown(one.pauseReason ?? ""),
      isTold: queues.some((one) => one.pauseReason !== undefined),
    },
  ];
  return tableLines(
    queues,
    columns.filter(({ isTold }) => isTold !== false),
  );
}

function stateOf({ isPaused }: QueueView): string {
  return isPaused ? "paused" : "open";
}

function paintState(text: string, { isPaused }: QueueView): string {
  return isPaused ? colors.yellow(text) : colors.green(text);
}

/** Running ones included. */
export function depthOf({ depths }: QueueView): number {
  return Object.values(depths).reduce((sum, depth) => sum + depth, 0);
}

function oldestOf({ oldestPendingSeconds: age }: QueueView): string {
  return age === undefined ? "-" : formatSeconds(Math.max(0, age));
}

/** Empty when there are none. */
export function limitsText({ concurrency, rate, keyRate }: Limits): string {
  return [
    concurrency === null ? "" : `${formatCount(concurrency)} at once`,
    rate === null ? "" : rateText(rate),
    keyRate === null ? "" : `${rateText(keyRate)} per key`,
  ]
    .filter((text) => text !== "")
    .join(", ");
}

function rateText({ count, seconds }: Rate): string {
  return `${formatCount(count)} in ${seconds} s`;
}
