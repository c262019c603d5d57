import { describe, expect, it } from "vitest";
import { ConfigError } from "../base/errors.ts";
import { MessageStore, type Note } from "./message-store.ts";
import type { Buffered } from "./partition-book.ts";

describe("MessageStore", () => {
  it.each([
    new Error("Connection terminated unexpectedly"), // As the driver says it, without a code.
    Object.assign(new Error("permission denied"), { code: "42501" }),
    new ConfigError("something is wrong here"),
  ])("does not take for the message's fault: $message", async (cause) => {
    const encoder = { encode: () => Promise.reject(cause) };
    const rules = { queue: "jobs", tenant: undefined, keyOfMessage: false, decode: undefined };
    const store = new MessageStore({ encoder, rules } as never);
    const message = {
      offset: 0n,
      key: undefined,
      value: Buffer.from("{}"),
      headers: [],
      timestampMs: undefined,
    };
    const one: Buffered<Note> = {
      partition: 0,
      message,
      nextOffset: 1n,
      bytes: 1,
      note: undefined,
    };
    const ref = { source: "s", topic: "t", topicId: "i" };
    const parts = [{ partition: 0, from: 0n, to: 1n, messages: [one] }];
    const storing = store.store(ref, { topic: "t", priority: "normal" }, parts);
    await expect(storing).rejects.toBe(cause);
    expect(one.note).toBeUndefined();
  });
});
