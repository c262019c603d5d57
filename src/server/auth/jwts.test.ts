import { createHash, createHmac, sign } from "node:crypto";
import { inspect } from "node:util";
import { beforeAll, describe, expect, it } from "vitest";
import {
  ecKey,
  edKey,
  encode,
  FakeJwks,
  publicPem,
  rsaKey,
  signatureOf,
  signJwt,
  type TestKey,
  toJwk,
} from "../../../test/support/issuer.ts";
import { ManualClock } from "../../../test/support/manual-clock.ts";
import { type Refusal, UnauthenticatedError } from "../../base/errors.ts";
import { silentLogger } from "../../base/log.ts";
import { BearerAuthenticator } from "./authenticator.ts";
import type { Caller } from "./caller.ts";
import type { JwtIssuerOptions } from "./issuer-options.ts";
import { ALGORITHMS } from "./jwks.ts";
import { Jwts } from "./jwts.ts";

const NOW = 1_800_000_000;
const ISSUER = "https://login.example";
const OPTIONS: JwtIssuerOptions = {
  issuer: ISSUER,
  audience: "tidemill",
  jwksUrl: "https://login.example/keys",
  algorithms: ALGORITHMS,
};
const OTHER: JwtIssuerOptions = {
  ...OPTIONS,
  issuer: "https://other.example",
  jwksUrl: "https://other.example/keys",
};
const CLAIMS = {
  iss: ISSUER,
  aud: "tidemill",
  sub: "shop",
  exp: NOW + 600,
  iat: NOW - 10,
  tid: "acme",
  scope: "openid tidemill:producer",
  eventTypes: ["mails", "bills"],
};

const rsa = rsaKey("rsa-1");
const small = rsaKey("small", "RS256", 1_024);
const ec = ecKey("ec-1");
const ed = edKey("ed-1");
const stranger = rsaKey("rsa-1");
const foreign = rsaKey("foreign");
const MEMBER = "canary-4a7d";
const secretJwk = { kty: "oct", kid: "oct", alg: "HS256", k: encode(MEMBER) };

function authenticator(options: Partial<JwtIssuerOptions> = {}, keys?: object[]) {
  const jwks = new FakeJwks(keys ?? [toJwk(rsa), toJwk(ec), toJwk(ed), toJwk(small), secretJwk]);
  const others = new FakeJwks([toJwk(foreign)]);
  const jwts = new Jwts([{ ...OPTIONS, ...options }, OTHER], {
    fetchJson: (url, limits) => (url === OTHER.jwksUrl ? others : jwks).fetchJson(url, limits),
    clock: new ManualClock(),
    wallClock: () => NOW * 1000,
    logger: silentLogger,
  });
  return new BearerAuthenticator([jwts]);
}

async function accepted(token: string, options?: Partial<JwtIssuerOptions>): Promise<Caller> {
  return await authenticator(options).authenticate(token);
}

async function refused(
  token: string,
  options?: Partial<JwtIssuerOptions>,
): Promise<UnauthenticatedError> {
  const found = await accepted(token, options).catch((error: unknown) => error);
  expect(found).toBeInstanceOf(UnauthenticatedError);
  return found as UnauthenticatedError;
}

/** Signed by a key of the issuer, so that only the named thing is wrong. */
const claiming = (changes: object, key: TestKey = rsa): string =>
  signJwt({ ...CLAIMS, ...changes }, key);
const without = (name: keyof typeof CLAIMS): string => {
  const { [name]: _, ...rest } = CLAIMS;
  return signJwt(rest, rsa);
};
const heading = (header: object, key: TestKey = rsa): string => signJwt(CLAIMS, key, header);
const raw = (payload: string): string => {
  const input = `${encode({ alg: "RS256", kid: "rsa-1", typ: "JWT" })}.${encode(payload)}`;
  return `${input}.${signatureOf(input, rsa).toString("base64url")}`;
};
const unsigned = (header: object, signature: string): string =>
  `${encode({ kid: "rsa-1", typ: "JWT", ...header })}.${encode(CLAIMS)}.${signature}`;
const parts = (token: string): string[] => token.split(".");

function hmac(alg: string, secret: string, header: object = {}): string {
  const input = `${encode({ alg, kid: "rsa-1", typ: "JWT", ...header })}.${encode(CLAIMS)}`;
  const made = createHmac(`sha${alg.slice(2)}`, secret)
    .update(input)
    .digest("base64url");
  return `${input}.${made}`;
}

/** Signed honestly, and the signature written as OpenSSL does. */
function derSigned(): string {
  const input = `${encode({ alg: "ES256", kid: "ec-1", typ: "JWT" })}.${encode(CLAIMS)}`;
  const der = sign("sha256", Buffer.from(input), ec.privateKey);
  return `${input}.${der.toString("base64url")}`;
}

const changed = (token: string, claims: object): string => {
  const [header, , signature] = parts(token);
  return `${header}.${encode({ ...CLAIMS, ...claims })}.${signature}`;
};
const zeros = (count: number): string => Buffer.alloc(count).toString("base64url");
const good = signJwt(CLAIMS, rsa);

const FORGED: [what: string, token: () => string, reason: Refusal][] = [
  ["alg none without a signature", () => unsigned({ alg: "none" }, ""), "unknown"],
  ["alg none with one", () => unsigned({ alg: "none" }, parts(good)[2]!), "algorithm"],
  ["alg None", () => unsigned({ alg: "None" }, "AA"), "algorithm"],
  ["alg NONE", () => unsigned({ alg: "NONE" }, "AA"), "algorithm"],
  ["alg nOnE", () => unsigned({ alg: "nOnE" }, "AA"), "algorithm"],
  ["alg empty", () => unsigned({ alg: "" }, "AA"), "algorithm"],
  ["alg missing", () => unsigned({}, "AA"), "algorithm"],
  ["alg as a list", () => unsigned({ alg: ["RS256"] }, parts(good)[2]!), "algorithm"],
  ["alg rs256", () => heading({ alg: "rs256" }), "algorithm"],
  ["HS256 under the public RSA key", () => hmac("HS256", publicPem(rsa)), "algorithm"],
  ["HS512 under the public RSA key", () => hmac("HS512", publicPem(rsa)), "algorithm"],
  ["HS256 under a symmetric key", () => hmac("HS256", MEMBER, { kid: "oct" }), "algorithm"],
  ["RS256 with a symmetric key", () => heading({ kid: "oct" }), "unknown"],
  ["a key of 1024 bits", () => signJwt(CLAIMS, small), "unknown"],
  ["RS256 named for an EC key", () => heading({ kid: "ec-1" }), "algorithm"],
  ["ES256 named for an RSA key", () => heading({ kid: "rsa-1" }, ec), "algorithm"],
  ["PS256 with a key for RS256", () => heading({}, { ...rsa, alg: "PS256" }), "algorithm"],
  ["another key with the same id", () => signJwt(CLAIMS, stranger), "signature"],
  ["an unknown key", () => heading({ kid: "rsa-2" }), "unknown"],
  ["a key id that is a path", () => heading({ kid: "../../etc/passwd" }), "unknown"],
  ["a key id that is SQL", () => heading({ kid: "x' OR '1'='1" }), "unknown"],
  ["a key id of every object", () => heading({ kid: "__proto__" }), "unknown"],
  ["a key id that is no text", () => heading({ kid: 1 }), "malformed"],
  ["a key id that is empty", () => heading({ kid: "" }), "malformed"],
  ["a key id too long", () => heading({ kid: "k".repeat(201) }), "malformed"],
  ["no key id", () => heading({ kid: undefined }), "malformed"],
  ["a key of another issuer", () => signJwt(CLAIMS, foreign), "unknown"],
  ["its own key", () => heading({ jwk: toJwk(stranger) }, stranger), "malformed"],
  ["its own address of keys", () => heading({ jku: "https://evil.example" }), "malformed"],
  ["its own certificate", () => heading({ x5u: "https://evil.example" }), "malformed"],
  ["a chain of certificates", () => heading({ x5c: ["MII"] }), "malformed"],
  ["a critical header", () => heading({ crit: ["exp"], exp: NOW + 9 }), "malformed"],
  ["an unencoded payload", () => heading({ crit: ["b64"], b64: false }), "malformed"],
  ["no typ", () => heading({ typ: undefined }), "malformed"],
  ["typ of another kind", () => heading({ typ: "logout+jwt" }), "malformed"],
  ["typ that is no text", () => heading({ typ: ["JWT"] }), "malformed"],
  ["no exp", () => without("exp"), "claim"],
  ["exp that has passed", () => claiming({ exp: NOW - 31 }), "expired"],
  ["exp at the end of the tolerance", () => claiming({ exp: NOW - 30 }), "expired"],
  ["exp in a thousand years", () => claiming({ exp: NOW + 1000 * 31_557_600 }), "claim"],
  ["exp beyond all dates", () => claiming({ exp: 1e300 }), "claim"],
  ["exp as a text", () => claiming({ exp: String(NOW + 600) }), "claim"],
  ["exp null", () => claiming({ exp: null }), "claim"],
  ["nbf in the future", () => claiming({ nbf: NOW + 31 }), "claim"],
  ["nbf as a text", () => claiming({ nbf: "0" }), "claim"],
  ["iat in the future", () => claiming({ iat: NOW + 31 }), "claim"],
  ["no iss", () => without("iss"), "claim"],
  ["iss of nobody", () => claiming({ iss: "https://evil.example" }), "claim"],
  ["iss with a slash more", () => claiming({ iss: `${ISSUER}/` }), "claim"],
  ["iss as a list", () => claiming({ iss: [ISSUER] }), "claim"],
  ["iss of another, key of this one", () => claiming({ iss: OTHER.issuer }), "unknown"],
  ["no aud", () => without("aud"), "claim"],
  ["aud of another service", () => claiming({ aud: "bank" }), "claim"],
  ["aud in other letters", () => claiming({ aud: "Tidemill" }), "claim"],
  ["aud as a list of others", () => claiming({ aud: ["bank", "shop"] }), "claim"],
  ["aud empty", () => claiming({ aud: [] }), "claim"],
  ["aud as an object", () => claiming({ aud: { 0: "tidemill" } }), "claim"],
  ["no sub", () => without("sub"), "claim"],
  ["sub that is no text", () => claiming({ sub: 7 }), "claim"],
  ["no tenant", () => without("tid"), "tenant"],
  ["tenant as a list", () => claiming({ tid: ["acme"] }), "tenant"],
  ["tenant as an object", () => claiming({ tid: { tid: "acme" } }), "tenant"],
  ["tenant null", () => claiming({ tid: null }), "tenant"],
  ["tenant empty", () => claiming({ tid: "" }), "tenant"],
  ["tenant blank", () => claiming({ tid: " " }), "tenant"],
  ["tenant with a blank behind", () => claiming({ tid: "acme " }), "tenant"],
  ["tenant too long", () => claiming({ tid: "a".repeat(201) }), "tenant"],
  ["tenant with a zero byte", () => claiming({ tid: "acme\u0000" }), "tenant"],
  ["tenant with a line end", () => claiming({ tid: "ac\nme" }), "tenant"],
  ["tenant with a hidden character", () => claiming({ tid: "ac\u200bme" }), "tenant"],
  ["tenant with half a character", () => claiming({ tid: "acme\ud800" }), "tenant"],
  ["two tenants", () => claiming({ tenantId: "globex" }), "tenant"],
  ["scope as a number", () => claiming({ scope: 1 }), "claim"],
  ["scope as an object", () => claiming({ scope: { admin: true } }), "claim"],
  ["scope as a list of other things", () => claiming({ scope: [["admin"]] }), "claim"],
  ["queues as a text", () => claiming({ eventTypes: "*" }), "claim"],
  ["queues with other things", () => claiming({ eventTypes: [{}] }), "claim"],
  ["changed claims", () => changed(good, { tid: "globex" }), "signature"],
  ["an ECDSA signature in DER form", derSigned, "signature"],
  [
    "an ECDSA signature of zeros",
    () => `${parts(signJwt(CLAIMS, ec)).slice(0, 2).join(".")}.${zeros(64)}`,
    "signature",
  ],
  ["an EdDSA signature of another key", () => signJwt(CLAIMS, { ...edKey("ed-1") }), "signature"],
  [
    "an EdDSA signature of zeros",
    () => `${parts(signJwt(CLAIMS, ed)).slice(0, 2).join(".")}.${zeros(64)}`,
    "signature",
  ],
  ["a token cut short", () => good.slice(0, -8), "signature"],
  ["a token without a signature", () => parts(good).slice(0, 2).join("."), "unknown"],
  ["a part more", () => `${good}.AAAA`, "unknown"],
  ["dots in front", () => `..${good}`, "unknown"],
  ["padding", () => `${good}==`, "unknown"],
  ["five parts, as if encrypted", () => "a.b.c.d.e", "unknown"],
  ["a huge one", () => claiming({ more: "x".repeat(10_000) }), "malformed"],
  ["a payload that is not JSON", () => raw("tid=acme"), "malformed"],
  ["a payload that is a list", () => raw(JSON.stringify([CLAIMS])), "malformed"],
  ["a payload that is null", () => raw("null"), "malformed"],
  ["a header that is not JSON", () => `${encode("{")}.${encode(CLAIMS)}.AA`, "malformed"],
  [
    "a claim twice",
    () => raw(JSON.stringify(CLAIMS).replace("{", '{"tid":"globex",')),
    "malformed",
  ],
  [
    "a claim twice, once in disguise",
    () => raw(JSON.stringify(CLAIMS).replace("{", '{"\\u0074id":"globex",')),
    "malformed",
  ],
  ["bytes that are not UTF-8", () => `${encode({})}._w.AA`, "malformed"],
];

describe("a forged token", () => {
  it.each(FORGED)("is refused: %s", async (_, forge, reason) => {
    const token = forge();
    const error = await refused(token);
    expect([error.reason, error.detail]).toEqual([reason, expect.any(String)]);
    // The holder learns nothing but that it is over, and nobody sees the token.
    const told = reason === "expired" ? "the token has expired" : "the token is not valid";
    expect(error.message).toBe(told);
    const shown = [inspect(error, { showHidden: true }), error.detail, JSON.stringify(error)];
    for (const piece of token.split(".").filter((part) => part.length > 8)) {
      for (const text of shown) expect(text).not.toContain(piece);
    }
    for (const text of [inspect(error), JSON.stringify(error)]) {
      expect(text).not.toContain(error.detail);
    }
  });

  it("is refused with an algorithm that the issuer does not use", async () => {
    const error = await refused(signJwt(CLAIMS, ec), { algorithms: ["RS256"] });
    expect(error.reason).toBe("algorithm");
  });

  it("is refused when two keys have its id, for nobody knows which was meant", async () => {
    for (const keys of [
      [stranger, rsa],
      [rsa, stranger],
    ]) {
      const twice = authenticator(
        {},
        keys.map((key) => toJwk(key)),
      );
      await expect(twice.authenticate(good)).rejects.toThrow(UnauthenticatedError);
    }
  });

  it.each([
    ["for encryption", { use: "enc" }],
    ["for signing only", { key_ops: ["sign"] }],
    ["for another algorithm", { alg: "RS512" }],
    ["with its private part", { d: "AQAB" }],
  ])("is refused when its key is %s", async (_, changes) => {
    const only = authenticator({}, [toJwk(rsa, changes)]);
    await expect(only.authenticate(good)).rejects.toThrow("the token is not valid");
  });

  it("is refused when its key has the exponent 1, with which anybody can sign", async () => {
    const input = parts(good).slice(0, 2).join(".");
    const digest = createHash("sha256").update(input).digest("hex");
    const tail = `003031300d060960864801650304020105000420${digest}`;
    const padded = `0001${tail.padStart(508, "f")}`;
    const token = `${input}.${Buffer.from(padded, "hex").toString("base64url")}`;
    const only = authenticator({}, [toJwk(rsa, { e: "AQ" })]);
    await expect(only.authenticate(token)).rejects.toMatchObject({ reason: "unknown" });
  });

  it("is refused after its age, which then needs iat", async () => {
    const limits = { ageSecondsMax: 60 };
    expect((await refused(claiming({ iat: NOW - 91 }), limits)).reason).toBe("expired");
    expect((await refused(without("iat"), limits)).reason).toBe("claim");
    expect(await accepted(claiming({ iat: NOW - 90 }), limits)).toMatchObject({ tenant: "acme" });
  });
});

describe("a good token", () => {
  it("says who is calling", async () => {
    expect(await accepted(claiming({ jti: "t-1" }))).toEqual({
      tenant: "acme",
      scopes: new Set(["producer"]),
      queues: new Set(["mails", "bills"]),
      subject: "shop",
      expiresAt: new Date((NOW + 630) * 1000),
      tokenId: "jwt:t-1",
    });
  });

  it.each(ALGORITHMS)("may be signed with %s", async (alg) => {
    const base = { RS: rsa, PS: rsa, ES: ecKey("k", alg === "ES384" ? alg : "ES256"), Ed: ed };
    const key = { ...base[alg.slice(0, 2) as keyof typeof base], kid: "k", alg };
    const one = authenticator({}, [toJwk(key)]);
    expect(await one.authenticate(signJwt(CLAIMS, key))).toMatchObject({ tenant: "acme" });
    const { alg: _, ...untold } = toJwk(key);
    const two = authenticator({}, [untold]);
    expect(await two.authenticate(signJwt(CLAIMS, key))).toMatchObject({ tenant: "acme" });
  });

  it.each([
    ["aud holds ours among others", () => claiming({ aud: ["bank", "tidemill"] })],
    ["exp is within the tolerance", () => claiming({ exp: NOW - 29 })],
    ["nbf is within the tolerance", () => claiming({ nbf: NOW + 30 })],
    ["typ is at+jwt", () => heading({ typ: "at+jwt" })],
    ["typ is written in full", () => heading({ typ: "application/JWT" })],
    ["all spellings of the tenant agree", () => claiming({ tenant_id: "acme", tenantId: "acme" })],
    ["the certificate has a thumbprint", () => heading({ x5t: "abc" })],
  ])("is accepted when %s", async (_, make) => {
    expect(await accepted(make())).toMatchObject({ tenant: "acme" });
  });

  it("may lack typ where the issuer writes none", async () => {
    const token = heading({ typ: undefined });
    expect(await accepted(token, { requireType: false })).toMatchObject({ tenant: "acme" });
    expect((await refused(heading({ typ: "x" }), { requireType: false })).reason).toBe("malformed");
  });

  it("without a jti is told apart by a hash, which is no part of it", async () => {
    const { tokenId } = await accepted(good);
    expect(tokenId).toMatch(/^jwt:[0-9a-f]{16}$/);
    expect((await accepted(claiming({ more: 1 }))).tokenId).not.toBe(tokenId);
  });
});

describe("the issuers", () => {
  let warm: BearerAuthenticator;

  beforeAll(() => {
    warm = authenticator();
  });

  it("are kept apart: each has its own keys", async () => {
    const theirs = { ...CLAIMS, iss: OTHER.issuer };
    expect(await warm.authenticate(signJwt(theirs, foreign))).toMatchObject({ tenant: "acme" });
    await expect(warm.authenticate(signJwt(theirs, rsa))).rejects.toThrow(UnauthenticatedError);
  });

  it.each([
    [{ jwksUrl: "http://login.example/keys" }, /jwksUrl must begin with https/],
    [{ jwksUrl: "https://user:pass@login.example/keys" }, /user or a password/],
    [{ algorithms: ["HS256"] }, /algorithms must be "RS256"/],
    [{ algorithms: ["none"] }, /algorithms must be/],
    [{ algorithms: [] }, /algorithms must name at least one/],
    [{ audience: [] }, /audience must name at least one/],
    [{ audience: "" }, /audience must be a text/],
    [{ issuer: "" }, /issuer must be a text/],
    [{ skewSeconds: 61 }, /skewSeconds must be a number of at least 0 and at most 60/],
    [{ staleSecondsMax: 0 }, /staleSecondsMax must be/],
    [{ defaultScopes: ["root"] }, /scopes must be "producer"/],
    [{ scopeNames: { all: ["root"] } }, /scopes must be "producer"/],
    [{ defaultQueues: "some" }, /queues must be "all" or a list/],
    [{ clockSkew: 5 }, /unknown issuer option "clockSkew"/],
  ])("are refused at the start when %j", (options, says) => {
    expect(() => authenticator(options as Partial<JwtIssuerOptions>)).toThrow(says);
  });
});
