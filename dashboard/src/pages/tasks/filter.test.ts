import { expect, it } from "vitest";
import { concerns, readFilter, writeFilter } from "./filter.ts";
import { bodyOf } from "./payload-body.ts";

it("is the same after a trip through the address", () => {
  const filter = { queue: "new ones & others", state: "dead", partitionKey: "a/b?c" } as const;
  expect(readFilter(writeFilter(filter))).toEqual(filter);
  expect(writeFilter(readFilter("?state=nonsense"))).toBe("");
});

it("concerns what is shown, and what may come", () => {
  const filter = readFilter("?queue=mails");
  const shown = new Set(["1"]);
  expect(concerns(filter, { id: "9", queue: "mails" }, shown)).toBe(true);
  expect(concerns(filter, { id: "9", queue: "others" }, shown)).toBe(false);
  expect(concerns(filter, { id: "1", queue: "others" }, shown)).toBe(true);
});

it("sends a payload as it was typed, and refuses what is not JSON", () => {
  expect(bodyOf('{"n": 12345678901234567890}', false, "")).toBe(
    '{"payload":{"n": 12345678901234567890}}',
  );
  expect(bodyOf(" /wA= ", true, "a/b")).toBe('{"payloadBase64":"/wA=","contentType":"a/b"}');
  expect(() => bodyOf("{", false, "")).toThrow("This is not JSON");
  expect(() => bodyOf('1},"contentType":"x"', false, "")).toThrow("This is not JSON");
});
