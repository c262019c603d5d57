import { describe, expect, it } from "vitest";
import { lossOf } from "./data-loss.ts";

describe("lossOf", () => {
  const range = { earliest: 10n, latest: 20n };

  it("is none while what is stored is there, at both ends", () => {
    for (const stored of [10n, 15n, 20n]) expect(lossOf(stored, range)).toBeUndefined();
  });

  it("names all offsets that were removed", () => {
    expect(lossOf(7n, range)).toEqual({
      to: 10n,
      skipped: 3n,
      problem: "Kafka has removed offsets 7 to 9, which were not read",
    });
  });

  it("skips nothing when the log lost its end", () => {
    expect(lossOf(25n, range)).toMatchObject({ to: 20n, skipped: 0n });
  });
});
