import { createHmac } from "node:crypto";
import { describe, expect, it } from "vitest";
import { createWebhookSecret, verifyWebhook, type WebhookHeaders } from "../signature.ts";
import { signedNotice } from "./notice.ts";
import { FAILING_AFTER, verdictOfNotice } from "./pause.ts";

const NOW = new Date("2026-03-01T10:00:00.000Z");
const notice = {
  id: "0f8fad5b-d9cb-469f-a165-70867728950e",
  subscription: "7c9e6679-7425-40de-944b-e07fc1f90ae7",
  tenant: "acme",
  queues: [
    { queue: "mails", waiting: 3 },
    { queue: "pictures", waiting: 100 },
  ],
};

describe("a notice", () => {
  it("is signed as webhooks are, and tells no more than where work waits", () => {
    const secret = createWebhookSecret();
    const { body, headers } = signedNotice(notice, "standard", [secret], NOW);
    expect(JSON.parse(body)).toEqual({
      id: notice.id,
      type: "work.available",
      at: "2026-03-01T10:00:00.000Z",
      data: { subscription: notice.subscription, tenant: "acme", queues: notice.queues },
    });
    expect(headers).toMatchObject({ "webhook-id": notice.id, "content-type": "application/json" });
    verifyWebhook(headers as unknown as WebhookHeaders, body, [secret], NOW);
  });

  it("has the fields and the signature that receivers of CodeQ know", () => {
    const { body, headers } = signedNotice(notice, "codeq", ["a secret of CodeQ"], NOW);
    expect(JSON.parse(body)).toEqual({
      eventType: "mails",
      available: true,
      queueDepth: 3,
      claimUrl: "/v1/codeq/tasks/claim",
      sentAt: "2026-03-01T10:00:00.000Z",
      notificationId: `ntf-${notice.id}`,
    });
    const timestamp = headers["x-codeq-timestamp"] ?? "";
    const expected = createHmac("sha256", "a secret of CodeQ").update(`${timestamp}.${body}`);
    expect(headers["x-codeq-signature"]).toBe(expected.digest("hex"));
    expect(Number(timestamp)).toBe(NOW.getTime() / 1_000);
  });
});

describe("a call", () => {
  const verdict = (outcome: Parameters<typeof verdictOfNotice>[0], failures = 0) =>
    verdictOfNotice(outcome, failures, { now: NOW, random: () => 0.5 });

  it("that was answered with 2xx told", () => {
    const expected = { isTold: true, isFailing: false, pauseSeconds: 0 };
    for (const status of [200, 204, 299]) {
      expect(verdict({ status, retryAfter: undefined }, 20)).toEqual(expected);
    }
  });

  it("that failed is repeated later and later, and after some fails", () => {
    const pauses = Array.from({ length: 9 }, (_, failures) =>
      verdict({ status: 500, retryAfter: undefined }, failures),
    );
    expect(pauses.map((one) => one.pauseSeconds)).toEqual([5, 10, 20, 40, 80, 160, 300, 300, 300]);
    expect(pauses.map((one) => one.isFailing).indexOf(true)).toBe(FAILING_AFTER - 1);
    expect(verdict({ isRefused: false }).pauseSeconds).toBe(5);
    expect(verdict({ status: 503, retryAfter: "60" }).pauseSeconds).toBe(60);
  });

  it("that can never succeed fails at once", () => {
    const expected = { isTold: false, isFailing: true, pauseSeconds: 300 };
    expect(verdict({ status: 410, retryAfter: undefined })).toEqual(expected);
    expect(verdict({ isRefused: true })).toEqual(expected);
  });
});
