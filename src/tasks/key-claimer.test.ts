import { describe, expect, it } from "vitest";
import { ManualClock } from "../../test/support/manual-clock.ts";
import { KeyClaimer } from "./key-claimer.ts";
import { Settling } from "./settling.ts";

describe("a key space of which a worker owns nothing", () => {
  it("has nothing that becomes due", () => {
    const nobody = {} as never; // Owning nothing, it asks nobody.
    const more = {
      settling: new Settling("numbers"),
      clock: new ManualClock(),
      limiter: nobody,
      server: nobody,
      packs: nobody,
      perKey: nobody,
    };
    const space = { id: 1, keyConcurrency: 1, isShared: true, queues: ["orders"] };
    expect(new KeyClaimer(nobody, nobody, space, more).restMs).toBe(Infinity);
  });
});
