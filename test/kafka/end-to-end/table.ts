import type { Entry } from "./books.ts";
import { KINDS, kindOf } from "./jobs.ts";

const COLUMNS = ["jobs", "completed", "failed", "dead", "attempts", "calls"] as const;
type Row = Record<(typeof COLUMNS)[number], number>;

/** What became of the jobs of each kind. */
export function tableOf(entries: ReadonlyMap<string, Entry>): string {
  const empty = (): Row => ({
    jobs: 0,
    completed: 0,
    failed: 0,
    dead: 0,
    attempts: 0,
    calls: 0,
  });
  const rows = new Map(KINDS.map(({ does }) => [does, empty()]));
  const all = empty();
  for (const { n, state, attempt, calls } of entries.values()) {
    for (const row of [rows.get(kindOf(n).does) ?? empty(), all]) {
      row.jobs += 1;
      if (state === "completed" || state === "failed" || state === "dead") row[state] += 1;
      row.attempts += attempt;
      for (const some of calls.values()) row.calls += some.length;
    }
  }
  const lines = [...rows, ["all", all] as const].map(([does, row]) =>
    cells([does, ...COLUMNS.map((column) => row[column].toLocaleString("en"))]),
  );
  const head = [cells(["The target", ...COLUMNS]), cells(["---", ...COLUMNS.map(() => "---")])];
  return [...head, ...lines].join("\n");
}

const cells = (texts: readonly string[]): string => `| ${texts.join(" | ")} |`;
