import type { SubscriptionRow } from "./sql/subscriptions.ts";
import type { NoticeMode } from "./subscription.ts";

/** What may be shown of a subscription: all but its secret. */
export interface Subscription {
  readonly id: string;
  readonly tenant: string;
  readonly url: string;
  /** Undefined: all of the tenant. */
  readonly queues: readonly string[] | undefined;
  readonly mode: NoticeMode;
  readonly group: string | undefined;
  /** "codeq" of those that clients of CodeQ made. */
  readonly format: "standard" | "codeq";
  readonly ttlSeconds: number;
  readonly minIntervalSeconds: number;
  readonly expiresAt: Date;
  /** "failing" after several failures in a row: it is still tried, more and more rarely. */
  readonly state: "active" | "failing";
  readonly failingSince: Date | undefined;
  /** Calls in a row that failed. */
  readonly failures: number;
  /** When it was last called, successfully or not. */
  readonly toldAt: Date | undefined;
  readonly lastStatus: number | undefined;
  readonly lastError: string | undefined;
  readonly createdAt: Date;
}

export function toSubscription(row: SubscriptionRow): Subscription {
  return {
    id: row.id,
    tenant: row.tenant,
    url: row.url,
    queues: row.queues ?? undefined,
    mode: row.mode,
    group: row.group_name ?? undefined,
    format: row.format,
    ttlSeconds: row.ttl_seconds,
    minIntervalSeconds: row.min_interval_seconds,
    expiresAt: row.expires_at,
    state: row.failing_since === null ? "active" : "failing",
    failingSince: row.failing_since ?? undefined,
    failures: row.failures,
    toldAt: row.told_at ?? undefined,
    lastStatus: row.last_status ?? undefined,
    lastError: row.last_error ?? undefined,
    createdAt: row.created_at,
  };
}
