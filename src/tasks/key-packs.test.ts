import { describe, expect, it } from "vitest";
import { KeyPacks } from "./key-packs.ts";

const nobody = {} as never; // Nothing is asked.
const packsOf = (): KeyPacks => new KeyPacks(nobody, 0, nobody);

describe("the floor of the packs of a key space", () => {
  it("rises to what is settled, and not to a pack that waits", () => {
    const packs = packsOf();
    packs.saw(Infinity, 100, packs.version);
    expect(packs.waiting.floor).toBe(100);
    expect(packs.mayWait).toBe(false);
    packs.saw(120, 200, packs.version);
    expect(packs.waiting.floor).toBe(119);
    expect(packs.mayWait).toBe(true);
  });

  it("is not raised by a look that was asked before other buckets were opened", () => {
    const packs = packsOf();
    packs.useLanes([-1], [-2]);
    const { version } = packs;
    packs.useLanes([-1, -2], []);
    packs.saw(Infinity, 100, version);
    expect(packs.waiting.floor).toBe(0);
    expect(packs.mayWait).toBe(true);
  });
});
