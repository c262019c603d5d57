import { expect, it } from "vitest";
import { describeFilter, readDeadFilter, writeDeadFilter } from "./dead-filter.ts";

it("is in the address, and only what is set", () => {
  const filter = { queue: "mails & more", partitionKey: "order-1" };
  expect(readDeadFilter(writeDeadFilter(filter))).toEqual(filter);
  expect(writeDeadFilter({ queue: "" })).toBe("");
  expect(readDeadFilter("?queue=a&nonsense=b")).toEqual({ queue: "a" });
});

it("is said in words", () => {
  expect(describeFilter({})).toBe("All that are there now.");
  expect(describeFilter({ queue: "mails", cause: "worker_lost" })).toBe(
    "Those of queue mails, its workers were lost with it.",
  );
});
