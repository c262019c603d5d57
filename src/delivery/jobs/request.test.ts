import { expect, it } from "vitest";
import { idempotencyKeyOf } from "./request.ts";

const task = (payload: string, attempt = 1) => ({
  id: "7",
  attempt,
  createdAt: new Date(1_700_000_000_000),
  contentType: "application/json",
  payloadBytes: Buffer.from(payload),
});

it("keeps the key over attempts, and changes it with what is sent", () => {
  const key = idempotencyKeyOf(task('{"n":1}'));
  expect(key).toMatch(/^tidemill-7-[0-9a-z]+-[A-Za-z0-9_-]{22}$/);
  expect(idempotencyKeyOf(task('{"n":1}', 5))).toBe(key);
  expect(idempotencyKeyOf(task('{"n":2}'))).not.toBe(key);
  expect(idempotencyKeyOf({ ...task('{"n":1}'), id: "8" })).not.toBe(key);
  expect(idempotencyKeyOf({ ...task('{"n":1}'), createdAt: new Date(0) })).not.toBe(key);
});
