import { afterEach, describe, expect, it } from "vitest";
import { activeTrace, inTrace, readTrace } from "./trace-context.ts";

const PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

describe("headers", () => {
  it("are taken as they are when they make sense", () => {
    expect(readTrace(PARENT, null)).toEqual({ traceParent: PARENT });
    const traceState = "congo=t61rcWkgMzE";
    expect(readTrace(PARENT, traceState)).toEqual({ traceParent: PARENT, traceState });
    const later = `cc${PARENT.slice(2)}-what-the-future-brings`;
    expect(readTrace(later, undefined)).toEqual({ traceParent: later });
  });

  it.each([
    null,
    undefined,
    "",
    "x",
    7,
    PARENT.toUpperCase(),
    PARENT.slice(1),
    `ff${PARENT.slice(2)}`,
    "00-00000000000000000000000000000000-b7ad6b7169203331-01",
    "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
    `${PARENT}\n`,
    `${PARENT}-${"x".repeat(5_000)}`,
  ])("are ignored when they do not: %j", (parent) => {
    expect(readTrace(parent, "a=b")).toEqual({});
  });

  it("lose a state that makes no sense", () => {
    for (const state of ["", "a\u0000", "ä", "x".repeat(513), 1]) {
      expect(readTrace(PARENT, state)).toEqual({ traceParent: PARENT });
    }
  });
});

describe("without OpenTelemetry", () => {
  it("there is no trace, and work runs as it is", () => {
    expect(activeTrace()).toEqual({});
    expect(inTrace({ traceParent: PARENT }, () => 7)).toBe(7);
  });
});

describe("a propagator that throws", () => {
  const GLOBAL = Symbol.for("opentelemetry.js.api.1");
  afterEach(() => void Reflect.deleteProperty(globalThis, GLOBAL));

  it("keeps nothing from being stored, and nobody from running", () => {
    const fail = (): never => {
      throw new Error("broken");
    };
    const context = { active: () => ({}), with: (_: unknown, work: () => unknown) => work() };
    Reflect.set(globalThis, GLOBAL, { context, propagation: { inject: fail, extract: fail } });
    expect(activeTrace()).toEqual({});
    expect(inTrace({ traceParent: PARENT }, () => 7)).toBe(7);
  });
});
