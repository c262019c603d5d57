import fc from "fast-check";
import { expect, it } from "vitest";
import { joinArtifacts, splitArtifacts } from "./codeq-artifacts.ts";

const artifact = fc.record({ name: fc.string(), url: fc.string() });
const json = fc.oneof(fc.json(), fc.constant("12345678901234567890"), fc.constant('{ "a" : 1.0 }'));

it("gives back what was joined, letter by letter", () => {
  fc.assert(
    fc.property(json, fc.array(artifact, { minLength: 1, maxLength: 4 }), (result, artifacts) => {
      const stored = joinArtifacts({ result, artifacts });
      expect(() => void JSON.parse(stored ?? "")).not.toThrow();
      expect(splitArtifacts(stored)).toEqual({ result, artifacts });
    }),
  );
});

it("leaves a result without artifacts as it is", () => {
  fc.assert(
    fc.property(json, (result) => {
      expect(joinArtifacts({ result, artifacts: [] })).toBe(result);
      expect(splitArtifacts(result)).toEqual({ result, artifacts: [] });
    }),
  );
  expect(joinArtifacts({ result: undefined, artifacts: [] })).toBeUndefined();
  expect(splitArtifacts(null)).toEqual({ result: undefined, artifacts: [] });
});

it("keeps artifacts without a result", () => {
  const artifacts = [{ name: "log", url: "https://files.example.com/1" }];
  const stored = joinArtifacts({ result: undefined, artifacts });
  expect(splitArtifacts(stored)).toEqual({ result: "null", artifacts });
});

it.each([
  ['{"$artifacts":[{"name":"a","url":"b"}]}', "no result"],
  ['{"$artifacts":[{"name":"a","url":"b"}],"result":1,"more":2}', "more members"],
  ['{"$artifacts":[{"name":"a", "url":"b"}],"result":1}', "another way to write it"],
  ['{"$artifacts":[{"name":"a","url":7}],"result":1}', "other artifacts"],
  ['{"$artifacts":["a"],"result":1}', "artifacts that are none"],
  ['{"$artifacts":[', "no JSON"],
])("takes %s for a result of somebody's own: %s", (text) => {
  expect(splitArtifacts(text)).toEqual({ result: text, artifacts: [] });
});
