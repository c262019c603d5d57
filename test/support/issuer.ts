import { generateKeyPairSync, type KeyObject, sign } from "node:crypto";
import type { FetchJson } from "../../src/server/auth/issuer-keys.ts";

/** Part of a compact token. */
export const encode = (value: unknown): string =>
  Buffer.from(typeof value === "string" ? value : JSON.stringify(value)).toString("base64url");

export interface TestKey {
  readonly kid: string;
  readonly alg: string;
  readonly privateKey: KeyObject;
  readonly publicKey: KeyObject;
}

export function rsaKey(kid: string, alg = "RS256", bits = 2_048): TestKey {
  return { kid, alg, ...generateKeyPairSync("rsa", { modulusLength: bits }) };
}

export function ecKey(kid: string, alg: "ES256" | "ES384" = "ES256"): TestKey {
  const namedCurve = alg === "ES256" ? "P-256" : "P-384";
  return { kid, alg, ...generateKeyPairSync("ec", { namedCurve }) };
}

export function edKey(kid: string): TestKey {
  return { kid, alg: "EdDSA", ...generateKeyPairSync("ed25519") };
}

/** As an issuer publishes it. */
export function toJwk(
  { kid, alg, publicKey }: TestKey,
  others: object = {},
): Record<string, unknown> {
  return { ...publicKey.export({ format: "jwk" }), kid, alg, use: "sig", ...others };
}

export function signatureOf(input: string, { alg, privateKey }: TestKey): Buffer {
  const bytes = Buffer.from(input);
  if (alg === "EdDSA") return sign(null, bytes, privateKey);
  const digest = `sha${alg.slice(2)}`;
  if (alg.startsWith("ES")) {
    return sign(digest, bytes, { key: privateKey, dsaEncoding: "ieee-p1363" });
  }
  // Padding 6 is PSS, with a salt as long as the digest.
  const padding = alg.startsWith("PS") ? { padding: 6, saltLength: -1 } : {};
  return sign(digest, bytes, { key: privateKey, ...padding });
}

/** A token, honest or not: the header may say anything. */
export function signJwt(claims: unknown, key: TestKey, header: object = {}): string {
  const full = { alg: key.alg, kid: key.kid, typ: "JWT", ...header };
  const input = `${encode(full)}.${encode(claims)}`;
  return `${input}.${signatureOf(input, key).toString("base64url")}`;
}

/** Answers with a document that the test may change, and counts. */
export class FakeJwks {
  fetches = 0;
  body: string;
  failure: Error | undefined;
  readonly urls = new Set<string>();

  constructor(keys: readonly object[]) {
    this.body = JSON.stringify({ keys });
  }

  publish(keys: readonly object[]): void {
    this.body = JSON.stringify({ keys });
  }

  readonly fetchJson: FetchJson = (url) => {
    this.fetches += 1;
    this.urls.add(url);
    return this.failure === undefined ? Promise.resolve(this.body) : Promise.reject(this.failure);
  };
}

/** The public text of an RSA key as a secret: the oldest forgery. */
export function publicPem({ publicKey }: TestKey): string {
  return publicKey.export({ type: "spki", format: "pem" }).toString();
}
