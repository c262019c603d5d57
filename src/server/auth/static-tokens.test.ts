import { inspect } from "node:util";
import { describe, expect, it } from "vitest";
import { ConfigError } from "../../base/errors.ts";
import { Secret } from "../../base/secret.ts";
import { type StaticTokenOptions, StaticTokens } from "./static-tokens.ts";

const TOKEN = "canary-static-0123456789";
const GIVEN: StaticTokenOptions = { token: TOKEN, tenant: "acme", scopes: ["producer"] };

describe("static tokens", () => {
  const tokens = new StaticTokens([
    GIVEN,
    {
      token: new Secret(`${TOKEN}!`),
      tenant: "globex",
      scopes: ["worker", "read"],
      queues: ["mails"],
      subject: "robot",
    },
  ]);

  it("are found to the last character", () => {
    expect(tokens.find(TOKEN)).toEqual({
      tenant: "acme",
      scopes: new Set(["producer"]),
      queues: "all",
      subject: "static",
      expiresAt: "never",
      tokenId: "static:1",
    });
    expect(tokens.find(`${TOKEN}!`)).toMatchObject({
      tenant: "globex",
      queues: new Set(["mails"]),
      subject: "robot",
      tokenId: "static:2",
    });
    const wrong = [TOKEN.slice(1), TOKEN.slice(0, -1), `${TOKEN} `, TOKEN.toUpperCase(), ""];
    for (const other of wrong) expect(tokens.find(other)).toBeUndefined();
  });

  it("are not kept where they could be shown", () => {
    expect(inspect(tokens, { depth: Infinity, showHidden: true })).not.toContain("canary");
  });

  it.each([
    [{ token: "short" }, /static token 1 must have at least 16 characters/],
    [{ token: "with a blank in the middle" }, /visible ASCII/],
    [{ token: 7 }, /at least 16 characters/],
    [{ tenant: "" }, /static token 1 needs a tenant/],
    [{ scopes: [] }, /needs at least one scope/],
    [{ scopes: ["root"] }, /"root" is not a scope; known are producer, worker/],
    [{ scopes: "admin" }, /needs at least one scope/],
    [{ queues: "mails" }, /queues must be "all" or a list/],
    [{ queues: [""] }, /queues must be "all" or a list/],
    [{ subject: "" }, /subject is not a name/],
    [{ tenants: "x" }, /unknown static token 1 option "tenants"; did you mean "tenant"/],
  ])("are refused at the start when %j", (changes, says) => {
    const start = (): unknown => new StaticTokens([{ ...GIVEN, ...changes } as StaticTokenOptions]);
    expect(start).toThrow(says);
    expect(start).toThrow(ConfigError);
  });

  it("are refused when two are the same, without telling which", () => {
    const start = (): unknown => new StaticTokens([GIVEN, { ...GIVEN, tenant: "globex" }]);
    expect(start).toThrow(/^two static tokens are the same$/);
  });
});
