import { expect, it } from "vitest";
import { murmur2, partitionOf } from "./partitioner.ts";

// As Kafka's own client has them, of which producers in Java are made.
const HASHES: [string, number][] = [
  ["", 275646681],
  ["21", -973932308],
  ["abc", 479470107],
  ["foobar", -790332482],
  ["a-little-bit-long-string", -985981536],
  ["a-little-bit-longer-string", -1486304829],
];

it("hashes keys as Kafka's own producers do", () => {
  for (const [key, hash] of HASHES) expect([key, murmur2(Buffer.from(key))]).toEqual([key, hash]);
});

it("finds a partition for every key, also where the hash is negative", () => {
  expect(partitionOf(Buffer.from("21"), 6)).toBe((-973932308 & 0x7fffffff) % 6);
  expect(partitionOf(Buffer.from("anything"), 1)).toBe(0);
});
