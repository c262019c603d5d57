import { describe, expect, it } from "vitest";
import { ManualClock } from "../../test/support/manual-clock.ts";
import { Announcement } from "./announcement.ts";

describe("an announcement", () => {
  it("is over when its events were read", async () => {
    const clock = new ManualClock();
    const announcement = new Announcement(100, clock);
    announcement.end();
    announcement.end();
    await announcement.over;
    expect(clock.pending).toBe(0);
  });

  it("is over when nobody reads them in time", async () => {
    const clock = new ManualClock();
    let isOver = false;
    const announcement = new Announcement(100, clock);
    void announcement.over.then(() => {
      isOver = true;
    });
    clock.advance(99);
    await Promise.resolve();
    expect(isOver).toBe(false);
    clock.advance(1);
    await announcement.over;
  });
});
