import { createHash, randomBytes } from "node:crypto";
import { Secret } from "../../base/secret.ts";

/** By which people and scanners of leaked secrets recognise one. */
export const API_KEY_PREFIX = "tmk_";
const API_KEY = /^tmk_([0-9a-f]{16})_[0-9a-f]{64}$/;
const API_KEY_ID = /^[0-9a-f]{16}$/;

export interface MintedKey {
  /** It is no secret: lists and logs show it. */
  readonly id: string;
  /** The prefix, the id, and 256 random bits. */
  readonly key: Secret;
  readonly hash: Buffer;
}

export function mintApiKey(): MintedKey {
  const id = randomBytes(8).toString("hex");
  const text = `${API_KEY_PREFIX}${id}_${randomBytes(32).toString("hex")}`;
  return { id, key: new Secret(text), hash: hashApiKey(text) };
}

/** Over the whole text, so that no part of one key fits another. */
export function hashApiKey(text: string): Buffer {
  return createHash("sha256").update(text).digest();
}

/** The id in a key; undefined when it is not a key. */
export function idOfApiKey(text: string): string | undefined {
  return API_KEY.exec(text)?.[1];
}

export function isApiKeyId(text: string): boolean {
  return API_KEY_ID.test(text);
}
