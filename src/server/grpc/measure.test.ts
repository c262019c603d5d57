import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { ProducerEvent } from "../../wire/generated/codeq/producer.ts";
import { FromProducer } from "../../wire/generated/tidemill/v1/producer.ts";
import { codeqDialect } from "../producer/codeq.ts";
import { tidemillDialect } from "../producer/tidemill.ts";
import { measure } from "./measure.ts";

const LIMITS = { entriesMax: 5, fieldsMax: 100 };
const codeq = (bytes: Uint8Array) => measure(bytes, codeqDialect.codec.shape, LIMITS);

const batchOf = (count: number): Uint8Array => {
  const tasks = Array.from({ length: count }, (_, n) => ({ seq: n, command: "mail" }));
  const event = { $case: "createBatch" as const, value: { tasks } };
  return ProducerEvent.encode(ProducerEvent.fromPartial({ event })).finish();
};

/** Fields that are empty. */
const repeated = (count: number, tag: number): number[] =>
  Array.from({ length: count }, () => [tag, 0x00]).flat();

describe("measure", () => {
  it("counts the entries of a batch", () => {
    expect(codeq(batchOf(0))).toBe(0);
    expect(codeq(batchOf(5))).toBe(5);
    expect(codeq(batchOf(6))).toBe("too-many");
  });

  it("counts entries without anything in them, and those of a second batch", () => {
    expect(codeq(Uint8Array.of(0x1a, 0x0c, ...repeated(6, 0x0a)))).toBe("too-many");
    const two = [0x1a, 0x06, 0x0a, 0, 0x0a, 0, 0x0a, 0];
    expect(codeq(Uint8Array.of(...two, ...two))).toBe("too-many");
  });

  it("counts names in a hello, which nobody has checked yet", () => {
    const capabilities = Array.from({ length: 6 }, () => "x");
    const value = { token: "t", client: { name: "", version: "", capabilities } };
    const hello = FromProducer.fromPartial({ message: { $case: "hello", value } });
    const bytes = FromProducer.encode(hello).finish();
    expect(measure(bytes, tidemillDialect.codec.shape, LIMITS)).toBe("too-many");
  });

  it("stops at fields that come again and again, although the last one counts", () => {
    const dates = repeated(101, 0x42);
    expect(codeq(Uint8Array.of(0x12, 0xca, 0x01, ...dates))).toBe("too-many");
  });

  it.each([
    ["a tag without a number", [0x02, 0x00]],
    ["a group", [0x1b, 0x1c]],
    ["an unknown kind", [0x1e]],
    ["a length beyond the end", [0x1a, 0x05, 0x00]],
    ["a length beyond the batch", [0x1a, 0x02, 0x0a, 0x05, 0x00, 0x00]],
    ["a number that does not end", [0x08, 0xff]],
    ["a number of eleven bytes", [0x08, ...Array<number>(10).fill(0xff), 0x01]],
    ["half of a fixed number", [0x1d, 0x00]],
  ])("refuses %s", (_what, bytes) => {
    expect(codeq(Uint8Array.from(bytes))).toBe("malformed");
  });

  it("skips fields that it does not know", () => {
    expect(codeq(Uint8Array.of(0x20, 0x01, 0x2d, 0, 0, 0, 0, 0x31, 0, 0, 0, 0, 0, 0, 0, 0))).toBe(
      0,
    );
  });

  it("lets nothing through that the decoder cannot read", () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 60 }), (bytes) => {
        if (typeof codeq(bytes) === "number") ProducerEvent.decode(bytes);
      }),
      { numRuns: 3_000 },
    );
  });
});
