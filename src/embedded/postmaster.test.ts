import { describe, expect, it } from "vitest";
import { parsePidFile } from "./postmaster.ts";

const COMPLETE = [
  "4472",
  "/data",
  "1763235783",
  "46845",
  "/data",
  "127.0.0.1",
  "  16845   360",
  "ready   ",
  "",
];

const parse = (lines: readonly string[]) => parsePidFile(lines.join("\n"));

describe("parsePidFile", () => {
  it("reads pid, port and readiness", () => {
    expect(parse(COMPLETE)).toEqual({ pid: 4472, port: 46845, isReady: true });
  });

  it("does not call a starting or stopping server ready", () => {
    expect(parse(COMPLETE.with(7, "starting"))?.isReady).toBe(false);
    expect(parse(COMPLETE.with(7, "stopping"))?.isReady).toBe(false);
  });

  it("accepts a file that is still being written", () => {
    expect(parse(COMPLETE.slice(0, 3))).toEqual({ pid: 4472, port: undefined, isReady: false });
  });

  it("reads the pid of a single-user backend, which is negated", () => {
    expect(parse(COMPLETE.with(0, "-4472"))?.pid).toBe(4472);
  });

  it("makes nothing of a file without a pid", () => {
    expect(parsePidFile("")).toBeUndefined();
    expect(parsePidFile("rubbish\n")).toBeUndefined();
    expect(parsePidFile("0\n")).toBeUndefined();
  });
});
