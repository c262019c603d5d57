import { describe, expect, it } from "vitest";
import type { Exited } from "../../src/checker/history.ts";
import { EXIT_GAVE_BACK } from "../../src/index.ts";
import { OUTAGE_CODE, REMOVED_CODE } from "../ending.ts";
import { POISON_CODE } from "../scene.ts";
import { check } from "./check.ts";
import { judge, line, type Story, tell } from "./story.ts";

const LAST_LINES = ["Error: nobody handled this", "    at somewhere"];

function end({ entries }: Story, how: Partial<Exited>): void {
  const none = { code: null, signal: null, asked: null, lastLines: LAST_LINES } as const;
  const what = { op: "exit", process: "worker-4", worker: null, ...none, ...how } as const;
  entries.push(line("harness", 3_000, what));
}

describe("a history of processes is bad when", () => {
  it.each<[string, Partial<Exited>]>([
    ["ended by itself with a code that nobody gave it", { code: 1 }],
    ["did so when it was told to stop", { code: 1, asked: "stop" }],
    ["gave work back that nobody asked it for", { code: EXIT_GAVE_BACK }],
    ["was killed by somebody else", { signal: "SIGKILL" }],
    ["ended by another signal than ours", { signal: "SIGSEGV", asked: "kill" }],
    ["was told to stop and did not listen", { signal: "SIGTERM", asked: "stop" }],
  ])("one %s", (_, how) => {
    expect(judge((story) => end(story, how))).toEqual({ rules: ["crashed-process"], counts: {} });
  });
});

describe("a history of processes is good when", () => {
  it.each<[string, Partial<Exited>]>([
    ["was killed", { signal: "SIGKILL", asked: "kill" }],
    ["ended in peace", { code: 0, asked: "stop" }],
    ["gave back what it could not end in time", { code: EXIT_GAVE_BACK, asked: "stop" }],
    ["was taken along by a task", { code: POISON_CODE }],
    ["could not begin without the database", { code: OUTAGE_CODE }],
    ["had been taken for dead", { code: REMOVED_CODE }],
  ])("one %s", (_, how) => {
    expect(judge((story) => end(story, how))).toEqual({ rules: [], counts: {} });
  });
});

it("a crash is told with the last that the process said", () => {
  const story = tell();
  end(story, { code: 1 });
  const exit = {
    op: "exit",
    process: "worker-4",
    worker: null,
    code: 1,
    signal: null,
    asked: null,
  };
  expect(check(story.entries, story.truth).violations).toEqual([
    {
      rule: "crashed-process",
      message: "worker-4 ended with 1",
      slice: [exit, ...LAST_LINES],
    },
  ]);
});
