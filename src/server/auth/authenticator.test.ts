import { describe, expect, it } from "vitest";
import { UnavailableError } from "../../base/errors.ts";
import { BearerAuthenticator, bearerOf } from "./authenticator.ts";
import type { Caller } from "./caller.ts";

const caller = (tenant: string): Caller => ({
  tenant,
  scopes: new Set(),
  queues: "all",
  subject: "test",
  expiresAt: "never",
  tokenId: tenant,
});

describe("an authenticator", () => {
  it("asks the kinds in order until one knows the token", async () => {
    const both = new BearerAuthenticator([
      { find: (bearer) => (bearer.startsWith("a") ? caller("first") : undefined) },
      { find: (bearer) => Promise.resolve(bearer === "xyz" ? undefined : caller("second")) },
    ]);
    expect((await both.authenticate("abc")).tenant).toBe("first");
    expect((await both.authenticate("bcd")).tenant).toBe("second");
    await expect(both.authenticate("xyz")).rejects.toMatchObject({ reason: "unknown" });
    await expect(both.authenticate("")).rejects.toThrow("no token was given");
    await expect(both.authenticate("x".repeat(8_193))).rejects.toMatchObject({
      reason: "malformed",
    });
  });

  it("does not take an outage for a wrong token", async () => {
    const down = new BearerAuthenticator([
      { find: () => Promise.reject(new UnavailableError("away")) },
      { find: () => caller("later") },
    ]);
    await expect(down.authenticate("abc")).rejects.toThrow(UnavailableError);
  });
});

describe("the Authorization header", () => {
  it.each([
    ["Bearer abc", "abc"],
    ["bearer   abc ", "abc"],
    ["BEARER a.b_c-d=", "a.b_c-d="],
    ["Bearer", ""],
    ["Bearer a b", ""],
    ["Basic abc", ""],
    ["abc", ""],
    ["", ""],
    [undefined, ""],
  ])("%j holds %j", (header, bearer) => expect(bearerOf(header)).toBe(bearer));
});
