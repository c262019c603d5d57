import { describe, expect, it } from "vitest";
import { parse } from "yaml";
import { SOURCES, textOf } from "../../support/tidy/repository.ts";
import { readPage } from "./blocks.ts";

const RULES = "deploy/prometheus/tidemill.rules.yaml";
const BOARD = "deploy/grafana/tidemill.json";
const RUNBOOKS = "docs/operations/runbooks.md";

interface Metric {
  readonly kind: string;
  readonly labels: readonly string[];
}

/** By name: as the sources make them, with the labels that the reference says. */
const METRICS: ReadonlyMap<string, Metric> = new Map(
  Array.from(
    readPage("docs/reference/metrics.md").matchAll(
      /^\| `(tidemill_\w+)` +\| (\w+) +\| ([^|]*?) *\|/gm,
    ),
    ([, name = "", kind = "", labels = ""]): [string, Metric] => [
      name,
      { kind, labels: Array.from(labels.matchAll(/`(\w+)`/g), ([, label = ""]) => label) },
    ],
  ),
);

/** Labels that Prometheus adds. */
const ADDED = ["job", "instance", "le"];

/** What is wrong with an expression of PromQL about our metrics. */
function faultsOf(expression: string): string[] {
  const faults: string[] = [];
  const allowed = new Set(ADDED);
  const names = [...expression.matchAll(/\btidemill_\w+/g)];
  for (const { 0: name, index } of names) {
    const metric = METRICS.get(name) ?? METRICS.get(name.replace(/_(bucket|count|sum)$/, ""));
    if (metric === undefined) {
      faults.push(`there is no ${name}`);
      continue;
    }
    for (const label of metric.labels) allowed.add(label);
    const isPart = !METRICS.has(name);
    if (isPart !== (metric.kind === "histogram")) faults.push(`${name} is a ${metric.kind}`);
    const grows = isPart || metric.kind === "counter";
    const isRate = /\b(rate|increase)\($/.test(expression.slice(0, index));
    const isNew = /^(\{[^}]*\})? (unless|offset)\b/.test(expression.slice(index + name.length));
    if (grows && !isRate && !isNew) faults.push(`${name} only grows: take its rate`);
    if (!grows && isRate) faults.push(`${name} is a gauge: it has no rate`);
  }
  const used = [
    ...Array.from(expression.matchAll(/\b(?:by|on) \(([^)]*)\)/g), ([, list = ""]) =>
      list.split(",").map((label) => label.trim()),
    ).flat(),
    ...Array.from(expression.matchAll(/[{,] *(\w+)(?:=~|!~|!=|=)"/g), ([, label = ""]) => label),
  ].filter((label) => label !== "");
  if (names.length > 0) {
    faults.push(...used.filter((label) => !allowed.has(label)).map((label) => `no label ${label}`));
  }
  if (count(expression, "(") !== count(expression, ")")) faults.push("parentheses do not match");
  return faults.map((fault) => `${fault}: ${expression}`);
}

const count = (text: string, part: string): number => text.split(part).length - 1;

it("the reference describes the metrics of the sources, and no others", () => {
  const made = SOURCES.flatMap((file) =>
    Array.from(
      textOf(file).matchAll(/new (?:Asked)?(Counter|Gauge|Histogram)\(\s*"(tidemill_\w+)"/g),
      ([, kind = "", name = ""]) => `${name} ${kind.toLowerCase()}`,
    ),
  );
  const described = Array.from(METRICS, ([name, { kind }]) => `${name} ${kind}`);
  expect(described.toSorted()).toEqual(made.toSorted());
});

describe("alerts", () => {
  interface Rule {
    readonly alert: string;
    readonly expr: string;
    readonly labels: { readonly severity: string };
    readonly annotations: Readonly<Record<string, string>>;
  }
  const { groups } = parse(readPage(RULES)) as { groups: { name: string; rules: Rule[] }[] };
  const rules = groups.flatMap((group) => group.rules);

  it("ask for metrics and labels that exist", () => {
    expect(rules.length).toBeGreaterThan(20);
    expect(rules.flatMap(({ expr }) => faultsOf(expr))).toEqual([]);
    for (const { alert, labels, annotations, expr } of rules) {
      expect(["critical", "warning"], alert).toContain(labels.severity);
      const told = `${annotations["summary"]} ${annotations["description"]}`;
      const labelled = Array.from(told.matchAll(/\$labels\.(\w+)/g), ([, label = ""]) => label);
      const kept = /\bby \(([^)]*)\)/.exec(expr)?.[1]?.split(", ") ?? ["instance"];
      expect(kept, alert).toEqual(expect.arrayContaining(labelled));
    }
  });

  it("have a runbook each, with its four answers, and the page of alerts has them", () => {
    const sections = new Map(
      readPage(RUNBOOKS)
        .split(/^## /m)
        .slice(1)
        .map((text): [string, string] => [text.split("\n")[0] ?? "", text]),
    );
    const names = rules.map(({ alert }) => alert);
    expect([...sections.keys()].filter((name) => name.startsWith("Tidemill"))).toEqual(names);
    for (const { alert, annotations } of rules) {
      expect(annotations["runbook"]).toBe(`${RUNBOOKS}#${alert.toLowerCase()}`);
      const text = sections.get(alert) ?? "";
      for (const part of ["**Means.**", "**Look.**", "**Do.**", "**Over when**"]) {
        expect(text, alert).toContain(part);
      }
      expect(readPage("docs/operations/alerts.md")).toContain(
        `[${alert}](runbooks.md#${alert.toLowerCase()})`,
      );
    }
  });

  it("would be found wrong", () => {
    expect(faultsOf("tidemill_no_such_thing > 0")).toHaveLength(1);
    expect(faultsOf("tidemill_quarantines_total > 0")).toHaveLength(1);
    expect(faultsOf("rate(tidemill_streams[5m])")).toHaveLength(1);
    expect(faultsOf('sum by (queue) (rate(tidemill_batches_total{kind="x"}[5m]))')).toHaveLength(2);
    expect(faultsOf("tidemill_batch_seconds > 1")).toHaveLength(1);
  });
});

describe("the Grafana board", () => {
  interface Panel {
    readonly id: number;
    readonly title: string;
    readonly type: string;
    readonly gridPos: { readonly x: number; readonly y: number; readonly w: number };
    readonly targets?: readonly { readonly expr: string; readonly legendFormat: string }[];
  }
  interface Variable {
    readonly name: string;
    readonly definition?: string;
  }
  const board = JSON.parse(readPage(BOARD)) as {
    panels: Panel[];
    templating: { list: Variable[] };
  };

  it("asks for metrics and labels that exist", () => {
    const expressions = board.panels.flatMap(({ targets = [] }) => targets.map(({ expr }) => expr));
    expect(expressions.length).toBeGreaterThan(40);
    expect(expressions.flatMap((expr) => faultsOf(expr))).toEqual([]);
    for (const { targets = [] } of board.panels) {
      for (const { expr, legendFormat } of targets) {
        const shown = Array.from(
          legendFormat.matchAll(/\{\{(\w+)\}\}/g),
          ([, label = ""]) => label,
        );
        for (const label of shown.filter((one) => one !== "instance")) {
          expect(expr).toMatch(new RegExp(`\\bby \\([^)]*\\b${label}\\b`));
        }
      }
    }
  });

  it("uses variables that it has, and panels that do not overlap", () => {
    const known = board.templating.list.map(({ name }) => name);
    const written = JSON.stringify(board.panels).matchAll(/\$\{?(?!__)(\w+)/g);
    const used = new Set(Array.from(written, ([, name = ""]) => name));
    expect([...used].toSorted()).toEqual(known.toSorted());
    const places = board.panels.map(({ gridPos: { x, y } }) => `${x},${y}`);
    expect(new Set(places).size).toBe(places.length);
    expect(new Set(board.panels.map(({ id }) => id)).size).toBe(places.length);
    for (const { gridPos } of board.panels) expect(gridPos.x + gridPos.w).toBeLessThanOrEqual(24);
  });
});

it("the page of sizing quotes the committed figures, a fifth more or less", () => {
  const committed = new Map(
    ["log", "tasks"]
      .flatMap((suite) => readPage(`bench/figures/${suite}.jsonl`).trim().split("\n"))
      .map((line) => JSON.parse(line) as { figure: string; value: number })
      .map(({ figure, value }) => [figure, value]),
  );
  const page = readPage("docs/operations/sizing.md");
  const number = (text: string): number => Number(text.replaceAll(",", ""));
  const quoted = [
    ...Array.from(
      page.matchAll(/^\| `([a-z]+\.\w+)` \| ([\d.,]+) \|/gm),
      ([, figure = "", text = ""]) => ({ figure, value: number(text) }),
    ),
    ...Array.from(
      page.matchAll(/([\d.,]+) MiB \(`([a-z]+\.\w+)`\)/g),
      ([, text = "", figure = ""]) => ({ figure, value: number(text) }),
    ),
  ];
  expect(quoted.length).toBeGreaterThan(11);
  for (const { figure, value } of quoted) {
    const measured = committed.get(figure) ?? Number.NaN;
    expect(Math.abs(value / measured - 1), `${figure}: ${measured}`).toBeLessThan(0.2);
  }
  // As small as its noise, so the page gives a bound.
  expect(page).toContain("`tasks.held_snapshot_loss` says that a snapshot held for a minute costs");
  expect(page).toContain("costs less than a twentieth of the throughput");
  expect(committed.get("tasks.held_snapshot_loss")).toBeLessThan(0.05);
});
