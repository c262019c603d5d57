import { bucketOf } from "../cluster/ring.ts";
import { PRIORITY_NAMES } from "../tasks/priority.ts";
import type { TaskState } from "../tasks/task.ts";
import type { TaskFailure, TaskView } from "../tasks/view.ts";
import { colors } from "./output.ts";
import { type Column, shortId, tableLines } from "./table.ts";
import { documentLines, forJson, formatAge, formatInstant, shown } from "./text.ts";

const REASON_CHARS_MAX = 60;
const STACK_LINES_MAX = 8;
const LABEL_WIDTH = 12;

/** For programs. */
export function taskDocument(task: TaskView): object {
  return { ...task, payload: forJson(task.payload) };
}

/** Everything that is known of one task. `why` is for one that waits. */
export function taskLines(
  task: TaskView,
  failures: readonly TaskFailure[],
  why?: string,
): string[] {
  return [
    `Task ${colors.bold(task.id)} is ${paintState(task.state, task)}`,
    ...factLines(task),
    ...(why === undefined ? [] : [fact("why", colors.yellow(shown(why)))]),
    ...section("Payload", task.payload),
    ...(task.state === "completed" ? section("Result", task.result ?? null) : []),
    ...failureLines(failures),
    ...nextLines(task),
  ];
}

function factLines(task: TaskView): string[] {
  const { partitionKey, kind, reason, cause, progress, webhook, traceParent, workerId } = task;
  const facts: readonly (readonly [string, string | undefined])[] = [
    ["queue", task.queue],
    ["kind", kind],
    ["tenant", task.tenant === "default" ? undefined : task.tenant],
    ["priority", priorityText(task.priority)],
    ["key", partitionKey && `${shown(partitionKey)} (bucket ${bucketOf(partitionKey)})`],
    ["attempts", `${task.attempt} of ${task.maxAttempts}`],
    ["created", formatInstant(task.createdAt)],
    ["run at", formatInstant(task.runAt)],
    ["claimed", task.claimedAt && formatInstant(task.claimedAt)],
    ["worker", workerId],
    ["lease until", task.leaseUntil && formatInstant(task.leaseUntil)],
    ["finished", task.finishedAt && formatInstant(task.finishedAt)],
    ["progress", progress === undefined ? undefined : JSON.stringify(progress)],
    ["content", task.contentType === "application/json" ? undefined : task.contentType],
    ["target", task.targetUrl],
    ["webhook", webhook],
    ["event", task.causedBy && `position ${task.causedBy}`],
    ["trace", traceParent],
    ["cause", cause],
    ["reason", reason],
  ];
  return facts.flatMap(([label, value]) => (value === undefined ? [] : [fact(label, value)]));
}

function fact(label: string, value: string): string {
  return `  ${colors.dim(label.padEnd(LABEL_WIDTH))}${shown(value)}`;
}

function priorityText(priority: number): string {
  const name = Object.entries(PRIORITY_NAMES).find(([, level]) => level === priority)?.[0];
  return name === undefined ? String(priority) : `${priority} (${name})`;
}

function section(title: string, value: unknown): string[] {
  return ["", title, ...documentLines(value)];
}

function failureLines(failures: readonly TaskFailure[]): string[] {
  if (failures.length === 0) return [];
  const columns: Column<TaskFailure>[] = [
    { title: "ATTEMPT", value: (one) => String(one.attempt), align: "right" },
    { title: "AT", value: (one) => formatInstant(one.at) },
    { title: "OUTCOME", value: (one) => one.outcome },
    { title: "WORKER", value: (one) => shortId(one.workerId) },
    { title: "REASON", value: (one) => shown(one.reason) },
  ];
  const frames = (failures.at(-1)?.stack ?? "")
    .split("\n")
    .filter((line) => line.trim().startsWith("at "))
    .slice(0, STACK_LINES_MAX);
  return [
    "",
    "Failures",
    ...tableLines(failures, columns),
    ...frames.map((line) => colors.dim(`    ${shown(line)}`)),
  ];
}

/** The ways on, for a task that stopped. */
function nextLines({ id, state }: TaskView): string[] {
  if (state === "dead") {
    return [
      "",
      `Fix the handler, then run it again: tidemill task retry ${id}`,
      `Or fix its payload before: tidemill dead edit ${id} '...'`,
    ];
  }
  const isOver = state === "failed" || state === "cancelled";
  return isOver ? ["", `To run it again: tidemill task retry ${id}`] : [];
}

/** A page of tasks, and how to have the next one. */
export function pageLines(tasks: readonly TaskView[], limit: number, none: string): string[] {
  if (tasks.length === 0) return [none];
  const last = tasks.at(-1)?.id;
  const more = tasks.length < limit ? [] : [`  Older ones: --before ${last}`];
  return [...taskListLines(tasks), ...more];
}

/** Columns that would say nothing, or the same in each line, are left out. */
function taskListLines(tasks: readonly TaskView[]): string[] {
  const columns: Column<TaskView>[] = [
    { title: "TASK", value: (one) => one.id, align: "right" },
    { title: "STATE", value: (one) => one.state, paint: paintState },
    { title: "QUEUE", value: (one) => one.queue },
    { title: "KIND", value: (one) => one.kind ?? "-" },
    { title: "KEY", value: (one) => cut(one.partitionKey ?? "-") },
    { title: "PRIORITY", value: (one) => String(one.priority), align: "right" },
    { title: "ATTEMPTS", value: (one) => `${one.attempt}/${one.maxAttempts}`, align: "right" },
    { title: "CREATED", value: (one) => formatAge(one.createdAt), align: "right" },
    { title: "DIED", value: (one) => formatAge(one.finishedAt ?? one.createdAt), align: "right" },
    { title: "TENANT", value: (one) => one.tenant },
    { title: "CAUSE", value: (one) => one.cause ?? "-" },
    { title: "REASON", value: (one) => cut(one.reason ?? "") },
  ];
  const areDead = tasks.every((one) => one.state === "dead");
  const isTold: Readonly<Record<string, boolean>> = {
    STATE: !areDead,
    DIED: areDead,
    KIND: tasks.some((one) => one.kind !== undefined),
    KEY: tasks.some((one) => one.partitionKey !== undefined),
    TENANT: tasks.some((one) => one.tenant !== "default"),
    CAUSE: tasks.some((one) => one.cause !== undefined),
    REASON: tasks.some((one) => one.reason !== undefined),
  };
  return tableLines(
    tasks,
    columns.filter(({ title }) => isTold[title] ?? true),
  );
}

function cut(text: string): string {
  const line = shown(text);
  return line.length > REASON_CHARS_MAX ? `${line.slice(0, REASON_CHARS_MAX - 1)}…` : line;
}

function paintState(text: string, { state }: { readonly state: TaskState }): string {
  if (state === "completed" || state === "running") return colors.green(text);
  if (state === "dead" || state === "failed") return colors.red(text);
  return state === "cancelled" ? colors.yellow(text) : text;
}
