import { expect, it } from "vitest";
import { describeLoad } from "./load-text.ts";

it.each([
  [{}, "–"],
  [{ consumers: 2, rssBytes: 2_097_152, heartbeatSeconds: 3 }, "2.0 MiB of memory"],
  [{ running: 3, slots: 1_000, rssBytes: 2_097_152 }, "3 of 1,000 running, 2.0 MiB of memory"],
  [{ running: 0 }, "0 running"],
])("says of %j: %s", (load, text) => {
  expect(describeLoad(load)).toBe(text);
});
