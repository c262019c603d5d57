import { describe, expect, it } from "vitest";
import { abandon, completed, failed, nack, type Outcome } from "../../tasks/outcome.ts";
import type { EndedClaim } from "../../tasks/sql/by-token.ts";
import type { Settlement } from "../../tasks/sql/finish.ts";
import { toDone, toldAgain } from "./act-answers.ts";

const token = { taskId: "1", generation: 1, claimId: "0199a0b1-0000-4000-8000-000000000001" };
const row = { id: "1", generation: 1, claim_id: token.claimId };
const ending = (settlement: Settlement | undefined, more: object = {}) => ({
  settlement,
  partitionKey: undefined,
  isCancelled: false,
  token,
  ...more,
});
const back = (delay: number): Settlement => ({
  kind: "put-back",
  row: { ...row, outcome: "nack", delay, refund: false },
});

describe("an end that was answered", () => {
  it("tells where the task is", () => {
    const complete: Settlement = { kind: "complete", result: "" };
    expect(toDone(ending(complete), "accepted")).toMatchObject({ state: "completed" });
    expect(toDone(ending(back(0)), "accepted")).toMatchObject({ state: "pending" });
    const later = { state: "scheduled", delaySeconds: 7 };
    expect(toDone(ending(back(7)), "accepted")).toEqual(later);
    const keyed = ending(back(7), { partitionKey: "k" });
    expect(toDone(keyed, "accepted")).toMatchObject({ state: "pending", delaySeconds: 7 });
  });

  it("tells a lost lease from an end that could not be stored", () => {
    const complete: Settlement = { kind: "complete", result: "" };
    expect(toDone(ending(complete), "refused")).toMatchObject({ code: "TM_LEASE_LOST" });
    expect(toDone(ending(back(0)), "refused")).toMatchObject({ code: "TM_LEASE_LOST" });
    const cancelled = ending(back(0), { isCancelled: true });
    expect(toDone(cancelled, "replaced")).toMatchObject({ code: "TM_LEASE_LOST" });
    expect(toDone(ending(back(0)), "replaced")).toMatchObject({ code: "TM_CONFLICT" });
  });
});

describe("an end that is said again", () => {
  it.each<[Outcome, Partial<EndedClaim>, boolean]>([
    [completed(), { state: "completed" }, true],
    [completed(), { state: "failed" }, false],
    [completed(), { state: "cancelled" }, false],
    [completed(), { state: "pending", outcome: "lost" }, false],
    [failed("no"), { state: "scheduled", outcome: "failed" }, true],
    [failed("no"), { state: "pending", outcome: "lost" }, false],
    [failed("no"), { state: "dead" }, true],
    [failed("no", { retry: false }), { state: "failed" }, true],
    [failed("no", { retry: false }), { state: "scheduled", outcome: "failed" }, false],
    [nack(1, "no"), { state: "scheduled", outcome: "nack" }, true],
    [nack(1, "no"), { state: "scheduled", outcome: "failed" }, false],
    [abandon(), { state: "scheduled", outcome: null }, false],
    [abandon(), { state: "pending", outcome: "lost" }, false],
  ])("is told again when it was the same: %o, %o", (said, ended, isSame) => {
    const claim = {
      place: 1,
      attempt: 1,
      outcome: null,
      delay: 3,
      state: "dead",
      ...ended,
    } as const;
    const told = isSame ? { state: claim.state, delaySeconds: 3 } : undefined;
    expect(toldAgain(said, claim)).toEqual(told);
  });
});
