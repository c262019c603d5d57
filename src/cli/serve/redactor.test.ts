import { expect, it } from "vitest";
import { Secret } from "../../base/secret.ts";
import { Redactor } from "./redactor.ts";

const redactor = new Redactor(["configured-token-1", "p@ss word"]);
const HEX = "0123456789abcdef";

it.each<[what: string, text: string, hidden: string]>([
  ["the password of an address", "connect postgres://app:hunter2@db/x failed", "hunter2"],
  ["one with an @ in it", "postgres://app:hun@ter2@db/x", "hun@ter2"],
  ["a password of a connection text", "host=db password='hunter 2' user=app", "hunter"],
  ["a bearer token", "header Authorization: Bearer abcdefgh12345", "abcdefgh12345"],
  ["basic credentials", "Basic YWRtaW46aHVudGVy", "YWRtaW46aHVudGVy"],
  ["a JSON Web Token", "got eyJhbGciOi.eyJzdWIiOi.c2lnbmF0dXJl here", "eyJzdWIiOi"],
  ["an API key", `key tmk_${HEX}_${HEX.repeat(4)}`, HEX.repeat(2)],
  ["a secret of a webhook", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "MfKQ9r8G"],
  ["a token of the configuration", "wrong: configured-token-1!", "configured-token-1"],
  ["a password that is known", "auth with p@ss word failed", "p@ss word"],
])("takes %s out of a text", (_, text, hidden) => {
  expect(text).toContain(hidden);
  expect(redactor.text(text)).not.toContain(hidden);
  expect(JSON.stringify(redactor.fields({ deep: { list: [text] } }))).not.toContain(hidden);
  const error = new Error(text, { cause: new Error(text) });
  expect(JSON.stringify(redactor.fields({ error }))).not.toContain(hidden);
});

it.each([
  "password",
  "token",
  "accessToken",
  "authorization",
  "x-authorization",
  "secret",
  "secrets",
  "apiKey",
  "api_key",
  "privateKey",
  "cookie",
  "credentials",
])("hides what is called %s, whatever it is", (name) => {
  expect(redactor.fields({ [name]: { value: "x1" } })).toEqual({ [name]: "[secret]" });
});

it("leaves the rest as it is", () => {
  const fields = {
    tenant: "acme",
    tokenId: "static:1",
    keys: 3,
    none: undefined,
    at: new Date(0),
    n: 7n,
    url: "https://user@example.com/a:b@c",
  };
  expect(redactor.fields(fields)).toEqual({ ...fields, n: "7" });
  expect(redactor.text("nothing to hide: 1/2")).toBe("nothing to hide: 1/2");
});

it("is bounded", () => {
  interface Ring {
    self?: Ring;
  }
  const ring: Ring = {};
  ring.self = ring;
  expect(JSON.stringify(redactor.fields(ring))).toContain("[deeper]");
  expect(redactor.text("x".repeat(100_000)).length).toBeLessThan(20_000);
  const wide = redactor.fields({ list: Array.from({ length: 9_999 }, () => 1) });
  expect(wide["list"]).toHaveLength(200);
  expect(redactor.fields({ one: new Secret("x"), bytes: Buffer.from("secret") })).toEqual({
    one: "[secret]",
    bytes: "[6 bytes]",
  });
});
