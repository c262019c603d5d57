import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { InvalidInputError } from "../../base/errors.ts";
import { JsonText } from "../../base/json-text.ts";
import { type JsonRules, readJson } from "./json-body.ts";

const RULES: JsonRules = { depthMax: 8, keysMax: 20, verbatim: ["payload", "tasks[].payload"] };

function verbatim(text: string): string | undefined {
  const { payload } = readJson(text, RULES) as { payload: unknown };
  return payload instanceof JsonText ? payload.text : undefined;
}

describe("readJson", () => {
  it.each([
    ['{"payload": {"n": 12345678901234567890 } }', '{"n": 12345678901234567890 }'],
    ['{"a":"}","payload":1.0}', "1.0"],
    ['{"payload":\n[1, "]", {"payload": 2}]\n,"b":1}', '[1, "]", {"payload": 2}]'],
    ['{"payload":"a\\\\","b":"c"}', '"a\\\\"'],
    ['{"payload":"\\"}"}', '"\\"}"'],
    ['{"pay\\u006coad":true}', "true"],
    ['{"payload":1,"payload":2}', "2"],
    ['{"payload":null}', "null"],
  ])("keeps a member as it was written: %s", (text, payload) => {
    expect(verbatim(text)).toBe(payload);
  });

  it("keeps members of objects in a list, and parses what is around them", () => {
    const text = '{"queue":"q","tasks":[{"payload":1.50,"kind":"a"},{"kind":"b"},{"payload":[ ]}]}';
    expect(readJson(text, RULES)).toEqual({
      queue: "q",
      tasks: [
        { payload: new JsonText("1.50"), kind: "a" },
        { kind: "b" },
        { payload: new JsonText("[ ]") },
      ],
    });
  });

  it("keeps nothing that is deeper, or elsewhere", () => {
    const text = '{"other":{"payload":1.0},"tasks":{"0":{"payload":1.0}},"list":[[{"payload":1}]]}';
    expect(readJson(text, RULES)).toEqual(JSON.parse(text));
    expect(readJson('[{"payload":1}]', RULES)).toEqual([{ payload: 1 }]);
  });

  it.each([
    ["", /not JSON/],
    ["{", /not JSON/],
    ['{"payload":}', /not JSON/],
    ['{"payload":1', /not JSON/],
    ['"abc', /not JSON/],
    ["]]]]", /not JSON/],
    ['{"a" 1}', /not JSON/],
    ["NaN", /not JSON/],
    ["[".repeat(9), /nested deeper than 8/],
    ['{"a":'.repeat(100_000), /nested deeper than 8/],
    [`{${Array.from({ length: 21 }, (_, n) => `"${n}":1`).join()}}`, /more than 20 members/],
    ['{"__proto__":1}', /"__proto__", which is refused/],
    ['{"payload":{"a":[{"__proto__":{}}]}}', /"__proto__", which is refused/],
    ['{"\\u005f_proto__":1}', /"__proto__", which is refused/],
  ])("refuses %s", (text, says) => {
    const read = (): unknown => readJson(text, RULES);
    expect(read).toThrow(InvalidInputError);
    expect(read).toThrow(says);
  });

  it("keeps any JSON letter by letter, however it is written", () => {
    const rules = { ...RULES, depthMax: 100, keysMax: 100_000 };
    const spaced = fc.tuple(fc.json({ maxDepth: 4 }), fc.constantFrom(undefined, 1, "\t"));
    fc.assert(
      fc.property(spaced, fc.constantFrom("", " ", "\n\t"), ([json, space], blank) => {
        const payload = JSON.stringify(JSON.parse(json), null, space);
        fc.pre(!payload.includes("__proto__"));
        const text = `{"tasks":[{"payload":${blank}${payload}${blank}}],"payload":${payload}}`;
        const kept = new JsonText(payload);
        expect(readJson(text, rules)).toEqual({ tasks: [{ payload: kept }], payload: kept });
      }),
    );
  });

  it("never fails in another way than by refusing", () => {
    const parts = ["{", "}", "[", "]", '"', "\\", ":", ",", "1", "payload", '"tasks"', " "];
    fc.assert(
      fc.property(fc.array(fc.constantFrom(...parts), { maxLength: 40 }), (given) => {
        try {
          readJson(given.join(""), RULES);
        } catch (error) {
          expect(error).toBeInstanceOf(InvalidInputError);
        }
      }),
      { numRuns: 2_000 },
    );
  });
});
