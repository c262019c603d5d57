import type { Subscription } from "../delivery/notices/subscription-view.ts";
import { colors } from "./output.ts";
import { type Column, formatSeconds, tableLines } from "./table.ts";
import { formatAge, formatInstant, shown } from "./text.ts";

/** A line each, and below them why one is failing. */
export function subscriptionLines(subscriptions: readonly Subscription[]): string[] {
  const columns: Column<Subscription>[] = [
    { title: "SUBSCRIPTION", value: (one) => one.id },
    { title: "URL", value: (one) => shown(one.url) },
    { title: "QUEUES", value: ({ queues }) => shown(queues?.join(",") ?? "(all)") },
    { title: "MODE", value: ({ mode, group }) => shown(group ? `${mode} ${group}` : mode) },
    { title: "EVERY", value: (one) => formatSeconds(one.minIntervalSeconds), align: "right" },
    { title: "ENDS", value: (one) => formatAge(one.expiresAt), align: "right" },
    { title: "TOLD", value: ({ toldAt }) => (toldAt ? formatAge(toldAt) : "never") },
    {
      title: "STATE",
      value: (one) => one.state,
      paint: (text, { state }) => (state === "active" ? colors.green : colors.red)(text),
    },
  ];
  const failing = subscriptions.filter(({ state }) => state === "failing");
  return [
    ...tableLines(subscriptions, columns),
    ...failing.flatMap(({ id, failingSince = new Date(0), failures, lastError = "" }) => [
      "",
      `${colors.red("Failing:")} ${colors.bold(id)} since ${formatInstant(failingSince)}`,
      `  ${failures} calls in a row: ${shown(lastError)}`,
    ]),
  ];
}
