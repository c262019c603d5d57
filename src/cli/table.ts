import { colors } from "./output.ts";

export interface Column<Row> {
  readonly title: string;
  readonly value: (row: Row) => string;
  /** Numbers read best with their ends in line. Defaults to "left". */
  readonly align?: "left" | "right";
  readonly paint?: (text: string, row: Row) => string;
}

/** Lines of a table with a header, columns as wide as their longest value. */
export function tableLines<Row>(rows: readonly Row[], columns: readonly Column<Row>[]): string[] {
  const cells = rows.map((row) => columns.map((column) => column.value(row)));
  const widths = columns.map(({ title }, index) =>
    Math.max(title.length, ...cells.map((line) => line[index]?.length ?? 0)),
  );
  const pad = (text: string, index: number): string => {
    const width = widths[index] ?? 0;
    return columns[index]?.align === "right" ? text.padStart(width) : text.padEnd(width);
  };
  const header = columns.map(({ title }, index) => colors.dim(pad(title, index))).join("  ");
  const body = rows.map((row, at) =>
    columns
      .map(({ paint }, index) => {
        const padded = pad(cells[at]?.[index] ?? "", index);
        return paint === undefined ? padded : paint(padded, row);
      })
      .join("  "),
  );
  return [header, ...body].map((line) => `  ${line.trimEnd()}`);
}

export function formatCount(count: bigint | number): string {
  return count.toLocaleString("en-US");
}

/** Of what is counted up to a bound only. */
export function formatCut(count: number, isCut: boolean): string {
  return `${formatCount(count)}${isCut ? " or more" : ""}`;
}

export function formatSeconds(seconds: number): string {
  if (seconds < 0.95) return `${Math.round(seconds * 10) / 10} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172_800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86_400)} d`;
}

/**
 * Enough of a worker's id to tell workers apart: it is random. The beginning, which a person may
 * type; the dashboard shortens it likewise.
 */
export function shortId(id: string | undefined): string {
  return id === undefined ? "-" : id.slice(0, 8);
}
