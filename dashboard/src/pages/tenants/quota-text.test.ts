import { expect, it } from "vitest";
import { describeQuota, describeUse, readLimit, readRate } from "./quota-text.ts";

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

it("reads what a person typed, and nothing else", () => {
  expect(readLimit("Tasks", " 42 ")).toBe(42);
  expect(readLimit("Tasks", "")).toBeNull();
  for (const text of ["-1", "1e3", "many", "1.5"]) {
    expect(() => readLimit("Tasks", text)).toThrow("Tasks: a whole number, or nothing.");
  }
  expect(readRate("Creates", "7")).toEqual({ count: 7, seconds: 1 });
  expect(() => readRate("Creates", "0")).toThrow("at least 1");
});
