import type { Series } from "./plot.tsx";

const COLORS = { 1: "var(--series-1)", 2: "var(--series-2)", 3: "var(--series-3)" } as const;

export interface LegendItem extends Pick<Series, "label" | "color"> {
  readonly value: string;
}

/** What the lines are, and where they are now. */
export function Legend({ items }: { items: readonly LegendItem[] }) {
  return (
    <ul className="flex flex-wrap gap-x-4 gap-y-1 text-xs">
      {items.map(({ label, color, value }) => (
        <li key={label} className="flex items-center gap-1.5">
          <svg width="10" height="10" aria-hidden="true">
            <rect width="10" height="10" rx="2" fill={COLORS[color]} />
          </svg>
          <span className="text-muted">{label}</span>
          <span className="font-medium">{value}</span>
        </li>
      ))}
    </ul>
  );
}
