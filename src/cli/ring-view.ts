import { BUCKETS, type BucketMove, bucketOf, simulateChange } from "../cluster/ring.ts";
import type { RingView } from "../tasks/queue-admin.ts";
import { DEFAULT_TENANT } from "../tasks/task.ts";
import { colors } from "./output.ts";
import { type Column, shortId, tableLines } from "./table.ts";
import { many, shown } from "./text.ts";

const MARKS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
const MARK_OF_MORE = "+";
const MARK_OF_NONE = ".";
const MAP_COLUMNS = 60;

/** Workers that would come, or the one that would go. */
export type SupposedChange = { readonly join: number } | { readonly leave: string };

export interface RingQuestion {
  readonly key: string | undefined;
  readonly change: SupposedChange | undefined;
}

/** One key space, and the answers to what was asked about it. */
export interface RingReport extends RingView {
  /** Buckets of the least and of the most loaded owner. */
  readonly spread: { readonly least: number; readonly most: number };
  readonly key: KeyPlace | undefined;
  readonly moves: readonly BucketMove[] | undefined;
}

export interface KeyPlace {
  readonly key: string;
  readonly bucket: number;
  readonly owner: string | undefined;
  /** After the supposed change. */
  readonly ownerAfter: string | undefined;
}

export function ringReport(space: RingView, { key, change }: RingQuestion): RingReport {
  const before = ownersOf(space);
  const after = change === undefined ? before : ownersAfter(before, change);
  const counts = space.owners.map(({ buckets }) => buckets.length);
  const bucket = bucketOf(key ?? "");
  return {
    ...space,
    owners: [...space.owners].sort((a, b) => (a.worker < b.worker ? -1 : 1)),
    spread: { least: Math.min(BUCKETS, ...counts), most: Math.max(0, ...counts) },
    key:
      key === undefined
        ? undefined
        : { key, bucket, owner: before.get(bucket), ownerAfter: after.get(bucket) },
    moves: change === undefined ? undefined : movesBetween(before, after),
  };
}

function ownersOf({ owners }: RingView): Map<number, string> {
  return new Map(
    owners.flatMap(({ worker, buckets }) => buckets.map((bucket) => [bucket, worker] as const)),
  );
}

/** Those who join come one after the other, as the leader would see them. */
function ownersAfter(before: Map<number, string>, change: SupposedChange): Map<number, string> {
  const changes =
    "leave" in change
      ? [change]
      : Array.from({ length: change.join }, (_, index) => ({ join: newcomer(index + 1) }));
  const after = new Map(before);
  for (const one of changes) {
    for (const { bucket, to } of simulateChange(after, one)) {
      if (to === undefined) after.delete(bucket);
      else after.set(bucket, to);
    }
  }
  return after;
}

function newcomer(number: number): string {
  return `new-${number}`;
}

function movesBetween(before: Map<number, string>, after: Map<number, string>): BucketMove[] {
  return Array.from({ length: BUCKETS }, (_, bucket) => ({
    bucket,
    from: before.get(bucket),
    to: after.get(bucket),
  })).filter(({ from, to }) => from !== to);
}

interface Line {
  readonly mark: string;
  readonly worker: string;
  readonly buckets: number;
  readonly gained: number;
  readonly lost: number;
}

/** Key spaces that are owned alike, as most are, share one picture. */
export function ringsLines(reports: readonly RingReport[]): string[] {
  const alike = new Map<string, RingReport[]>();
  for (const report of reports) {
    const owned = JSON.stringify(report.owners.map(({ worker, buckets }) => [worker, buckets]));
    alike.set(owned, [...(alike.get(owned) ?? []), report]);
  }
  return [...alike.values()].flatMap((group, index) => [
    ...(index === 0 ? [] : [""]),
    ...groupLines(group),
  ]);
}

function groupLines(group: readonly RingReport[]): string[] {
  const [report] = group;
  if (report === undefined) return [];
  const { owners, spread, key, moves } = report;
  const title = `Key space${group.length === 1 ? "" : "s"} ${group.map(nameOf).join(", ")}`;
  const total = owners.reduce((sum, one) => sum + one.buckets.length, 0);
  const keyed = key === undefined ? [] : [`  ${keyText(key, moves !== undefined)}`];
  if (total === 0 && moves === undefined) {
    return [`${title}: no worker owns the ${BUCKETS} buckets`, ...keyed];
  }
  const range = spread.least < spread.most ? `${spread.least} to ${spread.most}` : spread.most;
  const how = total === 0 ? "" : `, ${range} buckets each`;
  const unowned = total < BUCKETS ? colors.yellow(`, ${BUCKETS - total} without an owner`) : "";
  const lines = workerLines(report);
  return [
    `${title}: ${many(owners.length, "worker")}${how}${unowned}`,
    ...tableLines(lines, columnsOf(moves !== undefined)),
    ...(moves === undefined ? [] : [`  ${moves.length} of ${BUCKETS} buckets would move.`]),
    ...keyed,
    "",
    ...mapLines(report, lines),
  ];
}

/** With its queues, unless it is the space of one queue's own, and whose it is. */
function nameOf({ keySpace, tenant, queues }: RingReport): string {
  const isOwn = queues.every((name) => name === keySpace);
  const whose = tenant === DEFAULT_TENANT ? "" : ` of ${shown(tenant)}`;
  return `${colors.bold(keySpace)}${isOwn ? "" : ` (${queues.join(", ")})`}${whose}`;
}

function workerLines({ owners, moves = [] }: RingReport): Line[] {
  const known = owners.map((one) => one.worker);
  const owning = new Set(moves.flatMap(({ to }) => to ?? []));
  const newcomers = [...owning]
    .filter((to) => !known.includes(to))
    .sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
  return [...known, ...newcomers].map((worker, index) => ({
    mark: MARKS[index] ?? MARK_OF_MORE,
    worker,
    buckets: owners.find((one) => one.worker === worker)?.buckets.length ?? 0,
    gained: moves.filter(({ to }) => to === worker).length,
    lost: moves.filter(({ from }) => from === worker).length,
  }));
}

function columnsOf(isSupposed: boolean): Column<Line>[] {
  const signed = (sign: string, count: number): string => (count === 0 ? "-" : `${sign}${count}`);
  const columns: Column<Line>[] = [
    { title: "", value: (one) => one.mark },
    { title: "WORKER", value: (one) => one.worker },
    { title: "BUCKETS", value: (one) => String(one.buckets), align: "right" },
  ];
  if (!isSupposed) return columns;
  return [
    ...columns,
    { title: "LOSES", value: (one) => signed("-", one.lost), align: "right" },
    { title: "GAINS", value: (one) => signed("+", one.gained), align: "right" },
    {
      title: "THEN",
      value: (one) => String(one.buckets - one.lost + one.gained),
      align: "right",
    },
  ];
}

/** Rows of buckets, each a mark of its owner; what would move is marked with who gets it. */
function mapLines({ owners, moves = [] }: RingReport, lines: readonly Line[]): string[] {
  const marks = new Map(lines.map(({ worker, mark }) => [worker, mark]));
  const marked: string[] = Array.from({ length: BUCKETS }, () => MARK_OF_NONE);
  for (const { worker, buckets } of owners) {
    for (const bucket of buckets) marked[bucket] = marks.get(worker) ?? MARK_OF_MORE;
  }
  for (const { bucket, to } of moves) {
    marked[bucket] = colors.inverse(marks.get(to ?? "") ?? MARK_OF_NONE);
  }
  return Array.from({ length: BUCKETS / MAP_COLUMNS }, (_, row) => {
    const start = row * MAP_COLUMNS;
    const label = colors.dim(String(start).padStart(3));
    return `  ${label} ${marked.slice(start, start + MAP_COLUMNS).join("")}`;
  });
}

function keyText({ key, bucket, owner, ownerAfter }: KeyPlace, isSupposed: boolean): string {
  const who = owner === undefined ? "which nobody owns" : `owned by ${shortId(owner)}`;
  const isMoved = isSupposed && owner !== ownerAfter;
  const moved = isMoved
    ? `; then by ${ownerAfter === undefined ? "nobody" : shortId(ownerAfter)}`
    : "";
  return `Key ${shown(key)} is in bucket ${bucket}, ${who}${moved}.`;
}
