import fc from "fast-check";
import { expect, it } from "vitest";
import { judge } from "./verdict.ts";

const NOW = new Date("2026-01-31T09:00:00Z");
const RULES = { expectedStatus: undefined, now: NOW };
const answer = (status: number, retryAfter?: string) => judge({ status, retryAfter }, RULES);

it.each([200, 201, 204, 299])("completes at %d", (status) => {
  expect(answer(status)).toEqual({ kind: "completed", news: "alive" });
});

it.each([301, 304, 400, 401, 403, 404, 409, 410, 422])("fails for good at %d", (status) => {
  const reason = `the target answered ${status}`;
  expect(answer(status)).toEqual({ kind: "failed", reason, news: "alive" });
});

it.each([
  [408, "alive"],
  [425, "alive"],
  [429, "alive"],
  [500, "alive"],
  [501, "alive"],
  [502, "dead"],
  [503, "dead"],
  [504, "dead"],
  [599, "alive"],
] as const)("tries again after %d, and takes the target for %s", (status, news) => {
  const reason = `the target answered ${status}`;
  expect(answer(status)).toEqual({ kind: "retry", reason, afterSeconds: 0, news });
});

it("waits as long as the target asks, and leaves its host alone a minute at most", () => {
  expect(answer(429, "30")).toMatchObject({ afterSeconds: 30, news: { pauseMs: 30_000 } });
  expect(answer(503, "Sat, 31 Jan 2026 10:00:00 GMT")).toMatchObject({
    afterSeconds: 3_600,
    news: { pauseMs: 60_000 },
  });
  expect(answer(429, "999999999")).toMatchObject({ afterSeconds: 12 * 3_600 });
  expect(answer(429, "soon")).toMatchObject({ afterSeconds: 0, news: "alive" });
  expect(answer(429, "-5")).toMatchObject({ afterSeconds: 0, news: "alive" });
  expect(answer(500, "30")).toMatchObject({ afterSeconds: 0, news: "alive" });
});

it("takes expected answers only, whatever they are", () => {
  const rules = { expectedStatus: [202, 404, 503], now: NOW };
  for (const status of [202, 404, 503]) {
    expect(judge({ status, retryAfter: undefined }, rules)).toMatchObject({ kind: "completed" });
  }
  expect(judge({ status: 200, retryAfter: undefined }, rules)).toMatchObject({ kind: "failed" });
  expect(judge({ status: 500, retryAfter: undefined }, rules)).toMatchObject({ kind: "retry" });
});

it("tries again without an answer, and never what the guard refuses", () => {
  expect(judge({ failed: "no route" }, RULES)).toEqual({
    kind: "retry",
    reason: "no route",
    afterSeconds: 0,
    news: "dead",
  });
  expect(judge({ refused: "private" }, RULES)).toMatchObject({ kind: "failed", news: "unknown" });
  expect(judge({ refused: "answered 302", isAnswered: true }, RULES)).toEqual({
    kind: "failed",
    reason: "answered 302",
    news: "alive",
  });
});

it("has an end for every answer, and a pause that is bounded", () => {
  const answers = fc.record({
    status: fc.integer({ min: 100, max: 999 }),
    retryAfter: fc.string(),
  });
  fc.assert(
    fc.property(answers, (end) => {
      const verdict = judge(end, RULES);
      if (verdict.kind !== "retry") return;
      expect(verdict.afterSeconds).toBeGreaterThanOrEqual(0);
      expect(verdict.afterSeconds).toBeLessThanOrEqual(12 * 3_600);
    }),
  );
});
