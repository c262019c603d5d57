import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { InvalidInputError, TidemillError } from "../../base/errors.ts";
import { JsonText } from "../../base/json-text.ts";
import { CreateTask, ProducerEvent, ServerEvent } from "../../wire/generated/codeq/producer.ts";
import { measure } from "../grpc/measure.ts";
import { codeqDialect } from "./codeq.ts";
import { readEvent, toTask } from "./codeq-creates.ts";
import type { Move, SoundTask } from "./dialect.ts";

/** What generated code makes of an event. */
function expected({ event }: ProducerEvent): Move {
  switch (event?.$case) {
    case "hello":
      return { kind: "hello", hello: { token: event.value.token, producerId: "" } };
    case "create":
      return toCreate([event.value], false);
    case "createBatch":
      return toCreate(event.value.tasks, true);
    default:
      return { kind: "unknown" };
  }
}

function toCreate(given: readonly CreateTask[], isBatch: boolean): Move {
  const seqs = given.map(({ seq }) => (seq <= Number.MAX_SAFE_INTEGER ? Number(seq) : seq));
  const tasks = given.map(toTask);
  return { kind: "create", create: { seq: 0n, seqs, tasks, isAtomic: false, isBatch } };
}

const int32 = fc.integer({ min: -(2 ** 31), max: 2 ** 31 - 1 });
const text = fc.oneof(fc.constant(""), fc.string({ unit: "binary", maxLength: 40 }));
const payload = fc.oneof(
  fc.json().map((json) => Buffer.from(json)),
  fc.uint8Array({ maxLength: 20 }).map((bytes) => Buffer.from(bytes)),
  fc.constant(Buffer.from('{"replaced":"\ufffd"}')),
);
const plain = fc.record({
  seq: fc.oneof(fc.bigInt(0n, 2n ** 64n - 1n), fc.bigInt(0n, 1_000n)),
  command: fc.oneof(fc.constantFrom("mail", "letter", "größe", " "), text),
  payload,
  priority: fc.oneof(fc.constantFrom(0, 5), int32),
  maxAttempts: fc.oneof(fc.constantFrom(0, 3), int32),
});
const rare = fc.record({
  webhook: fc.constantFrom("", "https://a.example/x", "nothing"),
  idempotencyKey: text,
  runAt: fc.option(fc.date({ noInvalidDate: true }), { nil: undefined }),
  delaySeconds: int32,
  traceParent: text,
  traceState: text,
  deduplicationKey: fc.constantFrom("", "d"),
  taskId: fc.constantFrom("", "t"),
});
const create = fc.oneof(
  { weight: 3, arbitrary: plain.map((one) => CreateTask.fromPartial(one)) },
  fc.tuple(plain, rare).map(([one, more]) => CreateTask.fromPartial({ ...one, ...more })),
);
const event = fc.oneof(
  fc.array(create, { maxLength: 8 }).map((tasks): ProducerEvent["event"] => {
    return { $case: "createBatch", value: { tasks } };
  }),
  create.map((value): ProducerEvent["event"] => ({ $case: "create", value })),
  text.map((token): ProducerEvent["event"] => ({ $case: "hello", value: { token } })),
);

const bytesOf = ({ payload: given }: SoundTask): Buffer =>
  given instanceof JsonText ? Buffer.from(given.text) : Buffer.from(given);

/** Two errors are the same when they say the same. */
const told = (move: Move): unknown =>
  move.kind !== "create"
    ? move
    : {
        ...move.create,
        tasks: move.create.tasks.map((one) =>
          one instanceof TidemillError ? one.message : { ...one, payload: bytesOf(one) },
        ),
      };

describe("creates that are read by hand", () => {
  it("are what generated code makes of them", () => {
    fc.assert(
      fc.property(fc.array(event, { minLength: 1, maxLength: 2 }), (events) => {
        const messages = events.map((one) => ProducerEvent.encode({ event: one }).finish());
        const bytes = Buffer.concat(messages);
        expect(told(readEvent(bytes))).toEqual(told(expected(ProducerEvent.decode(bytes))));
      }),
      { numRuns: 500 },
    );
  });

  it("are the same for every message that is not turned away before", () => {
    const limits = { entriesMax: 100, fieldsMax: 100 };
    // Mostly fields of a batch, whatever is in them.
    const field = fc.tuple(
      fc.constantFrom(0x08, 0x12, 0x1a, 0x20, 0x2a, 0x30, 0x42, 0x48, 0x7a, 0x0d, 0x11),
      fc.uint8Array({ maxLength: 12 }),
    );
    const anyMessage = fc.array(field, { maxLength: 6 }).map((fields) => {
      const task = fields.flatMap(([tag, value]) => [tag, value.length, ...value]);
      return [0x1a, task.length + 2, 0x0a, task.length, ...task];
    });
    let read = 0;
    fc.assert(
      fc.property(anyMessage, (message) => {
        const bytes = Buffer.from(message);
        if (typeof measure(bytes, codeqDialect.codec.shape, limits) !== "number") return;
        read += 1;
        expect(told(readEvent(bytes))).toEqual(told(expected(ProducerEvent.decode(bytes))));
      }),
      { numRuns: 3_000 },
    );
    expect(read).toBeGreaterThan(100);
  });

  it("have JSON for their payload only where every byte of it is a text's", () => {
    const payloads = [Buffer.of(0x22, 0xff, 0x22), Buffer.from('"\ufffd"'), Buffer.from("{")];
    const tasks = payloads.map((one) => CreateTask.fromPartial({ command: "a", payload: one }));
    const bytes = ProducerEvent.encode({ event: { $case: "createBatch", value: { tasks } } });
    const move = readEvent(Buffer.from(bytes.finish()));
    if (move.kind !== "create") expect.fail("no create");
    const given = move.create.tasks.map((one) => ("payload" in one ? one.payload : undefined));
    expect(given).toEqual([payloads[0], new JsonText('"\ufffd"'), payloads[2]]);
  });

  it("share their options when they are alike", () => {
    const tasks = ["a", "a", "b", "a"].map((command) => CreateTask.fromPartial({ command }));
    const bytes = ProducerEvent.encode({ event: { $case: "createBatch", value: { tasks } } });
    const move = readEvent(Buffer.from(bytes.finish()));
    if (move.kind !== "create") expect.fail("no create");
    const options = move.create.tasks.map((one) => ("options" in one ? one.options : undefined));
    expect([options[0] === options[1], options[1] === options[2]]).toEqual([true, false]);
  });
});

it("acks that are written by hand are read by generated code", () => {
  const seq = fc.oneof(fc.nat(), fc.bigInt(2n ** 53n, 2n ** 64n - 1n));
  const result = fc.oneof(
    fc.bigInt(1n, 2n ** 63n).map(String),
    fc.string({ unit: "binary", minLength: 1 }).map((said) => new InvalidInputError(said)),
  );
  fc.assert(
    fc.property(fc.array(fc.tuple(seq, result), { maxLength: 20 }), (acks) => {
      const [seqs, results] = [acks.map(([one]) => one), acks.map(([, one]) => one)];
      const given = { seq: 0n, seqs, tasks: [], isAtomic: false, isBatch: true };
      const read = codeqDialect.answers(given, results).flatMap((out) => {
        const { event: said } = ServerEvent.decode(codeqDialect.codec.encode(out));
        return said?.$case === "createAckBatch" ? said.value.acks : [];
      });
      expect(read).toEqual(
        acks.map(([number, one]) => ({
          seq: BigInt(number),
          ok: typeof one === "string",
          taskId: typeof one === "string" ? one : "",
          errorMessage: typeof one === "string" ? "" : Buffer.from(one.message).toString(),
        })),
      );
    }),
    { numRuns: 300 },
  );
});
