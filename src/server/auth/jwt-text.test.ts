import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { hasRepeatedName } from "./jwt-text.ts";

describe("a name that is there twice", () => {
  it.each([
    '{"a":1,"a":2}',
    '{"a":{"b":1},"c":[1,{"d":2}],"a":2}',
    '{"a":1,"\\u0061":2}',
    '{ "a" : "x,\\"y" , "a" : [ ] }',
    '{"":1,"":2}',
  ])("is found in %s", (json) => expect(hasRepeatedName(json)).toBe(true));

  it.each([
    "{}",
    '{"a":"a","b":"a"}',
    '{"a":["a","a"],"b":{"a":1}}',
    '{"a":{"b":1,"b":2}}',
    '{"a":"{\\"b\\":1,","b":",\\"a\\""}',
    '[{"a":1},{"a":2}]',
  ])("is not seen in %s", (json) => expect(hasRepeatedName(json)).toBe(false));

  it("is never seen in what a program wrote, and always where one was added", () => {
    const objects = fc.dictionary(fc.string(), fc.jsonValue(), { minKeys: 1 });
    fc.assert(
      fc.property(objects, fc.nat(), (value, at) => {
        const json = JSON.stringify(value);
        expect(hasRepeatedName(json)).toBe(false);
        const names = Object.keys(value);
        const again = JSON.stringify(names[at % names.length]);
        expect(hasRepeatedName(`{${again}:null,${json.slice(1)}`)).toBe(true);
      }),
    );
  });
});
