import type { Comparison, TableComparison } from "../consumers/rebuild/compare.ts";
import type { RebuildStatus } from "../consumers/rebuild/status.ts";
import { colors } from "./output.ts";
import { formatCount, formatSeconds, tableLines } from "./table.ts";
import { shown } from "./text.ts";

const BAR = 24;

/** One line: how far, how fast, how long. */
export function progressLine({ consumer, state, progress }: RebuildStatus): string {
  if (progress === undefined) return `${consumer}  ${state.replace("_", " ")}`;
  const { position, head, share, positionsPerSecond: rate, etaSeconds, stopped } = progress;
  const done = Math.floor(share * BAR);
  const bar = `${"█".repeat(done)}${"░".repeat(BAR - done)}`;
  const percent = `${(Math.floor(share * 1000) / 10).toFixed(1)} %`.padStart(7);
  const speed = rate === undefined ? "" : `  ${formatCount(Math.round(rate))}/s`;
  const left = etaSeconds === undefined || share === 1 ? "" : `  ${formatSeconds(etaSeconds)} left`;
  const halt = stopped === undefined ? "" : `  ${stopped}`;
  const where = `${formatCount(position)} of ${formatCount(head)}`;
  return `${consumer}  ${bar} ${percent}  ${where}${speed}${left}${halt}`;
}

export function rebuildLines(status: RebuildStatus): string[] {
  const { id, state, schema, tables, reason, progress, partitions, startedAt, changedAt } = status;
  const kept = state === "swapped" ? "from before" : "rebuilt";
  const lines = [
    progressLine(status),
    `  rebuild ${id}, ${state.replace("_", " ")} since ${changedAt.toISOString()}` +
      `, started ${startedAt.toISOString()}`,
    `  tables ${tables.join(", ")}; those ${kept} are in schema ${schema}`,
  ];
  if (reason !== undefined) lines.push(`  reason: ${shown(reason)}`);
  if (progress?.error !== undefined) lines.push(`  ${colors.red(shown(progress.error))}`);
  if (partitions.length > 1) {
    const table = tableLines(partitions, [
      { title: "PARTITION", value: (one) => one.name },
      { title: "STATE", value: (one) => one.state },
      { title: "POSITION", value: (one) => formatCount(one.checkpoint), align: "right" },
    ]);
    lines.push("", ...table);
  }
  return lines;
}

export function comparisonLines({ position, isSame, tables }: Comparison): string[] {
  const count = (value: (one: TableComparison) => number) => (one: TableComparison) =>
    one.compared === "counts" ? "-" : formatCount(value(one));
  const lines = tableLines(tables, [
    { title: "TABLE", value: (one) => one.table },
    { title: "LIVE", value: (one) => formatCount(one.liveRows), align: "right" },
    { title: "REBUILT", value: (one) => formatCount(one.rebuiltRows), align: "right" },
    { title: "MISSING", value: count((one) => one.missing), align: "right" },
    { title: "EXTRA", value: count((one) => one.extra), align: "right" },
    { title: "DIFFERENT", value: count((one) => one.different), align: "right" },
    { title: "COMPARED", value: (one) => one.compared },
  ]);
  const verdict = isSame ? colors.green("the same") : colors.yellow("not the same");
  const examples = tables.flatMap(({ table, examples: all }) =>
    all.flatMap(({ kind, key, live, rebuilt }) => [
      `  ${kind} in ${table}: ${shown(key)}`,
      ...(live === undefined ? [] : [`    live     ${shown(live)}`]),
      ...(rebuilt === undefined ? [] : [`    rebuilt  ${shown(rebuilt)}`]),
    ]),
  );
  const found = examples.length === 0 ? [] : ["", ...examples];
  return [`At position ${position} both sides are ${verdict}.`, "", ...lines, ...found];
}
