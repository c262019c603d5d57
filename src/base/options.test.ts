import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { ConfigError } from "./errors.ts";
import { refuseUnknown, requireNumber, requireOneOf, withoutUndefined } from "./options.ts";

const messageFrom = (act: () => unknown): string => {
  try {
    act();
  } catch (error) {
    expect(error).toBeInstanceOf(ConfigError);
    return (error as Error).message;
  }
  throw new Error("nothing was refused");
};

describe("refuseUnknown", () => {
  it("accepts what is known", () => {
    refuseUnknown("worker", { batchSize: 1 }, ["batchSize"]);
  });

  it("proposes the option that was probably meant", () => {
    const message = messageFrom(() => refuseUnknown("worker", { batchsise: 1 }, ["batchSize"]));
    expect(message).toBe('unknown worker option "batchsise"; did you mean "batchSize"?');
  });

  it("lists what there is when nothing is near", () => {
    const message = messageFrom(() => refuseUnknown("worker", { colour: 1 }, ["a", "b"]));
    expect(message).toBe('unknown worker option "colour"; known are a, b');
  });

  it("does not take what every object inherits for an option", () => {
    const given = JSON.parse('{"__proto__": 1}') as object;
    expect(messageFrom(() => refuseUnknown("worker", given, ["a"]))).toContain("__proto__");
  });
});

describe("requireNumber", () => {
  it.each([
    [{ min: 1 }, "size must be a number of at least 1, not 0"],
    [{ max: -1 }, "size must be a number at most -1, not 0"],
    [{ min: 1, max: 9, integer: true }, "size must be a whole number of at least 1 and at most 9"],
  ])("says what %j allows", (rule, message) => {
    expect(messageFrom(() => requireNumber("size", 0, rule))).toContain(message);
  });

  it.each([Number.NaN, Number.POSITIVE_INFINITY, "5", null, undefined, 5n, 1.5])(
    "refuses %s as a whole number",
    (value) => {
      expect(() => requireNumber("size", value, { integer: true })).toThrow(ConfigError);
    },
  );

  it("returns exactly what it accepts", () => {
    fc.assert(
      fc.property(fc.integer({ min: -5, max: 15 }), (value) => {
        const check = (): number => requireNumber("size", value, { min: 0, max: 10 });
        if (value >= 0 && value <= 10) expect(check()).toBe(value);
        else expect(check).toThrow(ConfigError);
      }),
    );
  });
});

describe("requireOneOf", () => {
  it("accepts only what is listed", () => {
    expect(requireOneOf("mode", "b", ["a", "b"])).toBe("b");
    expect(messageFrom(() => requireOneOf("mode", "c", ["a", "b"]))).toBe(
      'mode must be "a" or "b", not "c"',
    );
  });
});

describe("withoutUndefined", () => {
  it("keeps every other value, also false, 0 and null", () => {
    expect(withoutUndefined({ a: undefined, b: 0, c: false, d: null })).toEqual({
      b: 0,
      c: false,
      d: null,
    });
  });

  it("lets defaults stand where undefined was given", () => {
    expect({ a: 1, ...withoutUndefined({ a: undefined }) }).toEqual({ a: 1 });
  });
});
