import { InvalidInputError } from "../base/errors.ts";

const ENDPOINT_ID = /^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$/;
/** The endpoint without an address: it signs for tasks that name one. */
export const DEFAULT_ENDPOINT = "default";

export function isEndpointId(value: unknown): value is string {
  return typeof value === "string" && ENDPOINT_ID.test(value);
}

/** What a task may name as its webhook: an address, or the id of an endpoint of its tenant. */
export function checkWebhook(webhook: string): string {
  if (isEndpointId(webhook) && webhook !== DEFAULT_ENDPOINT) return webhook;
  const target = URL.canParse(webhook) ? new URL(webhook) : undefined;
  if (target === undefined || !/^https?:$/.test(target.protocol)) {
    throw new InvalidInputError(
      "webhook must be an http or https URL, or the id of a webhook endpoint, not " +
        JSON.stringify(webhook),
    );
  }
  if (target.username === "" && target.password === "") return webhook;
  throw new InvalidInputError("webhook must not hold a password: messages are signed, check that");
}
