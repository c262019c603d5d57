import { describe, expect, it } from "vitest";
import type { Consumer } from "../../api/types.ts";
import { isRebuild, progressOf, wholeOf } from "./progress.ts";

const behind = (lag: number, state: Consumer["state"] = "running"): Consumer =>
  ({ name: "orders", lag: String(lag), state }) as Consumer;

describe("the progress of a consumer", () => {
  it("says when it is where the log ends now, at the rate that it has", () => {
    expect(progressOf(behind(1_200), 20)).toEqual({ rate: "20 per second", eta: "60 s" });
    expect(progressOf(behind(9_000), 0.5)).toEqual({ rate: "0.50 per second", eta: "5 h" });
  });

  it("promises nothing while the rate is unknown or nothing moves", () => {
    expect(progressOf(behind(7), undefined)).toEqual({ rate: "–", eta: "–" });
    expect(progressOf(behind(7), 0)).toEqual({ rate: "0 per second", eta: "not at this rate" });
    for (const state of ["paused", "quarantined", "unassigned"] as const) {
      expect(progressOf(behind(7, state), 20).eta).toBe("stands still");
    }
  });

  it("has caught up with nothing behind, whatever its state", () => {
    expect(progressOf(behind(0), undefined).eta).toBe("caught up");
    expect(progressOf(behind(0, "paused"), 0).eta).toBe("caught up");
  });
});

it("tells rebuilds and partitions by their names", () => {
  const names = ["orders~rebuild", "orders~rebuild/3", "orders", "orders/3"];
  expect(names.map(isRebuild)).toEqual([true, true, false, false]);
  expect(names.map(wholeOf)).toEqual(["orders~rebuild", "orders~rebuild", "orders", "orders"]);
});
