import { describe, expect, it } from "vitest";
import { applyEdit, applyEdits } from "./edits.ts";

const edit = (find: string, replace: string) => ({ file: "one.ts", find, replace });

describe("an edit", () => {
  it("replaces its text, whatever characters the replacement has", () => {
    expect(applyEdit("a = $1;", edit("$1", "$&$2"))).toBe("a = $&$2;");
  });

  it("is refused when its text is not there, or there twice", () => {
    expect(() => applyEdit("abc", edit("x", "y"))).toThrow("one.ts has this 0 times");
    expect(() => applyEdit("abab", edit("ab", "y"))).toThrow("one.ts has this 2 times");
  });
});

describe("edits", () => {
  it("of one file build on each other, and others are left alone", () => {
    const texts = applyEdits([edit("a", "b"), edit("b", "c")], () => "a");
    expect([...texts]).toEqual([["one.ts", "c"]]);
  });
});
