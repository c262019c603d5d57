import { expect, it } from "vitest";
import { isRefusal } from "./sqlstate.ts";

const serverError = (code: string): Error => Object.assign(new Error("no"), { code });

it.each([
  ["21000", "one row is written twice", true],
  ["23514", "a check fails", true],
  ["40001", "two transactions collide", false],
  ["08006", "the connection is gone", false],
  ["21", "it is no code of the server", false],
])("%s, when %s, is a refusal of the statement: %s", (code, _when, isRefused) => {
  expect(isRefusal(serverError(code))).toBe(isRefused);
});
