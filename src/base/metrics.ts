export type Labels = Readonly<Record<string, string>>;

interface Series {
  readonly labels: string;
  value: number;
}

export interface HistogramSeries {
  readonly labels: Labels;
  readonly counts: Float64Array;
  sum: number;
}

const DURATION_BUCKETS = [
  0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30,
];

/** A value that only grows. */
export class Counter {
  readonly #series = new Map<string, Series>();
  readonly name: string;
  readonly help: string;

  constructor(name: string, help: string) {
    this.name = name;
    this.help = help;
  }

  add(amount = 1, labels: Labels = {}): void {
    seriesOf(this.#series, labels).value += amount;
  }

  /** One series, found once: for what is counted thousands of times a second. */
  series(labels: Labels): { value: number } {
    return seriesOf(this.#series, labels);
  }

  value(labels: Labels = {}): number {
    return this.#series.get(render(labels))?.value ?? 0;
  }

  text(): string {
    return exposition(this.name, this.help, "counter", this.#series.values());
  }
}

/** A value that is what it is now. */
export class Gauge {
  readonly #series = new Map<string, Series>();
  readonly name: string;
  readonly help: string;

  constructor(name: string, help: string) {
    this.name = name;
    this.help = help;
  }

  set(value: number, labels: Labels = {}): void {
    seriesOf(this.#series, labels).value = value;
  }

  /** One series, found once: for what changes thousands of times a second. */
  series(labels: Labels): { value: number } {
    return seriesOf(this.#series, labels);
  }

  remove(labels: Labels): void {
    this.#series.delete(render(labels));
  }

  value(labels: Labels = {}): number | undefined {
    return this.#series.get(render(labels))?.value;
  }

  text(): string {
    return exposition(this.name, this.help, "gauge", this.#series.values());
  }
}

/** A value that changes by itself: its sources are asked for it when somebody looks. */
export class AskedGauge {
  readonly #sources = new Set<() => number>();
  readonly name: string;
  readonly help: string;

  constructor(name: string, help: string) {
    this.name = name;
    this.help = help;
  }

  /** What all sources say is added up. Returns what ends it. */
  ask(source: () => number): () => void {
    this.#sources.add(source);
    return () => {
      this.#sources.delete(source);
    };
  }

  /** Undefined when nobody is there to be asked. */
  value(): number | undefined {
    if (this.#sources.size === 0) return undefined;
    return Array.from(this.#sources, (source) => source()).reduce((sum, one) => sum + one, 0);
  }

  text(): string {
    const value = this.value();
    const series = value === undefined ? [] : [{ labels: "", value }];
    return exposition(this.name, this.help, "gauge", series);
  }
}

/** Durations in seconds, in fixed buckets. */
export class Histogram {
  readonly #series = new Map<string, HistogramSeries>();
  readonly name: string;
  readonly help: string;

  constructor(name: string, help: string) {
    this.name = name;
    this.help = help;
  }

  observe(seconds: number, labels: Labels = {}): void {
    this.observeIn(this.series(labels), seconds);
  }

  /** One series, found once: for what is observed thousands of times a second. */
  series(labels: Labels): HistogramSeries {
    const key = render(labels);
    let series = this.#series.get(key);
    if (series === undefined) {
      series = { labels, counts: new Float64Array(DURATION_BUCKETS.length + 1), sum: 0 };
      this.#series.set(key, series);
    }
    return series;
  }

  observeIn(series: HistogramSeries, seconds: number): void {
    let bucket = 0;
    while (seconds > (DURATION_BUCKETS[bucket] ?? Infinity)) bucket += 1;
    series.counts[bucket] = (series.counts[bucket] ?? 0) + 1;
    series.sum += seconds;
  }

  text(): string {
    const lines = [`# HELP ${this.name} ${this.help}`, `# TYPE ${this.name} histogram`];
    for (const { labels, counts, sum } of this.#series.values()) {
      let total = 0;
      for (const [index, limit] of [...DURATION_BUCKETS, "+Inf"].entries()) {
        total += counts[index] ?? 0;
        lines.push(`${this.name}_bucket${render({ ...labels, le: String(limit) })} ${total}`);
      }
      lines.push(`${this.name}_sum${render(labels)} ${sum}`);
      lines.push(`${this.name}_count${render(labels)} ${total}`);
    }
    return lines.join("\n");
  }
}

function seriesOf(all: Map<string, Series>, labels: Labels): Series {
  const key = render(labels);
  let series = all.get(key);
  if (series === undefined) {
    series = { labels: key, value: 0 };
    all.set(key, series);
  }
  return series;
}

function render(labels: Labels): string {
  const pairs = Object.entries(labels);
  if (pairs.length === 0) return "";
  const escape = (text: string): string =>
    text.replaceAll("\\", "\\\\").replaceAll('"', '\\"').replaceAll("\n", "\\n");
  return `{${pairs.map(([key, value]) => `${key}="${escape(value)}"`).join(",")}}`;
}

function exposition(name: string, help: string, type: string, all: Iterable<Series>): string {
  const lines = [`# HELP ${name} ${help}`, `# TYPE ${name} ${type}`];
  for (const series of all) lines.push(`${name}${series.labels} ${series.value}`);
  return lines.join("\n");
}
