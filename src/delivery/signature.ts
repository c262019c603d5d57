import { createHmac, hkdfSync, randomBytes, timingSafeEqual } from "node:crypto";
import { InvalidInputError, TidemillError } from "../base/errors.ts";

const SECRET_PREFIX = "whsec_";
const SECRET_BYTES = 32;
const CALL_LABEL = "tidemill http call v1";
const SECRET_BYTES_MIN = 24;
const SECRET_BYTES_MAX = 64;
/** The newest and the one that it replaces. */
const SECRETS_MAX = 2;
const TOLERANCE_SECONDS = 300;
/** Other versions and secrets of a sender may stand beside ours, but not any number of them. */
const SIGNATURES_LENGTH_MAX = 1_024;

/** A dot would let one signature stand for another id and time: see `digest`. */
const ID = /^[A-Za-z0-9_-]{1,255}$/;
const TIMESTAMP = /^(0|[1-9]\d{0,11})$/;

/** One delivery. A repetition keeps `id` and `body` and is signed anew with the time of its own. */
export interface WebhookMessage {
  readonly id: string;
  readonly body: string | Uint8Array;
}

/** The headers of Standard Webhooks, which its libraries verify in many languages. */
export interface WebhookHeaders {
  readonly "webhook-id": string;
  /** Seconds since 1970. */
  readonly "webhook-timestamp": string;
  /** `v1,` and base64, once per active secret, separated by spaces. */
  readonly "webhook-signature": string;
}

/** The message was not signed with this secret, was changed, or is too old. Do not act on it. */
export class WebhookSignatureError extends TidemillError {
  readonly code = "TM_WEBHOOK_SIGNATURE";
  readonly retryable = false;
}

/** A new secret for one endpoint. Show it once and store it as you store passwords of others. */
export function createWebhookSecret(): string {
  return `${SECRET_PREFIX}${randomBytes(SECRET_BYTES).toString("base64")}`;
}

/**
 * The secret with which calls of `http` queues are signed in the name of an endpoint. Whoever may
 * enqueue chooses what is called, and with which body: with the endpoint's own secret anybody of
 * the tenant could have any message signed, and send it to the endpoint as if it were a webhook.
 */
export function callSecret(secret: string): string {
  const key = hkdfSync("sha256", keyOf(secret), "", CALL_LABEL, SECRET_BYTES);
  return `${SECRET_PREFIX}${Buffer.from(key).toString("base64")}`;
}

/**
 * Signs a message for one endpoint. During a rotation `secrets` are the new and the old one, and
 * receivers accept the message with either. Without a usable secret nothing is signed or sent.
 */
export function signWebhook(
  { id, body }: WebhookMessage,
  secrets: readonly string[],
  now: Date,
): WebhookHeaders {
  if (!ID.test(id)) {
    throw new InvalidInputError("the id of a webhook must have up to 255 of A-Z a-z 0-9 _ -");
  }
  const timestamp = String(Math.floor(now.getTime() / 1_000));
  if (!TIMESTAMP.test(timestamp)) throw new InvalidInputError("the time of a webhook is no time");
  const signatures = keysOf(secrets).map(
    (key) => `v1,${digest(key, { id, timestamp, body }).toString("base64")}`,
  );
  return {
    "webhook-id": id,
    "webhook-timestamp": timestamp,
    "webhook-signature": signatures.join(" "),
  };
}

/**
 * Throws unless one of `secrets` signed exactly these bytes within five minutes of `now`. Verify
 * the body as it arrived, before parsing. A copy that comes again within that time passes again:
 * remember `webhook-id` if a message must act once.
 */
export function verifyWebhook(
  headers: WebhookHeaders,
  body: string | Uint8Array,
  secrets: readonly string[],
  now: Date,
): void {
  const keys = keysOf(secrets);
  const { "webhook-id": id, "webhook-timestamp": timestamp, "webhook-signature": list } = headers;
  if (!isText(id, ID) || !isText(timestamp, TIMESTAMP) || !isText(list, /./)) {
    throw new WebhookSignatureError(
      "webhook-id, webhook-timestamp and webhook-signature must be there and well-formed",
    );
  }
  const awaySeconds = Math.abs(now.getTime() / 1_000 - Number(timestamp));
  // Not ">": a date that is none is as far away as can be.
  if (!(awaySeconds <= TOLERANCE_SECONDS)) {
    throw new WebhookSignatureError(
      `the message was not signed within ${TOLERANCE_SECONDS / 60} minutes of now: ` +
        "it is a copy, or one of the clocks is wrong",
    );
  }
  if (list.length > SIGNATURES_LENGTH_MAX) {
    throw new WebhookSignatureError("webhook-signature is too long");
  }
  const given = signaturesIn(list);
  const isSigned = keys
    .map((key) => digest(key, { id, timestamp, body }))
    .some((expected) => given.some((one) => timingSafeEqual(one, expected)));
  if (!isSigned) {
    throw new WebhookSignatureError(
      "no signature fits: verify the bytes as they arrived, with the secret of this endpoint",
    );
  }
}

function isText(value: unknown, pattern: RegExp): value is string {
  return typeof value === "string" && pattern.test(value);
}

interface Signed {
  readonly id: string;
  readonly timestamp: string;
  readonly body: string | Uint8Array;
}

/** Over `id.timestamp.body`. Neither of the first two can hold a dot, so all bytes have a place. */
function digest(key: Buffer, { id, timestamp, body }: Signed): Buffer {
  return createHmac("sha256", key).update(`${id}.${timestamp}.`).update(body).digest();
}

/** The well-formed `v1` signatures of a list; those of other versions are for other readers. */
function signaturesIn(list: string): Buffer[] {
  return list.split(" ").flatMap((one) => {
    const [, text] = /^v1,([A-Za-z0-9+/]{43}=)$/.exec(one) ?? [];
    return text === undefined ? [] : [Buffer.from(text, "base64")];
  });
}

/** Refuses a blank secret above all: an empty key signs as readily as any. */
function keysOf(secrets: readonly string[]): Buffer[] {
  if (secrets.length === 0 || secrets.length > SECRETS_MAX) {
    throw new InvalidInputError(
      `an endpoint has one secret, or ${SECRETS_MAX} during a rotation, not ${secrets.length}`,
    );
  }
  return secrets.map(keyOf);
}

/** Refuses what cannot sign, for those who are about to store it. Does not repeat it. */
export function requireWebhookSecret(secret: unknown): void {
  keyOf(typeof secret === "string" ? secret : "");
}

function keyOf(secret: string): Buffer {
  const text = secret.startsWith(SECRET_PREFIX) ? secret.slice(SECRET_PREFIX.length) : "";
  const key = Buffer.from(text, "base64");
  const isExact = key.toString("base64") === text;
  if (isExact && key.length >= SECRET_BYTES_MIN && key.length <= SECRET_BYTES_MAX) return key;
  throw new InvalidInputError(
    `a webhook secret must be ${SECRET_PREFIX} and the base64 of ${SECRET_BYTES_MIN} to ` +
      `${SECRET_BYTES_MAX} random bytes`,
  );
}
