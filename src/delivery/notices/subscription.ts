import { InvalidInputError } from "../../base/errors.ts";
import { refuseUnknown, requireNumber, requireOneOf } from "../../base/options.ts";
import { NAME_BYTES_MAX, requireText } from "../../tasks/encode.ts";
import type { WebhookFormat } from "../message.ts";
import { requireWebhookSecret } from "../signature.ts";

export const NOTICE_MODES = ["fanout", "group", "hash"] as const;

/**
 * Who of those that subscribed to a queue is told: each of them; one of each group, in turns; or
 * the one that a hash of the queue's name chooses.
 */
export type NoticeMode = (typeof NOTICE_MODES)[number];

/** What a subscription is to be. */
export interface SubscriptionOptions {
  /** Where its notices go. */
  readonly url: string;
  /** Of the queues it is told of; they need not be there yet. Defaults to all of the tenant. */
  readonly queues?: readonly string[];
  /** Defaults to "fanout". */
  readonly mode?: NoticeMode;
  /** Whose turns it shares. Required with mode "group", and only then. */
  readonly group?: string;
  /** It ends after so long, unless it is renewed; at most 604,800, a week. Defaults to 300. */
  readonly ttlSeconds?: number;
  /** Two notices are never closer than this; at least 0.1, at most 86,400. Defaults to 5. */
  readonly minIntervalSeconds?: number;
  /** With which notices are signed, for several that share one. Defaults to one that is made. */
  readonly secret?: string;
}

export interface CheckedSubscription {
  readonly url: string;
  /** Undefined: all. */
  readonly queues: readonly string[] | undefined;
  readonly mode: NoticeMode;
  readonly group: string | undefined;
  readonly ttlSeconds: number;
  readonly minIntervalSeconds: number;
  readonly secret: string | undefined;
}

/** How a subscription is told, and by whom it was made. */
export type NoticeFormat = WebhookFormat;

const KEYS = ["url", "queues", "mode", "group", "ttlSeconds", "minIntervalSeconds", "secret"];
const URL_BYTES_MAX = 1_024;
export const QUEUES_MAX = 100;
export const TTL_SECONDS_MAX = 7 * 86_400;
export const MIN_INTERVAL_SECONDS_MAX = 86_400;
const TTL_SECONDS = 300;
const MIN_INTERVAL_SECONDS = 5;
const MIN_INTERVAL_SECONDS_MIN = 0.1;

export function checkSubscription(options: SubscriptionOptions): CheckedSubscription {
  refuseUnknown("subscription", options, KEYS);
  const { url, group, secret } = options;
  checkUrl(url);
  const mode = requireOneOf("mode", options.mode ?? "fanout", NOTICE_MODES);
  checkGroup(mode, group);
  if (secret !== undefined) requireWebhookSecret(secret);
  const { minIntervalSeconds = MIN_INTERVAL_SECONDS } = options;
  const range = { min: MIN_INTERVAL_SECONDS_MIN, max: MIN_INTERVAL_SECONDS_MAX };
  return {
    url,
    queues: checkQueues(options.queues),
    mode,
    group,
    ttlSeconds: requireTtl(options.ttlSeconds ?? TTL_SECONDS),
    minIntervalSeconds: requireNumber("minIntervalSeconds", minIntervalSeconds, range),
    secret,
  };
}

export function requireTtl(value: unknown): number {
  return requireNumber("ttlSeconds", value, { min: 1, max: TTL_SECONDS_MAX });
}

/** Whether it may be called is for the egress guard of whoever sends. */
function checkUrl(url: unknown): void {
  requireText("url", url, URL_BYTES_MAX);
  const text = String(url);
  const target = URL.canParse(text) ? new URL(text) : undefined;
  if (target === undefined || !/^https?:$/.test(target.protocol)) {
    throw new InvalidInputError("the url of a subscription must begin with https:// or http://");
  }
  if (target.username !== "" || target.password !== "") {
    throw new InvalidInputError(
      "the url of a subscription must not hold a password: notices are signed, check that",
    );
  }
}

function checkGroup(mode: NoticeMode, group: unknown): void {
  if ((mode === "group") !== (group !== undefined)) {
    throw new InvalidInputError('a subscription of mode "group" names its group, others have none');
  }
  if (group !== undefined) requireText("group", group, NAME_BYTES_MAX);
}

function checkQueues(queues: unknown): readonly string[] | undefined {
  if (queues === undefined) return undefined;
  if (!Array.isArray(queues) || queues.length === 0 || queues.length > QUEUES_MAX) {
    throw new InvalidInputError(
      `queues must be a list of 1 to ${QUEUES_MAX} names; leave it out for all of them`,
    );
  }
  for (const name of queues) requireText("each of queues", name, NAME_BYTES_MAX);
  return [...new Set(queues as string[])].sort();
}
