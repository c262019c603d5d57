import { describe, expect, it } from "vitest";
import type { TaskChange } from "../../live/events.ts";
import { concernsList, readFilter, writeFilter } from "./filter.ts";
import { bodyOf } from "./payload-body.ts";

it("is the same after a trip through the address", () => {
  const filter = { queue: "new ones & others", state: "dead", partitionKey: "a/b?c" } as const;
  expect(readFilter(writeFilter(filter))).toEqual(filter);
  expect(writeFilter(readFilter("?state=nonsense"))).toBe("");
});

describe("a list", () => {
  const filter = readFilter("?queue=mails");
  const shown = new Set(["1"]);

  it("is concerned by what it shows, and by what may come", () => {
    const isConcerned = (id: string, queue: string): boolean => {
      const at = "2026-01-31T09:00:00Z";
      const change: TaskChange = { id, queue, tenant: "acme", state: "pending", attempt: 0, at };
      return concernsList(filter, { isComplete: true, changes: [change], counts: [] }, shown);
    };
    expect(isConcerned("9", "mails")).toBe(true);
    expect(isConcerned("9", "others")).toBe(false);
    expect(isConcerned("1", "others")).toBe(true);
  });

  it("is concerned by counts of its queue, and by those that name none", () => {
    const isConcerned = (queue: string | null): boolean => {
      const counts = [{ queue, state: "pending", count: 1 }] as const;
      return concernsList(filter, { isComplete: false, changes: [], counts }, shown);
    };
    expect(["mails", "others", null].map(isConcerned)).toEqual([true, false, true]);
  });
});

it("sends a payload as it was typed, and refuses what is not JSON", () => {
  expect(bodyOf('{"n": 12345678901234567890}', false, "")).toBe(
    '{"payload":{"n": 12345678901234567890}}',
  );
  expect(bodyOf(" /wA= ", true, "a/b")).toBe('{"payloadBase64":"/wA=","contentType":"a/b"}');
  expect(() => bodyOf("{", false, "")).toThrow("This is not JSON");
  expect(() => bodyOf('1},"contentType":"x"', false, "")).toThrow("This is not JSON");
});
