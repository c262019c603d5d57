import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { memberText } from "./job-text.ts";

describe("memberText", () => {
  it("gives a member letter by letter", () => {
    const text = '{"queue":"a","payload": {"n": 12345678901234567890, "x":[1, 2]} , "key":"k"}';
    expect(memberText(text, "payload")).toBe('{"n": 12345678901234567890, "x":[1, 2]}');
    expect(memberText(text, "queue")).toBe('"a"');
    expect(memberText(text, "other")).toBeUndefined();
  });

  it("does not take brackets, commas and quotes in strings for its own", () => {
    const text = String.raw`{"a":"}],\"payload\":1\\","payload":"\\\"{"}`;
    expect(memberText(text, "payload")).toBe(String.raw`"\\\"{"`);
  });

  it("knows a name that is written with escapes, and takes the last of two", () => {
    expect(memberText(String.raw`{"payload":1,"pay\u006coad":2}`, "payload")).toBe("2");
  });

  it("finds what JSON.parse finds, whatever the JSON", () => {
    const member = fc.tuple(fc.oneof(fc.constant("payload"), fc.string()), fc.jsonValue());
    fc.assert(
      fc.property(fc.array(member), fc.constantFrom("", " ", "\n\t "), (members, blank) => {
        const written = members.map(
          ([key, value]) => `${JSON.stringify(key)}${blank}:${blank}${JSON.stringify(value)}`,
        );
        const text = `${blank}{${blank}${written.join(`${blank},${blank}`)}${blank}}${blank}`;
        const parsed = JSON.parse(text) as Record<string, unknown>;
        const found = memberText(text, "payload");
        expect(found === undefined ? undefined : JSON.parse(found)).toEqual(
          Object.hasOwn(parsed, "payload") ? parsed["payload"] : undefined,
        );
      }),
    );
  });
});
