import { describe, expect, it } from "vitest";
import { Counter, Gauge, Histogram } from "./metrics.ts";

describe("Counter", () => {
  it("adds up by labels", () => {
    const counter = new Counter("things_total", "Things.");
    counter.add();
    counter.add(2, { kind: "a" });
    counter.add(3, { kind: "a" });
    expect([counter.value(), counter.value({ kind: "a" }), counter.value({ kind: "b" })]).toEqual([
      1, 5, 0,
    ]);
  });

  it("is written as Prometheus reads it", () => {
    const counter = new Counter("things_total", "Things.");
    counter.add(2, { kind: "a", of: "b" });
    expect(counter.text()).toBe(
      '# HELP things_total Things.\n# TYPE things_total counter\nthings_total{kind="a",of="b"} 2',
    );
  });

  it("keeps a label that tries to break out in its place", () => {
    const counter = new Counter("things_total", "Things.");
    counter.add(1, { kind: 'a"} 9\nother_total{x="\\' });
    expect(counter.text().split("\n")).toHaveLength(3);
    expect(counter.text()).toContain('{kind="a\\"} 9\\nother_total{x=\\"\\\\"} 1');
  });
});

describe("Gauge", () => {
  it("is what it was set to last, until it is removed", () => {
    const gauge = new Gauge("level", "Level.");
    gauge.set(3, { of: "a" });
    gauge.set(1, { of: "a" });
    expect(gauge.value({ of: "a" })).toBe(1);
    gauge.remove({ of: "a" });
    expect(gauge.value({ of: "a" })).toBeUndefined();
    expect(gauge.text()).toBe("# HELP level Level.\n# TYPE level gauge");
  });
});

describe("Histogram", () => {
  it("counts each value in every bucket that holds it", () => {
    const histogram = new Histogram("wait_seconds", "Wait.");
    for (const seconds of [0.0005, 0.02, 0.02, 99]) histogram.observe(seconds, { of: "a" });
    const lines = histogram.text().split("\n");
    expect(lines).toContain('wait_seconds_bucket{of="a",le="0.0005"} 1');
    expect(lines).toContain('wait_seconds_bucket{of="a",le="0.01"} 1');
    expect(lines).toContain('wait_seconds_bucket{of="a",le="0.025"} 3');
    expect(lines).toContain('wait_seconds_bucket{of="a",le="30"} 3');
    expect(lines).toContain('wait_seconds_bucket{of="a",le="+Inf"} 4');
    expect(lines).toContain('wait_seconds_count{of="a"} 4');
    expect(lines.find((line) => line.startsWith("wait_seconds_sum"))).toMatch(/ 99\.0405/);
  });
});
