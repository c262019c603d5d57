import { InvalidArgumentError } from "commander";
import { withoutUndefined } from "../base/options.ts";
import { isUuid } from "../base/uuid.ts";
import type { ColumnFamily, NamesOptions, TableOptions } from "../db/names.ts";
import type { Rate } from "../tasks/limits.ts";
import type { Priority } from "../tasks/priority.ts";
import type { ConnectOptions } from "../worker/connect.ts";
import { UsageError } from "./errors.ts";

/** Flags that every command takes. */
export interface GlobalFlags {
  readonly databaseUrl?: string;
  readonly directUrl?: string;
  readonly schema?: string;
  readonly columnFamily?: ColumnFamily;
  readonly eventsTable?: string;
  readonly streamHeadsTable?: string;
  readonly workerNodesTable?: string;
  readonly consumerAssignmentsTable?: string;
  readonly consumerCheckpointsTable?: string;
  readonly consumerGapSkipsTable?: string;
  readonly leaderElectionTable?: string;
  readonly debug?: boolean;
}

/** The address given by flag or environment; empty counts as not given. */
export function givenDatabaseUrl(flags: GlobalFlags): string | undefined {
  return flags.databaseUrl || process.env["DATABASE_URL"] || undefined;
}

export function requireDatabaseUrl(flags: GlobalFlags): string {
  const url = givenDatabaseUrl(flags);
  if (url !== undefined) return url;
  throw new UsageError(
    'no database: set DATABASE_URL or --database-url, or start one with "tidemill dev"',
  );
}

/** The names that the flags configure. */
export function namesOptions(flags: GlobalFlags): NamesOptions {
  const { schema, columnFamily } = flags;
  const tables = withoutUndefined({
    events: flags.eventsTable,
    streamHeads: flags.streamHeadsTable,
    workerNodes: flags.workerNodesTable,
    consumerAssignments: flags.consumerAssignmentsTable,
    consumerCheckpoints: flags.consumerCheckpointsTable,
    consumerGapSkips: flags.consumerGapSkipsTable,
    workerLeaderElection: flags.leaderElectionTable,
  }) as TableOptions;
  return { ...withoutUndefined({ schema, columnFamily }), tables };
}

/** What the library needs of the flags. */
export function connectOptions(flags: GlobalFlags): ConnectOptions {
  const { directUrl } = flags;
  return { ...namesOptions(flags), ...(directUrl === undefined ? {} : { directUrl }) };
}

/** For an option that takes a whole number in a range. */
export function wholeNumber(min: number, max: number): (text: string) => number {
  return (text) => {
    const value = Number(text);
    if (/^\d+$/.test(text) && value >= min && value <= max) return value;
    throw new InvalidArgumentError(`It must be a whole number from ${min} to ${max}.`);
  };
}

/** For an option that takes a position of the log. */
export function position(text: string): bigint {
  if (/^\d{1,18}$/.test(text)) return BigInt(text);
  throw new InvalidArgumentError("It must be a position: a whole number of at least 0.");
}

/** For an argument that names a task. */
export function taskId(text: string): string {
  if (/^[1-9]\d{0,17}$/.test(text)) return text;
  throw new InvalidArgumentError("It must be the number of a task.");
}

/** The same, for as many as are given. */
export function taskIds(text: string, before: readonly string[] = []): string[] {
  return [...before, taskId(text)];
}

/** For an option that takes a time in seconds, with a fraction if need be. */
export function seconds(text: string): number {
  if (/^\d+(\.\d+)?$/.test(text)) return Number(text);
  throw new InvalidArgumentError("It must be a number of seconds, such as 90 or 0.5.");
}

/** For an option that says how often. */
export function interval(text: string): number {
  const value = seconds(text);
  if (value >= 0.1 && value <= 3_600) return value;
  throw new InvalidArgumentError("It must be a number of seconds from 0.1 to 3600.");
}

const INSTANT = /^\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)$/;

/** For an option that takes an instant. Its offset is required: here may be another zone. */
export function instant(text: string): Date {
  const date = new Date(text.replace(" ", "T"));
  if (INSTANT.test(text) && !Number.isNaN(date.getTime())) return date;
  throw new InvalidArgumentError(
    "It must be an instant with its offset, such as 2026-01-31T09:00:00Z.",
  );
}

export function priority(text: string): Priority {
  if (/^\d$/.test(text)) return Number(text);
  if (text === "high" || text === "normal" || text === "low") return text;
  throw new InvalidArgumentError("It must be high, normal, low, or a number from 0 to 9.");
}

/** For a limit: a whole number, or none. */
export function concurrency(text: string): number | "none" {
  return text === "none" ? text : wholeNumber(0, 1_000_000)(text);
}

/** For a quota: a whole number, or none. */
export function amount(text: string): number | "none" {
  return text === "none" ? text : wholeNumber(0, Number.MAX_SAFE_INTEGER)(text);
}

/** For a limit: so many starts in so many seconds, or none. */
export function rate(text: string): Rate | "none" {
  if (text === "none") return text;
  const [, count = "", period = ""] = /^(\d+)\/(\d+(?:\.\d+)?)$/.exec(text) ?? [];
  const found = { count: Number(count), seconds: Number(period) };
  if (count !== "" && found.count > 0 && found.seconds > 0) return found;
  throw new InvalidArgumentError("It must be COUNT/SECONDS, such as 100/60, or none.");
}

/** For an option that takes several words, with commas. */
export function list(text: string): string[] {
  const words = text.split(",").map((word) => word.trim());
  if (words.every((word) => word !== "")) return [...new Set(words)];
  throw new InvalidArgumentError("It must be words with commas between them, such as a,b.");
}

const UNIT_SECONDS: Readonly<Record<string, number>> = { m: 60, h: 3_600, d: 86_400 };

/** For an option that takes a length of time, in seconds. */
export function duration(text: string): number {
  const [, count = "", unit = ""] = /^([1-9]\d{0,6})([mhd])$/.exec(text) ?? [];
  const seconds = UNIT_SECONDS[unit];
  if (seconds !== undefined) return Number(count) * seconds;
  throw new InvalidArgumentError("It must be a number of days, hours or minutes: 90d, 12h, 30m.");
}

/** For how long an old secret stays: the same, or not at all. */
export function overlap(text: string): number {
  return text === "none" ? 0 : duration(text);
}

/** For an argument that names a delivery of a webhook. */
export function deliveryId(text: string): string {
  if (isUuid(text)) return text;
  throw new InvalidArgumentError("It must be the id of a delivery, as webhook-id has it.");
}

/** The same, for as many as are given. */
export function deliveryIds(text: string, before: readonly string[] = []): string[] {
  return [...before, deliveryId(text)];
}

/** For an argument that names a subscription. */
export function subscriptionId(text: string): string {
  if (isUuid(text)) return text;
  throw new InvalidArgumentError('It must be an id, as "tidemill subscription list" shows it.');
}

/** For a header, given as often as there are some. */
export function header(
  text: string,
  before: Readonly<Record<string, string>> = {},
): Readonly<Record<string, string>> {
  const [, name = "", value = ""] = /^([^:\s]+):\s*(.*)$/.exec(text) ?? [];
  if (name !== "") return { ...before, [name.toLowerCase()]: value };
  throw new InvalidArgumentError("It must be a name and a text, such as X-Shop: 12.");
}

/** For answers of a target: a status, or some with commas. */
export function statuses(text: string): number[] {
  return list(text).map(wholeNumber(200, 599));
}

/** For an option that takes one of some words. */
export function oneOf<T extends string>(words: readonly T[]): (text: string) => T {
  return (text) => {
    const found = words.find((word) => word === text);
    if (found !== undefined) return found;
    throw new InvalidArgumentError(`It must be one of ${words.join(", ")}.`);
  };
}
