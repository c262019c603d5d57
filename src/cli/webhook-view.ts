import type { WebhookAttempt, WebhookDelivery, WebhookEndpoint } from "../delivery/webhook-view.ts";
import { colors } from "./output.ts";
import { type Column, tableLines } from "./table.ts";
import { formatAge, formatInstant, shown } from "./text.ts";

const TEXT_CHARS_MAX = 60;

/** A line each, and below them why one is disabled. */
export function endpointLines(endpoints: readonly WebhookEndpoint[]): string[] {
  const columns: Column<WebhookEndpoint>[] = [
    { title: "ENDPOINT", value: (one) => one.id },
    { title: "URL", value: (one) => shown(one.url ?? "(of the task)") },
    { title: "FORMAT", value: (one) => one.format },
    {
      title: "STATE",
      value: (one) => (one.disabledAt === undefined ? "active" : "disabled"),
      paint: (text, one) => (one.disabledAt === undefined ? colors.green : colors.red)(text),
    },
    { title: "ROTATED", value: ({ rotatedAt }) => (rotatedAt ? formatAge(rotatedAt) : "never") },
    {
      title: "OLD SECRET",
      value: ({ oldSecretUntil }) => (oldSecretUntil ? `ends ${formatAge(oldSecretUntil)}` : "-"),
    },
    { title: "DESCRIPTION", value: (one) => cut(one.description ?? "-") },
  ];
  const disabled = endpoints.filter((one) => one.disabledAt !== undefined);
  return [
    ...tableLines(endpoints, columns),
    ...disabled.flatMap(({ id, disabledAt = new Date(0), disabledReason = "" }) => [
      "",
      `${colors.red("Disabled:")} ${colors.bold(id)} since ${formatInstant(disabledAt)}`,
      `  ${shown(disabledReason)}`,
    ]),
  ];
}

/** A page of deliveries, and how to have the next one. */
export function deliveryLines(deliveries: readonly WebhookDelivery[], limit: number): string[] {
  if (deliveries.length === 0) return ["No delivery."];
  const columns: Column<WebhookDelivery>[] = [
    { title: "DELIVERY", value: (one) => one.id },
    { title: "TASK", value: (one) => one.taskId, align: "right" },
    { title: "TYPE", value: (one) => one.type },
    { title: "TO", value: ({ url, endpoint }) => cut(url ?? endpoint) },
    { title: "STATE", value: (one) => one.state, paint: paintState },
    { title: "ATTEMPTS", value: (one) => String(one.attempt), align: "right" },
    { title: "NEXT", value: ({ nextAt }) => (nextAt ? formatAge(nextAt) : "-") },
    { title: "CREATED", value: (one) => formatAge(one.createdAt), align: "right" },
    {
      title: "LAST",
      value: ({ lastError, lastStatus }) => cut(lastError ?? `${lastStatus ?? "-"}`),
    },
  ];
  const more = deliveries.length < limit ? [] : [`  Older ones: --before ${deliveries.at(-1)?.id}`];
  return [...tableLines(deliveries, columns), ...more];
}

export function attemptLines(attempts: readonly WebhookAttempt[]): string[] {
  if (attempts.length === 0) return ["No attempt yet."];
  return tableLines(attempts, [
    { title: "ATTEMPT", value: (one) => String(one.attempt), align: "right" },
    { title: "AT", value: (one) => formatInstant(one.at) },
    { title: "STATUS", value: (one) => String(one.status ?? "-"), align: "right" },
    { title: "ERROR", value: (one) => one.error ?? "-" },
    {
      title: "TOOK",
      value: ({ durationMs }) => (durationMs === undefined ? "-" : `${durationMs} ms`),
    },
    { title: "SAID", value: (one) => cut(one.answer ?? one.message ?? "-") },
  ]);
}

function paintState(text: string, { state }: WebhookDelivery): string {
  if (state === "dead") return colors.red(text);
  return state === "delivered" ? colors.green(text) : colors.yellow(text);
}

function cut(text: string): string {
  const line = shown(text);
  return line.length > TEXT_CHARS_MAX ? `${line.slice(0, TEXT_CHARS_MAX - 1)}…` : line;
}
