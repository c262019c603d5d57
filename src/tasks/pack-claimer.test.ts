import { beforeEach, describe, expect, it } from "vitest";
import { packLane } from "./claimed-pack.ts";
import { LaneBook } from "./lanes.ts";
import { PackClaimer } from "./pack-claimer.ts";

const nobody = {} as never; // Nothing is asked.
const LANE = packLane(2);

describe("packs of a lane", () => {
  let lanes: LaneBook;
  let isByRow: boolean;
  let allowed: number;
  let ready: number;
  let claimer: PackClaimer;

  beforeEach(() => {
    isByRow = false;
    allowed = Infinity;
    ready = 500;
    lanes = new LaneBook({ agingSeconds: 10, turn: 50, weightOf: () => 1 });
    const seen = { queue: "orders", tenant: "default", priority: 5, waitedSeconds: 0 };
    lanes.saw([{ ...seen, lane: LANE, headOrder: 10 }], new Map(), 0, 0);
    claimer = new PackClaimer(nobody, nobody, lanes, {
      workerId: "worker",
      leaseSeconds: 30,
      ready: () => ready,
      isByRow: () => isByRow,
      allowed: () => allowed,
      proofs: () => [],
      onOpened: () => {},
    });
  });

  const divide = (take: number): object[] =>
    claimer.divide([{ lane: LANE, floor: 0, take }]).packs.map(({ take, isWhole }) => ({
      take,
      isWhole,
    }));

  it("are taken whole by a fast worker, no more tasks than were asked for", () => {
    expect(divide(350)).toEqual([{ take: 3, isWhole: true }]);
    expect(divide(99)).toEqual([{ take: 1, isWhole: false }]);
    ready = 499;
    expect(divide(350)).toEqual([{ take: 4, isWhole: false }]);
  });

  it("are opened where each task has a lease of its own", () => {
    isByRow = true;
    expect(divide(350)).toEqual([{ take: 4, isWhole: false }]);
  });

  it("are taken whole of a limited queue as long as its limits allow many more", () => {
    allowed = 500;
    expect(divide(350)).toEqual([{ take: 3, isWhole: true }]);
    allowed = 499;
    expect(divide(350)).toEqual([{ take: 4, isWhole: false }]);
  });
});
