/** One measured fact, in the format that every benchmark and proof prints. */
export interface Figure {
  readonly figure: string;
  readonly value: number;
  readonly unit: string;
  /** What `value` compares, when it is a ratio. */
  readonly ours?: number;
  readonly anchor?: number;
  readonly settings: Readonly<Record<string, unknown>>;
  /** What it must reach in a full run, if it must. */
  readonly bar?: Bar;
}

export type Bar = { readonly atLeast: number } | { readonly atMost: number };

/** How a figure misses its bar. Undefined when it does not. */
export function missOf({ figure, value, bar }: Figure): string | undefined {
  if (bar === undefined) return undefined;
  const [isMet, must] =
    "atLeast" in bar
      ? [value >= bar.atLeast, `at least ${bar.atLeast}`]
      : [value <= bar.atMost, `at most ${bar.atMost}`];
  return isMet ? undefined : `${figure} is ${round(value)} and must be ${must}`;
}

const round = (value: number): number => Number(value.toPrecision(4));

export function printFigure(figure: Figure, asJson: boolean): void {
  if (asJson) {
    process.stdout.write(
      `${JSON.stringify(figure, (_, v) => (typeof v === "number" ? round(v) : v))}\n`,
    );
    return;
  }
  const { figure: name, value, unit, ours, anchor } = figure;
  const compared =
    ours === undefined || anchor === undefined ? "" : `  (${round(ours)} / ${round(anchor)})`;
  process.stdout.write(
    `${name.padEnd(36)} ${String(round(value)).padStart(10)} ${unit}${compared}\n`,
  );
}

export function quantile(samples: readonly number[], q: number): number {
  const sorted = samples.toSorted((a, b) => a - b);
  const index = Math.min(sorted.length - 1, Math.floor(q * sorted.length));
  return sorted[index] ?? Number.NaN;
}

export const median = (samples: readonly number[]): number => quantile(samples, 0.5);
