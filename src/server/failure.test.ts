import { describe, expect, it } from "vitest";
import {
  CommitUnknownError,
  ConfigError,
  ForbiddenError,
  InvalidInputError,
  LimitError,
  SchemaError,
  UnavailableError,
} from "../base/errors.ts";
import { mapDatabaseError } from "../db/sqlstate.ts";
import { asInput, failureOf } from "./failure.ts";

const ofDatabase = (code: string): Error => Object.assign(new Error("words"), { code });

describe("what a caller is told of an error", () => {
  it("is the message of one that is about the call", () => {
    expect(failureOf(new ForbiddenError("not for queue x"))).toEqual({
      code: "TM_FORBIDDEN",
      message: "not for queue x",
      retryable: false,
      retryAfterMs: 0,
    });
    expect(failureOf(new LimitError("too many", 250))).toMatchObject({
      message: "too many",
      retryable: true,
      retryAfterMs: 250,
    });
  });

  it("is when to come back, within a day", () => {
    const { retryAfterMs } = failureOf(new LimitError("too many", 8.6e9));
    expect(retryAfterMs).toBe(86_400_000);
  });

  it.each([
    ["a refusal", mapDatabaseError(ofDatabase("22023"), "tasks_insert"), "TM_INVALID_INPUT"],
    ["an outage", mapDatabaseError(ofDatabase("57P01"), "tasks_insert"), "TM_UNAVAILABLE"],
    ["a timeout", mapDatabaseError(ofDatabase("57014"), "tasks_insert"), "TM_TIMEOUT"],
    ["a commit", new CommitUnknownError("words"), "TM_COMMIT_UNKNOWN"],
    ["an address", new UnavailableError("cannot reach words:5432"), "TM_UNAVAILABLE"],
    ["a table", new SchemaError("no table words"), "TM_INTERNAL"],
    ["an option", new ConfigError("words"), "TM_INTERNAL"],
    ["a bug", new TypeError("words"), "TM_INTERNAL"],
    ["no error at all", "words", "TM_INTERNAL"],
  ])("has no words of the server's own, for %s", (_what, error, code) => {
    const failure = failureOf(error);
    expect(failure.code).toBe(code);
    expect(failure.message).not.toContain("words");
    expect(failure.message).not.toContain("tasks_insert");
  });

  it("is short, and whole characters", () => {
    const { message } = failureOf(new InvalidInputError("ü".repeat(5_000)));
    expect(Buffer.byteLength(message)).toBeLessThan(1_010);
    expect(message).toMatch(/^ü+…$/);
  });

  it("is that an option was wrong when the caller gave it", () => {
    expect(failureOf(asInput(new ConfigError("timeoutSeconds must be more")))).toMatchObject({
      code: "TM_INVALID_INPUT",
      message: "timeoutSeconds must be more",
    });
  });
});
