import { codeqHeaders, type SignedMessage } from "../message.ts";
import { signWebhook } from "../signature.ts";
import type { NoticeFormat } from "./subscription.ts";

/** So far tasks that wait are counted. */
export const WAITING_MAX = 100;

/** Work waits: a hint, and nothing of any task. */
export interface Notice {
  readonly id: string;
  readonly subscription: string;
  readonly tenant: string;
  /** With how many tasks wait in each, at least one. */
  readonly queues: readonly { readonly queue: string; readonly waiting: number }[];
}

/** Writes and signs a notice. `secrets` are the newest and, during a rotation, the one before. */
export function signedNotice(
  notice: Notice,
  format: NoticeFormat,
  secrets: readonly string[],
  now: Date,
): SignedMessage {
  const { id } = notice;
  const type = { "content-type": "application/json" };
  if (format === "codeq") {
    const body = codeqBody(notice, now);
    return { body, headers: { ...type, ...codeqHeaders(id, body, secrets, now) } };
  }
  const body = standardBody(notice, now);
  return { body, headers: { ...type, ...signWebhook({ id, body }, secrets, now) } };
}

function standardBody({ id, subscription, tenant, queues }: Notice, now: Date): string {
  const data = { subscription, tenant, queues };
  return JSON.stringify({ id, type: "work.available", at: now.toISOString(), data });
}

/** The fields of CodeQ's queue-ready notification, which is about one event type. */
function codeqBody({ id, queues: [first] }: Notice, now: Date): string {
  return JSON.stringify({
    eventType: first?.queue ?? "",
    available: true,
    queueDepth: first?.waiting ?? 0,
    claimUrl: "/v1/codeq/tasks/claim",
    sentAt: now.toISOString(),
    notificationId: `ntf-${id}`,
  });
}
