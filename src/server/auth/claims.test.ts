import { describe, expect, it } from "vitest";
import { UnauthenticatedError } from "../../base/errors.ts";
import { may, SCOPES } from "./caller.ts";
import { readIdentity } from "./claims.ts";
import { type JwtIssuerOptions, resolveIssuer } from "./issuer-options.ts";

function identify(claims: object, options: Partial<JwtIssuerOptions> = {}) {
  const { rules } = resolveIssuer({
    issuer: "i",
    audience: "a",
    jwksUrl: "https://i.example/keys",
    ...options,
  });
  return readIdentity({ sub: "shop", tid: "acme", ...claims }, rules);
}

describe("the claims of a token", () => {
  it("grant nothing when they are missing", () => {
    expect(identify({})).toEqual({
      tenant: "acme",
      subject: "shop",
      scopes: new Set(),
      queues: new Set(),
    });
  });

  it("have defaults only where the issuer was given them", () => {
    const options = { defaultScopes: ["producer"], defaultQueues: "all" } as const;
    expect(identify({}, options)).toMatchObject({ scopes: new Set(["producer"]), queues: "all" });
    const said = identify({ scope: "", eventTypes: [] }, options);
    expect(said).toMatchObject({ scopes: new Set(), queues: new Set() });
  });

  it("of CodeQ mean what they meant there, and no more", () => {
    const scope = "codeq:claim codeq:heartbeat codeq:abandon codeq:nack codeq:result profile";
    const { scopes, queues } = identify({ scope, eventTypes: ["*"] });
    const caller = { ...identify({}), scopes, queues, expiresAt: "never", tokenId: "x" } as const;
    for (const act of ["claim", "renew", "abandon", "nack", "finish"] as const) {
      expect(may(caller, `task.${act}`)).toBe(true);
    }
    expect(may(caller, "queue.subscribe")).toBe(false);
    expect(may(caller, "task.create")).toBe(false);
    expect(identify({ scope: "codeq:subscribe" }).scopes).toEqual(new Set(["worker:subscribe"]));
    expect(identify({ scope: "codeq:admin" }).scopes).toEqual(new Set(["admin"]));
  });

  it("name scopes in full: words of other services mean nothing", () => {
    expect(identify({ scope: "admin read worker producer" }).scopes.size).toBe(0);
    const all = SCOPES.map((one) => `tidemill:${one}`);
    expect(identify({ scope: all }).scopes).toEqual(new Set(SCOPES));
    expect(identify({ scope: all.join(" ") }).scopes).toEqual(new Set(SCOPES));
    expect(identify({ scope: "constructor __proto__ toString" }).scopes.size).toBe(0);
  });

  it("may have other names", () => {
    const options: Partial<JwtIssuerOptions> = {
      tenantClaims: ["https://acme.example/org"],
      scopeClaim: "scp",
      scopeNames: { write: ["producer", "read"] },
      queuesClaim: "queues",
    };
    const claims = { "https://acme.example/org": "globex", scp: ["write"], queues: ["mails"] };
    expect(identify({ ...claims, scope: "tidemill:admin", eventTypes: ["*"] }, options)).toEqual({
      tenant: "globex",
      subject: "shop",
      scopes: new Set(["producer", "read"]),
      queues: new Set(["mails"]),
    });
  });

  it("make an administrator by role only where one is named", () => {
    expect(identify({ role: "ADMIN" }).scopes.size).toBe(0);
    const options = { adminRole: "ADMIN" };
    expect(identify({ role: "ADMIN" }, options).scopes).toEqual(new Set(["admin"]));
    expect(identify({ role: ["USER", "ADMIN"] }, options).scopes).toEqual(new Set(["admin"]));
    expect(identify({ role: "admin" }, options).scopes.size).toBe(0);
    expect(() => identify({ role: 1 }, options)).toThrow(UnauthenticatedError);
  });

  it("take the tenant from the subject only where that was asked for", () => {
    expect(() => identify({ tid: undefined })).toThrow(UnauthenticatedError);
    expect(identify({ tid: undefined }, { tenantFromSubject: true }).tenant).toBe("shop");
    expect(identify({}, { tenantFromSubject: true }).tenant).toBe("acme");
  });

  it("are not those that every object has", () => {
    const options = { tenantClaims: ["constructor"], queuesClaim: "toString" };
    expect(() => identify({}, options)).toThrow(UnauthenticatedError);
    expect(identify({ constructor: "acme" }, options).queues).toEqual(new Set());
  });
});
