import { expect, it } from "vitest";
import { ServerEvent } from "../../wire/generated/codeq/producer.ts";
import { encoderOf } from "./encoder.ts";

const ack = (seq: bigint): ServerEvent => ({
  event: { $case: "createAck", value: { seq, ok: true, taskId: "7", errorMessage: "" } },
});

it("leaves earlier messages as they were", () => {
  const encode = encoderOf(ServerEvent);
  const first = encode(ack(1n));
  const second = encode(ack(2n));
  expect([first, second].map((bytes) => ServerEvent.decode(bytes))).toEqual([ack(1n), ack(2n)]);
});

it("begins anew behind a message that cannot be encoded", () => {
  const encode = encoderOf(ServerEvent);
  expect(() => encode(ack(2n ** 64n))).toThrow("too large");
  expect(encode(ack(3n))).toEqual(ServerEvent.encode(ack(3n)).finish());
});
