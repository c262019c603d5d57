import { doubled, lost, torn, unexpected } from "./calls.ts";
import type { Rule } from "./rule.ts";

/** Events that were appended, and those that are there. */
export const EVENT_RULES: readonly Rule[] = [
  { name: "lost-event", count: "lost", find: ({ events }) => lost(events) },
  { name: "unexpected-event", count: null, find: ({ events }) => unexpected(events) },
  { name: "torn-append", count: null, find: ({ events }) => torn(events) },
  { name: "doubled-append", count: "doubled", find: ({ events }) => doubled(events) },
];
