import { format, inspect } from "node:util";
import { describe, expect, it } from "vitest";
import { Secret } from "./secret.ts";

const CANARY = "canary-7b1f";

describe("a secret", () => {
  const secret = new Secret(CANARY);
  const holder = { secret, list: [secret], map: new Map([["secret", secret]]) };

  it("is shown by none of the ways in which values become text", () => {
    const texts = [
      String(secret),
      ["the token", secret, "is wrong"].join(" "),
      JSON.stringify(holder),
      inspect(holder, { depth: Infinity, showHidden: true }),
      inspect(secret, { customInspect: false, showHidden: true }),
      format("%s %o %O %j", secret, secret, secret, secret),
      JSON.stringify(Object.entries(secret)),
      inspect(structuredClone(Object.assign({}, secret))),
      new Error("wrong", { cause: secret }).stack ?? "",
    ];
    for (const text of texts) expect(text).not.toContain(CANARY);
    expect(texts[0]).toBe("[secret]");
    expect(inspect({ secret })).toBe("{ secret: [secret] }");
    expect(texts[2]).toContain('"secret":"[secret]"');
  });

  it("is told to whoever asks by name", () => {
    expect(secret.reveal()).toBe(CANARY);
  });
});
