import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { indentJson, rawMembers } from "./json-text.ts";

describe("rawMembers", () => {
  it("gives members as they were written", () => {
    const text =
      '{"id":"1","payload":{"n": 12345678901234567890, "s":"a,}\\"]"},"last":[1,{"x":2}]}';
    const members = rawMembers(text);
    expect(members.get("payload")).toBe('{"n": 12345678901234567890, "s":"a,}\\"]"}');
    expect(members.get("last")).toBe('[1,{"x":2}]');
    expect([...members.keys()]).toEqual(["id", "payload", "last"]);
  });

  it("gives every member of any object", () => {
    fc.assert(
      fc.property(fc.dictionary(fc.string(), fc.jsonValue()), (object) => {
        const members = rawMembers(JSON.stringify(object));
        const read = Object.entries(JSON.parse(JSON.stringify(object)) as object);
        expect([...members].map(([name, text]) => [name, JSON.parse(text) as unknown])).toEqual(
          read,
        );
      }),
    );
  });
});

describe("indentJson", () => {
  it("keeps every letter but blanks", () => {
    expect(indentJson('{"n":1.00,"a":[],"o":{"big":12345678901234567890}}')).toBe(
      '{\n  "n": 1.00,\n  "a": [],\n  "o": {\n    "big": 12345678901234567890\n  }\n}',
    );
  });

  it("writes what JSON.stringify does with two blanks", () => {
    fc.assert(
      fc.property(fc.jsonValue(), (value) => {
        const text = JSON.stringify(value);
        expect(indentJson(text)).toBe(JSON.stringify(JSON.parse(text), null, 2));
      }),
    );
  });
});
