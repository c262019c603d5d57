import { describe, expect, it } from "vitest";
import { findProcess, parseProcStat } from "./process-table.ts";

function statusLine(command: string, state: string): string {
  const before = Array.from({ length: 18 }, (_, index) => index);
  return `4472 (${command}) ${state} ${before.join(" ")} 987654 and more\n`;
}

describe("parseProcStat", () => {
  it("reads the command and the start time", () => {
    expect(parseProcStat(statusLine("postgres", "S"))).toEqual({
      command: "postgres",
      startedAt: "987654",
    });
  });

  it("is not confused by brackets and spaces in the command", () => {
    expect(parseProcStat(statusLine("a) S (b", "S"))?.command).toBe("a) S (b");
  });

  it("counts a zombie as gone", () => {
    expect(parseProcStat(statusLine("postgres", "Z"))).toBeUndefined();
  });
});

describe("findProcess", () => {
  it("finds ourselves, always with the same start time", async () => {
    const [first, second] = [await findProcess(process.pid), await findProcess(process.pid)];
    expect(first?.pid).toBe(process.pid);
    expect(first?.startedAt).toBe(second?.startedAt);
  });

  it("finds nothing under a pid that no system gives out", async () => {
    expect(await findProcess(2_147_483_647)).toBeUndefined();
  });
});
