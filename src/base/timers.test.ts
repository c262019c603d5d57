import { describe, expect, it } from "vitest";
import { ManualClock } from "../../test/support/manual-clock.ts";
import { Timers } from "./timers.ts";

describe("timers of an owner", () => {
  it("wake after their time, once, unless they are cancelled", () => {
    const clock = new ManualClock();
    const timers = new Timers(clock);
    const woken: string[] = [];
    timers.after(10, () => woken.push("kept"));
    const cancel = timers.after(10, () => woken.push("cancelled"));
    cancel();
    cancel();
    clock.advance(100);
    expect(woken).toEqual(["kept"]);
  });

  it("leave nothing behind when it closes, and never wake again", () => {
    const clock = new ManualClock();
    const timers = new Timers(clock);
    const woken: string[] = [];
    timers.after(10, () => woken.push("first"));
    timers.after(20, () => woken.push("second"));
    timers.close();
    timers.close();
    timers.after(5, () => woken.push("later"))();
    expect(clock.pending).toBe(0);
    clock.advance(100);
    expect(woken).toEqual([]);
  });
});
