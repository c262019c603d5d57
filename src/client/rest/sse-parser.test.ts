import { expect, it } from "vitest";
import { SseParser } from "./sse-parser.ts";

const TEXT = [
  ': heartbeat\n\nid: a-1\nevent: task\ndata: {"n":1}\n\n',
  "event:reset\r\ndata:x\u2028\r\ndata: y\r\n\r\n",
].join("");
const MESSAGES = [
  { id: "a-1", event: "task", data: '{"n":1}' },
  { id: undefined, event: "reset", data: "x\u2028\ny" },
];

it("finds the messages of a stream, wherever it is cut", () => {
  for (let size = 1; size <= TEXT.length; size += 1) {
    const parser = new SseParser();
    const found = [];
    for (let at = 0; at < TEXT.length; at += size)
      found.push(...parser.take(TEXT.slice(at, at + size)));
    expect(found).toEqual(MESSAGES);
  }
});

it("refuses a message without an end", () => {
  const parser = new SseParser();
  expect(() => parser.take("x".repeat(2 ** 20 + 1))).toThrow("a message is too large");
});
