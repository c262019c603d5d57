import { describe, expect, it } from "vitest";
import type { Consumer } from "../../api/types.ts";
import { isRebuild, progressOf, wholeOf } from "./progress.ts";

const behind = (lag: number, state: Consumer["state"] = "running"): Consumer =>
  ({ name: "orders", lag: String(lag), state }) as Consumer;
const etaOf = (lag: number, own: number | undefined, appended = 0): string =>
  progressOf(behind(lag), { own, appended }).eta;

describe("the progress of a consumer", () => {
  it("says when it is at the end of the log, at the rate that it has", () => {
    const still = { appended: 0 };
    expect(progressOf(behind(1_200), { own: 20, ...still })).toEqual({
      rate: "20 per second",
      eta: "60 s",
      etaSeconds: 60,
    });
    expect(progressOf(behind(9_000), { own: 0.5, ...still })).toMatchObject({
      rate: "0.50 per second",
      eta: "5 h",
    });
  });

  it("counts what is appended meanwhile", () => {
    expect(etaOf(1_200, 20, 10)).toBe("2 min");
    expect(etaOf(1_200, 20, 20)).toBe("not at this rate");
    expect(etaOf(1_200, 20, 30)).toBe("not at this rate");
  });

  it("says that one which follows the log keeps up, however close both rates are", () => {
    expect(etaOf(7, 20, 20)).toBe("keeps up");
    expect(etaOf(7, 20, 21)).toBe("keeps up");
  });

  it("promises nothing while the rate is unknown or nothing moves", () => {
    expect(progressOf(behind(7), { own: undefined, appended: 0 })).toMatchObject({
      rate: "–",
      eta: "–",
    });
    expect(etaOf(7, 0)).toBe("not at this rate");
    for (const state of ["paused", "quarantined", "unassigned"] as const) {
      expect(progressOf(behind(7, state), { own: 20, appended: 0 }).eta).toBe("stands still");
    }
  });

  it("has caught up with nothing behind, whatever its state", () => {
    expect(etaOf(0, undefined)).toBe("caught up");
    expect(progressOf(behind(0, "paused"), { own: 0, appended: 5 }).eta).toBe("caught up");
  });
});

it("tells rebuilds and partitions by their names", () => {
  const names = ["orders~rebuild", "orders~rebuild/3", "orders", "orders/3"];
  expect(names.map(isRebuild)).toEqual([true, true, false, false]);
  expect(names.map(wholeOf)).toEqual(["orders~rebuild", "orders~rebuild", "orders", "orders"]);
});
