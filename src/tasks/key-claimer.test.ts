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
      roomOf: nobody,
    };
    const of = { id: 1, baseId: 1, tenant: "default", queues: ["orders"] };
    const space = { ...of, keyConcurrency: 1, isShared: true };
    expect(new KeyClaimer(nobody, nobody, space, more).restMs).toBe(Infinity);
  });
});
