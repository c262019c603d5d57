import { describe, expect, it } from "vitest";
import {
  formatBytes,
  formatCount,
  formatDistance,
  formatInstant,
  formatRate,
  formatSeconds,
  localTimes,
} from "./format.ts";

describe("figures", () => {
  it.each([
    [0.004, "4 ms"],
    [0.42, "0.4 s"],
    [9.99, "10 s"],
    [75, "75 s"],
    [180, "3 min"],
    [7_200, "2 h"],
    [200_000, "2 d"],
  ])("says %d seconds as %s", (seconds, text) => {
    expect(formatSeconds(seconds)).toBe(text);
  });

  it("groups digits, also of positions that no number holds", () => {
    expect(formatCount("9007199254740993123")).toBe("9,007,199,254,740,993,123");
  });

  it("does not round a slow rate to nothing", () => {
    expect([0, 0.04, 3.26, 1234.5].map(formatRate)).toEqual(["0", "0.04", "3.3", "1,235"]);
  });

  it("tells the past from the future", () => {
    const now = Date.parse("2026-01-31T09:00:00Z");
    expect(formatDistance("2026-01-31T08:57:00Z", now)).toBe("3 min ago");
    expect(formatDistance("2026-01-31T09:00:12Z", now)).toBe("in 12 s");
    expect(formatDistance("2026-01-31T09:00:00.4Z", now)).toBe("now");
  });

  it("names the zone of an instant, and shows those of the server in the same", () => {
    const at = "2026-01-31T12:00:00.212Z";
    expect(formatInstant(at)).toMatch(/^(Jan 31|Feb 01), 2026, \d\d:\d\d:00 [A-Z]+/);
    expect(localTimes(`it died at ${at}: no answer`)).toBe(
      `it died at ${formatInstant(at)}: no answer`,
    );
  });

  it("counts bytes in powers of 1024", () => {
    expect([0, 1_023, 1_536, 5 * 1024 ** 3].map(formatBytes)).toEqual([
      "0 B",
      "1023 B",
      "1.5 KiB",
      "5.0 GiB",
    ]);
  });
});
