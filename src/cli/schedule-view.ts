import type { Schedule } from "../schedules/schedule.ts";
import { colors } from "./output.ts";
import { type Column, tableLines } from "./table.ts";
import { formatAge, formatInstant, shown } from "./text.ts";

/** A line each, and below them what keeps one from firing. */
export function scheduleLines(schedules: readonly Schedule[]): string[] {
  const columns: Column<Schedule>[] = [
    { title: "SCHEDULE", value: (one) => shown(one.name) },
    { title: "TENANT", value: (one) => shown(one.tenant) },
    { title: "CRON", value: (one) => one.cron },
    { title: "TIME ZONE", value: (one) => one.timeZone },
    { title: "QUEUE", value: (one) => one.queue },
    { title: "STATE", value: stateOf, paint: paintState },
    { title: "NEXT", value: nextOf },
    { title: "LAST", value: (one) => (one.lastAt === undefined ? "-" : formatAge(one.lastAt)) },
    { title: "TASK", value: (one) => one.lastTaskId ?? "-", align: "right" },
    { title: "MISSED", value: (one) => String(one.missed || "-"), align: "right" },
  ];
  return [...tableLines(schedules, columns), ...schedules.flatMap(errorLines)];
}

function stateOf({ pausedAt, lastError }: Schedule): string {
  if (pausedAt !== undefined) return "paused";
  return lastError === undefined ? "active" : "failing";
}

function paintState(text: string, schedule: Schedule): string {
  const state = stateOf(schedule);
  if (state === "active") return colors.green(text);
  return state === "failing" ? colors.red(text) : colors.yellow(text);
}

function nextOf({ nextAt, pausedAt }: Schedule): string {
  if (nextAt === undefined) return "never";
  return pausedAt === undefined ? formatInstant(nextAt) : "when resumed";
}

function errorLines({ name, lastError, retryAt }: Schedule): string[] {
  if (lastError === undefined) return [];
  const again = retryAt === undefined ? "" : `, tried again ${formatAge(retryAt)}`;
  return [
    "",
    `${colors.red("Failing:")} ${colors.bold(shown(name))} cannot enqueue its task${again}`,
    `  ${shown(lastError)}`,
  ];
}
