import { createHmac } from "node:crypto";
import { expect, it } from "vitest";
import { signedMessage, standardBody, type WebhookEvent } from "./message.ts";
import { createWebhookSecret, verifyWebhook } from "./signature.ts";

const NOW = new Date("2026-03-01T12:00:00Z");
const EVENT: WebhookEvent = {
  id: "018f2f5c-0000-7000-8000-000000000001",
  type: "task.completed",
  tenant: "acme",
  taskId: "4711",
  at: new Date("2026-03-01T11:59:59.5Z"),
  task: {
    queue: "mails",
    kind: "digest",
    priority: 5,
    attempt: 2,
    maxAttempts: 5,
    createdAt: "2026-03-01T13:00:00+02:00",
  },
  result: '{"sent":12345678901234567890}',
  reason: undefined,
};

it("a completed task is told with its result, byte for byte", () => {
  expect(standardBody(EVENT)).toBe(
    '{"id":"018f2f5c-0000-7000-8000-000000000001","type":"task.completed",' +
      '"at":"2026-03-01T11:59:59.500Z","data":{"taskId":"4711","queue":"mails","kind":"digest",' +
      '"tenant":"acme","priority":5,"state":"completed","attempt":2,"maxAttempts":5,' +
      '"createdAt":"2026-03-01T11:00:00.000Z","result":{"sent":12345678901234567890}}}',
  );
});

it("an end without a result has a reason, and one that is too large its size", () => {
  const dead: WebhookEvent = {
    ...EVENT,
    type: "task.dead",
    task: { ...EVENT.task, cause: "attempts_exhausted", resultBytes: 300_000 },
    result: undefined,
    reason: 'no "mail"',
  };
  const { data, type } = JSON.parse(standardBody(dead)) as { data: object; type: string };
  expect(type).toBe("task.dead");
  expect(data).toMatchObject({
    state: "dead",
    cause: "attempts_exhausted",
    reason: 'no "mail"',
    resultBytes: 300_000,
  });
  expect(data).not.toHaveProperty("result");
});

it("a result that is no JSON does not spoil the message", () => {
  const broken = standardBody({ ...EVENT, result: '"x"},"tenant":"other' });
  expect((JSON.parse(broken) as { data: object }).data).not.toHaveProperty("result");
});

it("both secrets sign during a rotation", () => {
  const secrets = [createWebhookSecret(), createWebhookSecret()];
  const { body, headers } = signedMessage(EVENT, "standard", secrets, NOW);
  const given = {
    "webhook-id": headers["webhook-id"] ?? "",
    "webhook-timestamp": headers["webhook-timestamp"] ?? "",
    "webhook-signature": headers["webhook-signature"] ?? "",
  };
  for (const secret of secrets) verifyWebhook(given, body, [secret], NOW);
  expect(() => verifyWebhook(given, body, [createWebhookSecret()], NOW)).toThrow(/no signature/);
  expect(headers["content-type"]).toBe("application/json");
});

it("receivers of CodeQ find its fields, its headers, and the old secret during a rotation", () => {
  const failed: WebhookEvent = { ...EVENT, type: "task.cancelled", result: undefined };
  const { body, headers } = signedMessage(failed, "codeq", ["new-secret-of-mine", "old"], NOW);
  expect(JSON.parse(body)).toEqual({
    taskId: "4711",
    eventType: "mails",
    status: "FAILED",
    result: null,
    error: "cancelled",
    artifacts: [],
    completedAt: "2026-03-01T11:59:59.500Z",
  });
  const timestamp = String(NOW.getTime() / 1_000);
  expect(headers["x-codeq-timestamp"]).toBe(timestamp);
  const mac = createHmac("sha256", "old").update(`${timestamp}.${body}`).digest("hex");
  expect(headers["x-codeq-signature"]).toBe(mac);
  const { body: completed } = signedMessage(EVENT, "codeq", ["new"], NOW);
  expect(completed).toContain('"result":{"sent":12345678901234567890}}');
  expect(JSON.parse(completed)).toMatchObject({ status: "COMPLETED", error: "" });
  const artifacts = [{ name: "report", url: "https://files.example.com/1" }];
  const result = `{"$artifacts":${JSON.stringify(artifacts)},"result":1.0}`;
  const { body: made } = signedMessage({ ...EVENT, result }, "codeq", ["new"], NOW);
  expect(made).toContain('"result":1.0}');
  expect(JSON.parse(made)).toMatchObject({ artifacts, result: 1 });
  expect(() => signedMessage(EVENT, "codeq", [], NOW)).toThrow(/without a secret/);
});

const PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

it.each([
  [{ traceParent: PARENT }, { traceparent: PARENT }],
  [
    { traceParent: PARENT, traceState: "a=b" },
    { traceparent: PARENT, tracestate: "a=b" },
  ],
  [{ traceParent: PARENT, traceState: "a\r\nx: y" }, { traceparent: PARENT }],
  [{ traceParent: "nonsense", traceState: "a=b" }, {}],
  [{ traceParent: { a: 1 } }, {}],
])("of %j the trace is passed on if it is one", (trace, expected) => {
  const event = { ...EVENT, task: { ...EVENT.task, ...trace } };
  const { headers } = signedMessage(event, "standard", [createWebhookSecret()], NOW);
  const { traceparent, tracestate } = headers;
  expect({
    ...(traceparent === undefined ? {} : { traceparent }),
    ...(tracestate === undefined ? {} : { tracestate }),
  }).toEqual(expected);
});
