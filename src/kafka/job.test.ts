import { describe, expect, it } from "vitest";
import { JsonText } from "../base/json-text.ts";
import { type JobRules, type PlacedMessage, readJob } from "./job.ts";

const RULES: JobRules = {
  queue: undefined,
  tenant: undefined,
  keyOfMessage: false,
  decode: undefined,
};

function message(value: unknown, more: Partial<PlacedMessage> = {}): PlacedMessage {
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return {
    topic: "a.jobs.high",
    partition: 0,
    offset: 7n,
    key: Buffer.from("k"),
    value: Buffer.from(text),
    headers: [],
    timestampMs: 0,
    ...more,
  };
}

const PLACE = { topic: "a.jobs.high", partition: 0, priority: "high" } as const;

const read = (value: unknown, rules: Partial<JobRules> = {}): ReturnType<typeof readJob> =>
  readJob(message(value), PLACE, { ...RULES, ...rules });

const refusal = (value: unknown, rules: Partial<JobRules> = {}): string => {
  const job = read(value, rules);
  return "refusal" in job ? job.refusal : "";
};

describe("readJob", () => {
  it("takes the payload letter by letter, and the priority of the topic", () => {
    expect(read('{"queue":"mail","payload":{"n": 12345678901234567890}}')).toEqual({
      queue: "mail",
      tenant: undefined,
      task: { payload: new JsonText('{"n": 12345678901234567890}'), priority: "high" },
    });
  });

  it("knows everything that an enqueue knows", () => {
    const job = {
      queue: "mail",
      payload: null,
      key: "order 1",
      kind: "receipt",
      priority: 3,
      tenant: "acme",
      idempotencyKey: "once",
      idempotencySeconds: 60,
      delaySeconds: 5,
      maxAttempts: 2,
      timeoutSeconds: 9,
      webhook: "https://example.com",
    };
    const { queue, payload: _payload, key, ...same } = job;
    expect(read(job)).toEqual({
      queue,
      tenant: "acme",
      task: { ...same, payload: new JsonText("null"), partitionKey: key },
    });
  });

  it("knows the names of the columns of Foreman", () => {
    const job = {
      id: "job-1",
      tenant_id: "acme",
      state: "pending",
      priority: "low",
      max_retries: 4,
      payload: {},
    };
    expect(read(job, { queue: "calls" })).toEqual({
      queue: "calls",
      tenant: "acme",
      task: {
        payload: new JsonText("{}"),
        priority: "low",
        tenant: "acme",
        idempotencyKey: "job-1",
        maxAttempts: 5,
      },
    });
    expect(read({ ...job, idempotency_key: "k" }, { queue: "calls" })).toMatchObject({
      task: { idempotencyKey: "k" },
    });
    expect(refusal({ ...job, state: "completed" }, { queue: "calls" })).toContain("state");
  });

  it("takes the key and the trace of the message where it is told to", () => {
    const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    const traced = message(
      { queue: "q" },
      { headers: [{ name: "traceparent", value: Buffer.from(traceparent) }] },
    );
    expect(readJob(traced, PLACE, { ...RULES, keyOfMessage: true })).toMatchObject({
      task: { partitionKey: "k", traceParent: traceparent },
    });
    expect(read({ queue: "q", key: "own" }, { keyOfMessage: true })).toMatchObject({
      task: { partitionKey: "own" },
    });
  });

  it("lets a decoder of your own read what is not JSON", () => {
    const decode = ({ value, topic }: PlacedMessage) => ({
      queue: topic,
      payload: new Uint8Array(value ?? []),
    });
    expect(read("\u0001\u0002", { decode })).toMatchObject({
      queue: "a.jobs.high",
      task: { payload: new Uint8Array([1, 2]) },
    });
    const failing = (): never => {
      throw new Error("no such field");
    };
    expect(refusal("x", { decode: failing })).toBe("no such field");
  });

  it.each<[name: string, value: unknown, reason: string]>([
    ["no JSON", "{", "the message is not JSON"],
    ["a list", [1], "the message is not a JSON object"],
    ["null", "null", "the message is not a JSON object"],
    ["no queue", {}, "names no queue"],
    ["a queue that cannot be", { queue: " " }, "a queue needs a name"],
    ["a queue that is too long", { queue: "q".repeat(201) }, "at most 200 bytes"],
    ["an unknown member", { queue: "q", prioriy: 1 }, "prioriy"],
    ["a member twice", { queue: "q", tenant: "a", tenant_id: "b" }, "tenant twice"],
    ["a wrong type", { queue: 1 }, "queue: "],
    ["a priority that is none", { queue: "q", priority: 11 }, "priority: "],
    ["both limits", { queue: "q", maxAttempts: 1, maxRetries: 1 }, "not both"],
    ["half a character", '{"queue":"q\\ud800"}', "half a character"],
    ["a stray correlation", { queue: "q", correlation_id: "c" }, "goes with a targetUrl"],
  ])("refuses %s and says why", (_, value, reason) => {
    expect(refusal(value)).toContain(reason);
  });

  it("says what a queue of kind http is to call", () => {
    const call = { queue: "calls", target_url: "https://example.com/pay" };
    expect(read(call)).toMatchObject({ task: { http: { targetUrl: "https://example.com/pay" } } });
    expect(read({ ...call, correlation_id: "c" })).toMatchObject({
      task: { http: { headers: { "x-correlation-id": "c" } } },
    });
  });

  it("refuses what has no value, or is no text", () => {
    const of = (value: Buffer | undefined): unknown =>
      readJob(message("", { value }), PLACE, RULES);
    expect(of(undefined)).toEqual({ refusal: "the message has no value" });
    expect(of(Buffer.from([0x7b, 0xff, 0x7d]))).toEqual({ refusal: "the message is not UTF-8" });
  });

  it("refuses other tenants than its own", () => {
    expect(refusal({ queue: "q", tenant: "b" }, { tenant: "a" })).toContain('tenant "a"');
    expect(read({ queue: "q" }, { tenant: "a" })).toMatchObject({ tenant: "a" });
  });
});
