import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { BUILD_MS_MAX, CLIENTS, GoPrograms, type Line, missingGo } from "./go-programs.ts";
import { SAMPLES, type Sample, toProtoJson } from "./samples.ts";

const GOLDEN = new URL("golden.json", import.meta.url);
const golden = (): Record<string, string> =>
  JSON.parse(readFileSync(GOLDEN, "utf8")) as Record<string, string>;

/** Fields that nobody knows: a varint, eight bytes, a text, a nested message, four bytes. */
const UNKNOWN = "b83f96018140010000000000000092400568656c6c6f9a40020a00a54001000000";

describe("messages of CodeQ, by the bytes that Go made", () => {
  it.each(SAMPLES.map((sample) => [sample.name, sample] as const))("%s", (name, sample) => {
    const expected = golden()[name];
    expect(sample.codec.encode(sample.message).toString("hex")).toBe(expected);
    expect(sample.codec.decode(Buffer.from(expected ?? "", "hex"))).toEqual(sample.message);
  });

  it("fields that are not known are skipped", () => {
    for (const { codec, message, name } of SAMPLES) {
      const bytes = Buffer.concat([codec.encode(message), Buffer.from(UNKNOWN, "hex")]);
      expect(codec.decode(bytes), name).toEqual(message);
    }
  });

  it("an event that is not known has no body", () => {
    for (const type of ["workerpb.WorkerEvent", "producerpb.ProducerEvent"]) {
      const { codec } = sampleOf(type);
      expect(codec.decode(Buffer.from("7a020a00", "hex"))).toEqual({ event: undefined });
    }
  });

  it("bytes that end too early are refused", () => {
    const { codec, message } = sampleOf("workerpb.Task, full");
    const bytes = codec.encode(message);
    expect(() => codec.decode(bytes.subarray(0, -1))).toThrow();
  });
});

describe(`messages of CodeQ, by ${CLIENTS}`, () => {
  it("are the same bytes in both directions", { timeout: BUILD_MS_MAX }, async (context) => {
    const missing = await missingGo();
    if (missing !== undefined) context.skip(missing);
    const programs = await GoPrograms.build("transcode");
    try {
      const ask = async (lines: Line[]): Promise<Line[]> => {
        const program = programs.start("transcode");
        program.write(lines);
        expect(await program.stop(), program.log).toBe(0);
        return program.lines;
      };

      // Go writes, we read: the golden file is Go's, and the tests above read it.
      const written = await ask(
        SAMPLES.map(({ type, message }) => ({ type, json: toProtoJson(message) })),
      );
      const bytes = SAMPLES.map(({ name }, index) => [name, written[index]?.["hex"]]);
      const text = `${JSON.stringify(Object.fromEntries(bytes), undefined, 2)}\n`;
      await expect(text).toMatchFileSnapshot(GOLDEN.pathname);

      // We write, Go reads: the same values, and unknown fields are kept as they are.
      const hexes = SAMPLES.map(({ codec, message }) => codec.encode(message).toString("hex"));
      const read = await ask(SAMPLES.map(({ type }, index) => ({ type, hex: hexes[index] })));
      const readMore = await ask(
        SAMPLES.map(({ type }, index) => ({ type, hex: `${hexes[index]}${UNKNOWN}` })),
      );
      for (const [index, { name, message }] of SAMPLES.entries()) {
        const hex = hexes[index] ?? "";
        expect(read[index], name).toMatchObject({ json: toProtoJson(message), again: hex });
        expect(readMore[index]?.["again"], name).toBe(`${hex}${UNKNOWN}`);
      }
    } finally {
      programs.close();
    }
  });
});

function sampleOf(start: string): Sample {
  const found = SAMPLES.find(({ name }) => name.startsWith(start));
  if (found === undefined) throw new Error(`no sample ${start}`);
  return found;
}
