import { createPublicKey, type JsonWebKey, type KeyObject } from "node:crypto";

/** Those with a public key. Nothing that a caller writes can choose another. */
export const ALGORITHMS = [
  "RS256",
  "RS384",
  "RS512",
  "PS256",
  "PS384",
  "PS512",
  "ES256",
  "ES384",
  "EdDSA",
] as const;
export type Algorithm = (typeof ALGORITHMS)[number];

/** A key of an issuer, and the algorithms for which it may be used: its type decides. */
export interface IssuerKey {
  readonly kid: string;
  readonly key: KeyObject;
  readonly algorithms: readonly Algorithm[];
}

const KEYS_MAX = 100;
const KID_LENGTH_MAX = 200;
const RSA_BITS_MIN = 2_048;
const RSA_BITS_MAX = 8_192;

export const isKid = (kid: unknown): kid is string =>
  typeof kid === "string" && kid !== "" && kid.length <= KID_LENGTH_MAX;

/**
 * The usable keys of a JWKS document. Others are left out: symmetric and private ones, short ones,
 * those for encryption or for an algorithm that is not allowed. Throws when it is no such document.
 */
export function readJwks(text: string, allowed: readonly Algorithm[]): IssuerKey[] {
  const document = parse(text);
  const keys = isObject(document) ? document["keys"] : undefined;
  if (!Array.isArray(keys)) throw new Error("the answer is not a JWKS document");
  if (keys.length > KEYS_MAX) throw new Error(`the document has more than ${KEYS_MAX} keys`);
  return keys.flatMap((jwk: unknown) => toKey(jwk, allowed) ?? []);
}

/** Undefined when there is none, or more than one: it is not for us to choose. */
export function pickKey(
  keys: readonly IssuerKey[],
  kid: string,
  algorithm: Algorithm,
): KeyObject | undefined {
  const fitting = keys.filter((one) => one.kid === kid && one.algorithms.includes(algorithm));
  return fitting.length === 1 ? fitting[0]?.key : undefined;
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new Error("the answer is not JSON");
  }
}

function toKey(jwk: unknown, allowed: readonly Algorithm[]): IssuerKey | undefined {
  if (!isObject(jwk)) return undefined;
  const { kid, use, key_ops: uses, alg } = jwk;
  if (!isKid(kid) || "d" in jwk || "k" in jwk) return undefined;
  if (use !== undefined && use !== "sig") return undefined;
  if (uses !== undefined && !(Array.isArray(uses) && uses.includes("verify"))) return undefined;
  const key = importKey(jwk);
  if (key === undefined) return undefined;
  const algorithms = algorithmsOf(key).filter(
    (one) => allowed.includes(one) && (alg === undefined || alg === one),
  );
  return algorithms.length === 0 ? undefined : { kid, key, algorithms };
}

function importKey(jwk: Record<string, unknown>): KeyObject | undefined {
  try {
    return createPublicKey({ key: jwk as JsonWebKey, format: "jwk" });
  } catch {
    return undefined; // Of a kind that Node does not know, or broken.
  }
}

function algorithmsOf(key: KeyObject): readonly Algorithm[] {
  const { modulusLength = 0, publicExponent = 0n, namedCurve } = key.asymmetricKeyDetails ?? {};
  switch (key.asymmetricKeyType) {
    case "rsa": {
      const isSound = modulusLength >= RSA_BITS_MIN && modulusLength <= RSA_BITS_MAX;
      // With the exponent 1 every signature is its own proof.
      if (!isSound || publicExponent < 3n) return [];
      return ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"];
    }
    case "ec":
      if (namedCurve === "prime256v1") return ["ES256"];
      return namedCurve === "secp384r1" ? ["ES384"] : [];
    case "ed25519":
      return ["EdDSA"];
    default:
      return [];
  }
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
