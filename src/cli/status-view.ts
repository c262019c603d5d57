import type { ConsumerStatus, GapStatus, Status, WorkerStatus } from "../consumers/status.ts";
import type { QueueView } from "../tasks/queue-admin.ts";
import { oneLine } from "./errors.ts";
import { colors } from "./output.ts";
import { queueLines } from "./queue-view.ts";
import {
  type Column,
  formatCount,
  formatCut,
  formatSeconds,
  shortId,
  tableLines,
} from "./table.ts";

const STACK_LINES_MAX = 8;
const QUERY_CHARS_MAX = 60;
/** A younger gap is an append in flight, and no news. */
const FRESH_SECONDS = 1;

/** What becomes of workers that stopped within the day. */
export type StoppedWorkers = "shown" | "counted" | "hidden";

/** Everything a person asks first, most urgent last, where the eye is. */
export function statusLines(
  status: Status,
  stopped: StoppedWorkers,
  queues: readonly QueueView[] = [],
): string[] {
  const { leader, latestPosition } = status;
  const led =
    leader.workerId === undefined
      ? colors.yellow("no leader")
      : `leader ${shortId(leader.workerId)} (term ${leader.term})`;
  return [
    `position ${colors.bold(formatCount(latestPosition))} · ${led}`,
    ...workerLines(status.workers, stopped),
    // A program that only has tasks need not be told that it has no consumers.
    ...(status.consumers.length === 0 && queues.length > 0 ? [] : consumerLines(status.consumers)),
    ...(queues.length === 0 ? [] : ["", ...queueLines(queues)]),
    ...status.consumers.flatMap(quarantineLines),
    ...parkedLines(status.consumers),
    ...gapLines(status.openGaps),
  ];
}

function workerLines(workers: readonly WorkerStatus[], stopped: StoppedWorkers): string[] {
  const shown = workers.filter((one) => stopped === "shown" || one.status !== "stopped");
  const rest = workers.length - shown.length;
  const isNoted = stopped === "counted" && rest > 0;
  const note = isNoted ? [`  ${colors.dim(`and ${rest} that stopped; --all shows them`)}`] : [];
  if (shown.length === 0) return ["", colors.yellow("No worker is running."), ...note];
  const columns: Column<WorkerStatus>[] = [
    { title: "WORKER", value: (one) => shortId(one.id) },
    {
      title: "STATUS",
      value: (one) => (one.isLeader ? `${one.status}, leader` : one.status),
      paint: (text, one) => (one.status === "active" ? colors.green(text) : colors.yellow(text)),
    },
    { title: "HOST", value: (one) => one.host ?? "-" },
    { title: "PID", value: (one) => String(one.pid ?? "-"), align: "right" },
    { title: "VERSION", value: (one) => one.version ?? "-" },
    {
      title: "LAST SEEN",
      value: (one) => `${formatSeconds(one.heartbeatAgeSeconds)} ago`,
      align: "right",
    },
    { title: "CONSUMERS", value: (one) => one.assigned.join(", ") || "-" },
  ];
  return ["", ...tableLines(shown, columns), ...note];
}

export function consumerLines(consumers: readonly ConsumerStatus[]): string[] {
  if (consumers.length === 0) {
    return ["", "No consumer was registered yet: a worker registers those it has."];
  }
  const columns: Column<ConsumerStatus>[] = [
    { title: "CONSUMER", value: (one) => one.name },
    { title: "STATE", value: (one) => one.state, paint: paintState },
    { title: "CHECKPOINT", value: (one) => formatCount(one.checkpoint), align: "right" },
    { title: "LAG", value: (one) => formatCount(one.lag), align: "right" },
    { title: "PARKED", value: parkedOf, align: "right" },
    { title: "WORKER", value: (one) => shortId(one.workerId) },
    { title: "REASON", value: (one) => oneLine(one.reason ?? "") },
  ];
  const hasReasons = consumers.some((one) => one.reason !== undefined);
  return ["", ...tableLines(consumers, hasReasons ? columns : columns.slice(0, -1))];
}

function parkedOf({ parkedEvents, isParkedCut }: ConsumerStatus): string {
  return parkedEvents === 0 ? "-" : formatCut(parkedEvents, isParkedCut);
}

function paintState(text: string, { state }: ConsumerStatus): string {
  if (state === "running") return colors.green(text);
  return state === "quarantined" ? colors.red(text) : colors.yellow(text);
}

/** The whole story of a poison event: which, why, since when, and the two ways on. */
function quarantineLines({ name, poison }: ConsumerStatus): string[] {
  if (poison === undefined) return [];
  const { position, eventId, error, stack, failures, since } = poison;
  const age = since === undefined ? 0 : (Date.now() - since.getTime()) / 1000;
  const frames = (stack ?? "")
    .split("\n")
    .filter((line) => line.trim().startsWith("at "))
    .slice(0, STACK_LINES_MAX);
  return [
    "",
    `${colors.red("Quarantined:")} ${colors.bold(name)} stopped at position ${position} ` +
      `after ${failures} failures, ${formatSeconds(Math.max(0, age))} ago`,
    `  Event ${eventId ?? "unknown"}`,
    `  ${oneLine(error ?? "no error was recorded")}`,
    ...frames.map((line) => colors.dim(`    ${line.trim()}`)),
    `  Fix the handler, then: tidemill consumer resume ${name}`,
    `  Or pass this event for ever: tidemill consumer skip ${name} --reason "..."`,
  ];
}

function parkedLines(consumers: readonly ConsumerStatus[]): string[] {
  return consumers
    .filter((one) => one.parkedStreams > 0)
    .flatMap(({ name, parkedStreams, parkedEvents, isParkedCut }) => [
      "",
      `${colors.yellow("Parked:")} ${colors.bold(name)} set aside ` +
        `${formatCut(parkedEvents, isParkedCut)} event(s) of ` +
        `${formatCut(parkedStreams, isParkedCut && parkedStreams === parkedEvents)} stream(s)`,
      `  Fix the handler, then replay them in order: tidemill consumer resume ${name}`,
    ]);
}

function gapLines({ positions, holders }: GapStatus): string[] {
  const isFresh = holders.length > 0 && holders.every((one) => one.ageSeconds < FRESH_SECONDS);
  if (positions.length === 0 || isFresh) return [];
  const columns: Column<GapStatus["holders"][number]>[] = [
    { title: "PID", value: (one) => String(one.pid ?? "prepared"), align: "right" },
    { title: "APPLICATION", value: (one) => one.application || "-" },
    { title: "USER", value: (one) => one.user ?? "-" },
    { title: "STATE", value: (one) => one.state ?? "-" },
    { title: "AGE", value: (one) => formatSeconds(one.ageSeconds), align: "right" },
    { title: "QUERY", value: (one) => oneLine(one.query ?? "").slice(0, QUERY_CHARS_MAX) },
  ];
  return [
    "",
    `${colors.yellow("Open gap:")} position ${positions.join(", ")} may still be filled by an ` +
      "unfinished transaction; consumers wait there",
    ...(holders.length === 0
      ? ["  Nobody is visible who could hold it; it closes by itself."]
      : tableLines(holders, columns)),
  ];
}
