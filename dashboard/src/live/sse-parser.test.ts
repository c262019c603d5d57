import fc from "fast-check";
import { expect, it } from "vitest";
import { SseParser } from "./sse-parser.ts";

const TEXT =
  'id: e-1\nevent: ready\ndata: {"after":"e-1"}\n\n: heartbeat\n\nevent: summary\r\n' +
  "data: first\ndata: second\r\n\n";
const MESSAGES = [
  { event: "ready", data: '{"after":"e-1"}', id: "e-1" },
  { event: "summary", data: "first\nsecond", id: undefined },
];

it("puts messages together however they were cut", () => {
  fc.assert(
    fc.property(fc.array(fc.integer({ min: 0, max: TEXT.length })), (cuts) => {
      const parser = new SseParser();
      const places = [0, ...cuts.sort((a, b) => a - b), TEXT.length];
      const told = places.slice(1).flatMap((to, at) => parser.push(TEXT.slice(places[at], to)));
      expect(told).toEqual(MESSAGES);
    }),
  );
});

it("keeps back what is not complete", () => {
  const parser = new SseParser();
  expect(parser.push("event: summary\ndata: {}\n")).toEqual([]);
  expect(parser.push("\n")).toHaveLength(1);
});

it("does not gather a line without an end for ever", () => {
  const parser = new SseParser();
  const piece = "x".repeat(1024 * 1024);
  expect(() => {
    for (let count = 0; count < 8; count += 1) parser.push(piece);
  }).toThrow("too long");
});
