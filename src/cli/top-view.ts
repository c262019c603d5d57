import { catchUpSeconds } from "../consumers/catch-up.ts";
import type { ConsumerStatus, Status, WorkerStatus } from "../consumers/status.ts";
import type { QueueView } from "../tasks/queue-admin.ts";
import { colors } from "./output.ts";
import { depthOf } from "./queue-view.ts";
import {
  type Column,
  formatCount,
  formatCut,
  formatSeconds,
  shortId,
  tableLines,
} from "./table.ts";

/** The cluster at one instant. */
export interface Moment {
  /** Milliseconds, of which only differences mean something. */
  readonly atMs: number;
  readonly status: Status;
  readonly queues: readonly QueueView[];
}

/** What changes per second; undefined until it was looked twice. */
export interface Rates {
  readonly events: number | undefined;
  /** Of live tasks, by queue: below zero when more end than come. */
  readonly depths: ReadonlyMap<string, number>;
  /** Of positions, by consumer. */
  readonly consumers: ReadonlyMap<string, number>;
}

/** Between the first of some looks and the last. */
export function ratesOf(moments: readonly Moment[]): Rates {
  const [first] = moments;
  const last = moments.at(-1);
  const nothing: Rates = { events: undefined, depths: new Map(), consumers: new Map() };
  if (first === undefined || last === undefined || last.atMs <= first.atMs) return nothing;
  const seconds = (last.atMs - first.atMs) / 1000;
  const grown = (from: bigint, to: bigint): number => Number(to - from) / seconds;
  const depths = new Map<string, number>();
  for (const queue of last.queues) {
    const before = first.queues.find(({ name }) => name === queue.name);
    if (before === undefined) continue;
    depths.set(queue.name, (depthOf(queue) - depthOf(before)) / seconds);
  }
  const consumers = new Map<string, number>();
  for (const { name, checkpoint } of last.status.consumers) {
    const before = first.status.consumers.find((one) => one.name === name);
    if (before !== undefined) consumers.set(name, grown(before.checkpoint, checkpoint));
  }
  const events = grown(first.status.latestPosition, last.status.latestPosition);
  return { events, depths, consumers };
}

/** What fits a terminal: what moves, most of it last. */
export function topLines({ status, queues }: Moment, rates: Rates): string[] {
  const { leader, latestPosition } = status;
  const led =
    leader.workerId === undefined
      ? colors.yellow("no leader")
      : `leader ${shortId(leader.workerId)} (term ${leader.term})`;
  const live = queues.reduce((sum, queue) => sum + depthOf(queue), 0);
  const running = queues.reduce((sum, queue) => sum + queue.running, 0);
  return [
    `position ${colors.bold(formatCount(latestPosition))}, ${perSecond(rates.events)} events/s · ` +
      `${formatCount(live)} live tasks, ${formatCount(running)} running · ${led}`,
    ...workerLines(status.workers),
    ...consumerLines(status.consumers, rates),
    ...queueLines(queues, rates),
  ];
}

/** The same in one line, for pipes. */
export function topLine({ status, queues }: Moment, rates: Rates): string {
  const active = status.workers.filter((one) => one.status === "active").length;
  return [
    `position ${formatCount(status.latestPosition)}`,
    `${perSecond(rates.events)} events/s`,
    `${active} workers`,
    ...status.consumers.map((one) => `${one.name} ${formatCount(one.lag)} behind`),
    ...queues.map((one) => `${one.name} ${formatCount(depthOf(one))} live${signed(one, rates)}`),
  ].join("  ");
}

function signed({ name }: QueueView, { depths }: Rates): string {
  const rate = depths.get(name);
  return rate === undefined ? "" : ` (${change(rate)}/s)`;
}

/** With one digit behind the point: a slow thing moves, too. */
const perSecond = (rate: number | undefined): string =>
  rate === undefined ? "-" : Math.max(0, rate).toFixed(1);

function change(rate: number | undefined): string {
  if (rate === undefined) return "-";
  const rounded = rate.toFixed(1).replace(/^-0\.0$/, "0.0");
  return rate > 0 && rounded !== "0.0" ? `+${rounded}` : rounded;
}

function workerLines(workers: readonly WorkerStatus[]): string[] {
  const shown = workers.filter(({ status }) => status !== "stopped");
  if (shown.length === 0) return ["", colors.yellow("No worker is running.")];
  const columns: Column<WorkerStatus>[] = [
    { title: "WORKER", value: (one) => shortId(one.id) },
    {
      title: "STATUS",
      value: (one) => (one.isLeader ? `${one.status}, leader` : one.status),
      paint: (text, one) => (one.status === "active" ? colors.green(text) : colors.yellow(text)),
    },
    { title: "PID", value: (one) => String(one.pid ?? "-"), align: "right" },
    { title: "SEEN", value: (one) => formatSeconds(one.heartbeatAgeSeconds), align: "right" },
    { title: "MEMORY", value: (one) => memoryOf(one), align: "right" },
    { title: "CONSUMERS", value: (one) => one.assigned.join(", ") || "-" },
  ];
  return ["", ...tableLines(shown, columns)];
}

function memoryOf({ load }: WorkerStatus): string {
  const bytes = load["rssBytes"];
  return typeof bytes === "number" ? `${formatCount(Math.round(bytes / 1024 ** 2))} MiB` : "-";
}

function consumerLines(consumers: readonly ConsumerStatus[], rates: Rates): string[] {
  if (consumers.length === 0) return [];
  const columns: Column<ConsumerStatus>[] = [
    { title: "CONSUMER", value: (one) => one.name },
    {
      title: "STATE",
      value: (one) => one.state,
      paint: (text, { state }) => (state === "running" ? colors.green(text) : colors.yellow(text)),
    },
    { title: "LAG", value: (one) => formatCount(one.lag), align: "right" },
    { title: "EVENTS/S", value: (one) => perSecond(rates.consumers.get(one.name)), align: "right" },
    { title: "TO HEAD", value: (one) => untilHead(one, rates), align: "right" },
    { title: "WORKER", value: (one) => shortId(one.workerId) },
  ];
  return ["", ...tableLines(consumers, columns)];
}

/** At this pace; nothing is said where it does not come closer. */
function untilHead({ name, lag }: ConsumerStatus, { consumers, events }: Rates): string {
  if (lag === 0n) return "there";
  const seconds = catchUpSeconds(Number(lag), consumers.get(name) ?? 0, events ?? 0);
  return seconds === undefined ? "-" : formatSeconds(seconds);
}

function queueLines(queues: readonly QueueView[], rates: Rates): string[] {
  if (queues.length === 0) return [];
  const columns: Column<QueueView>[] = [
    { title: "QUEUE", value: (one) => one.name },
    {
      title: "STATE",
      value: (one) => (one.isPaused ? "paused" : "open"),
      paint: (text, one) => (one.isPaused ? colors.yellow(text) : colors.green(text)),
    },
    { title: "LIVE", value: (one) => formatCount(depthOf(one)), align: "right" },
    { title: "CHANGE/S", value: (one) => change(rates.depths.get(one.name)), align: "right" },
    { title: "RUNNING", value: (one) => formatCount(one.running), align: "right" },
    { title: "OLDEST", value: oldestOf, align: "right" },
    {
      title: "DEAD",
      value: (one) => (one.dead === 0 ? "-" : formatCut(one.dead, one.isDeadCut)),
      align: "right",
      paint: (text, one) => (one.dead === 0 ? text : colors.red(text)),
    },
  ];
  return ["", ...tableLines(queues, columns)];
}

const oldestOf = ({ oldestPendingSeconds: age }: QueueView): string =>
  age === undefined ? "-" : formatSeconds(Math.max(0, age));
