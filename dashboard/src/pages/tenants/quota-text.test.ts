import { expect, it } from "vitest";
import { changesOf, describeQuota, describeUse, textsOf } from "./quota-text.ts";

it("says what a tenant may have", () => {
  const none = { pendingTasks: null, pendingBytes: null, rate: null };
  expect(describeQuota(none)).toBe("no limit");
  const all = { pendingTasks: 5_000, pendingBytes: 1024 ** 2, rate: { count: 50, seconds: 1 } };
  expect(describeQuota(all)).toBe("5,000 tasks, 1.0 MiB, 50 creates per 1 s");
});

it("does not call nothing what nobody counts", () => {
  const quota = { tenant: "acme", pendingTasks: null, pendingBytes: null, rate: null };
  const used = { tasks: 0, bytes: 0 };
  expect(describeUse({ ...quota, used })).toBe("not counted without a limit");
  expect(describeUse({ ...quota, pendingTasks: 9, used: { tasks: 1, bytes: 2_048 } })).toBe(
    "1 task, 2.0 KiB",
  );
});

const SOME = { pendingTasks: 500, pendingBytes: null, rate: { count: 100, seconds: 60 } };

it("sends only what a person changed", () => {
  const texts = textsOf(SOME);
  expect(texts.rate).toBe("100 per 60 s");
  expect(changesOf(SOME, texts)).toEqual({});
  expect(changesOf(SOME, { ...texts, pendingTasks: " 42 " })).toEqual({ pendingTasks: 42 });
  expect(changesOf(SOME, { ...texts, pendingTasks: "" })).toEqual({ pendingTasks: null });
  expect(changesOf(SOME, { ...texts, rate: "200 per 60 s" })).toEqual({
    rate: { count: 200, seconds: 60 },
  });
});

it("refuses what is no limit", () => {
  for (const pendingTasks of ["-1", "1e3", "many", "1.5"]) {
    expect(() => changesOf(SOME, { ...textsOf(SOME), pendingTasks })).toThrow(
      "Tasks: a whole number, or nothing.",
    );
  }
  expect(() => changesOf(SOME, { ...textsOf(SOME), rate: "0" })).toThrow("such as 50 per 1 s");
});
