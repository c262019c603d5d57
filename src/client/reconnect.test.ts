import { status } from "@grpc/grpc-js";
import { describe, expect, it } from "vitest";
import { decideReconnect, type ReconnectFacts } from "./reconnect.ts";

const RULES = { baseMs: 100, maxMs: 5_000, random: () => 1 };
const FACTS: ReconnectFacts = {
  code: status.UNAVAILABLE,
  wasKnown: false,
  wasEverKnown: true,
  knownMs: 0,
  failures: 0,
  refusals: 0,
  hasFreshToken: false,
  addressCount: 1,
};

const decide = (facts: Partial<ReconnectFacts>) => decideReconnect({ ...FACTS, ...facts }, RULES);
const waitOf = (facts: Partial<ReconnectFacts>, random = () => 1): number => {
  const decision = decideReconnect({ ...FACTS, ...facts }, { ...RULES, random });
  if (decision.kind === "fail") throw new Error("it fails");
  return decision.waitMs;
};

describe("after a stream has ended", () => {
  it("waits longer after every failure in a row, and not for ever", () => {
    const waits = [0, 1, 2, 3, 50].map((failures) => waitOf({ failures }));
    expect(waits).toEqual([100, 200, 400, 800, 5_000]);
  });

  it("waits between half and all of that, so that clients do not come back together", () => {
    expect(waitOf({ failures: 3 }, () => 0)).toBe(400);
    expect(waitOf({ failures: 3 }, () => 0.5)).toBe(600);
  });

  it("tries every address before it waits longer", () => {
    const waits = [0, 1, 2, 3, 4, 5].map((failures) => waitOf({ failures, addressCount: 3 }));
    expect(waits).toEqual([100, 100, 100, 200, 200, 200]);
  });

  it("begins to count anew when the stream was of use", () => {
    expect(decide({ failures: 9, wasKnown: true, knownMs: 60_000 })).toMatchObject({ failures: 1 });
    expect(decide({ failures: 9, wasKnown: true, knownMs: 10 })).toMatchObject({ failures: 10 });
  });

  it.each([
    ["a token that nobody knows", { code: status.UNAUTHENTICATED }],
    ["a token without the scope", { code: status.PERMISSION_DENIED }],
    ["a hello that no server takes", { code: status.INVALID_ARGUMENT, wasEverKnown: false }],
    ["a port of something else", { code: status.UNIMPLEMENTED, wasEverKnown: false }],
  ])("gives up for %s", (_what, facts) => {
    expect(decide(facts)).toEqual({ kind: "fail" });
  });

  it.each([
    ["a token that expired meanwhile", { code: status.UNAUTHENTICATED, wasKnown: true }],
    ["a server of another version", { code: status.UNIMPLEMENTED }],
    ["a server that is away", {}],
    ["an error inside the server", { code: status.INTERNAL, wasEverKnown: false }],
  ])("tries again after %s", (_what, facts) => {
    expect(decide(facts)).toMatchObject({ kind: "again" });
  });

  it("asks for a fresh token twice before it gives up", () => {
    const refused = { code: status.UNAUTHENTICATED, hasFreshToken: true };
    expect(decide(refused)).toMatchObject({ kind: "again", refusals: 1 });
    expect(decide({ ...refused, refusals: 1 })).toMatchObject({ kind: "again", refusals: 2 });
    expect(decide({ ...refused, refusals: 2 })).toEqual({ kind: "fail" });
    expect(decide({ hasFreshToken: true, refusals: 2 })).toMatchObject({ refusals: 0 });
  });
});
