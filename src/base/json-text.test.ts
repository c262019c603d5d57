import { describe, expect, it } from "vitest";
import { JsonText, writeJson } from "./json-text.ts";

describe("writeJson", () => {
  it("writes a JsonText as it was, digit by digit", () => {
    const text = '{ "n": 12345678901234567890, "f": 1.0 }';
    expect(writeJson({ list: [new JsonText(text)] })).toBe(`{"list":[${text}]}`);
  });

  it.each([
    [{ a: 1, b: undefined, c: null, d: [undefined, "x"] }],
    ['quote " and \u2028'],
    [new Date(0)],
    [Number.NaN],
    [[]],
    [{}],
  ])("writes %j as JSON.stringify does", (value) => {
    expect(writeJson(value)).toBe(JSON.stringify(value));
  });

  it("writes a bigint as a text, which no reader rounds", () => {
    expect(writeJson({ position: 12345678901234567890n })).toBe(
      '{"position":"12345678901234567890"}',
    );
  });

  it("writes nothing as null", () => {
    expect(writeJson(undefined)).toBe("null");
  });
});

describe("JsonText", () => {
  it("is its value for those who stringify it", () => {
    const json = new JsonText('{"a": [1]}');
    expect(json.value).toEqual({ a: [1] });
    expect(JSON.stringify({ json })).toBe('{"json":{"a":[1]}}');
  });
});
