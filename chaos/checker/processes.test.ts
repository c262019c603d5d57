import { describe, expect, it } from "vitest";
import type { Exited } from "../../src/checker/history.ts";
import { EXIT_GAVE_BACK } from "../../src/index.ts";
import { OUTAGE_CODE, REMOVED_CODE } from "../ending.ts";
import { FAULTS } from "../faults/index.ts";
import { POISON_CODE, STOP_MS } from "../scene.ts";
import { check } from "./check.ts";
import { STOPS } from "./processes.ts";
import { fault, judge, line, type Story, tell } from "./story.ts";

const LAST_LINES = ["Error: nobody handled this", "    at somewhere"];

function end({ entries }: Story, how: Partial<Exited>): void {
  const none = { code: null, signal: null, asked: null, stopMs: null } as const;
  const one = { op: "exit", process: "worker-4", worker: null } as const;
  const what: Exited = { ...one, ...none, lastLines: LAST_LINES, ...how };
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
    ["was told to stop and had to be killed", { signal: "SIGKILL", asked: "stop", stopMs: 30_000 }],
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
    stopMs: null,
  };
  expect(check(story.entries, story.truth).violations).toEqual([
    {
      rule: "crashed-process",
      message: "worker-4 ended with 1",
      slice: [exit, ...LAST_LINES],
    },
  ]);
});

/** Of a worker that ends in peace at a deploy, so long after it was told to. */
function stopAfter(story: Story, stopMs: number, more: Partial<Exited> = {}, kind = "deploy") {
  const during = { from: 2_700, to: 2_900, bound: 1_000 };
  story.entries.push(line("harness", 3_100, fault(kind, ["worker-c"], during, 10)));
  end(story, { code: 0, asked: "stop", worker: "worker-c", stopMs, ...more });
}

/** A task kept the process from everything else until a while before it ended. */
const block = ({ entries }: Story, process: string, forMs: number): void => {
  const [fromMs, toMs] = [2_500 - forMs, 2_500];
  entries.push(line("harness", fromMs, { op: "block", process, fromMs, toMs }));
};

describe("a stop", () => {
  const late = { rules: ["late-stop"], counts: {} };
  const good = { rules: [], counts: {} };

  it("takes no longer than it may", () => {
    expect(judge((story) => stopAfter(story, STOP_MS))).toEqual(good);
    expect(judge((story) => stopAfter(story, STOP_MS + 1))).toEqual(late);
  });

  it("takes no longer because work was given back", () => {
    const code = EXIT_GAVE_BACK;
    expect(judge((story) => stopAfter(story, STOP_MS + 1, { code }))).toEqual(late);
  });

  it("may begin when a task lets go of the process", () => {
    const judged = (process: string, stopMs: number) =>
      judge((story) => {
        block(story, process, 1_000);
        stopAfter(story, stopMs);
      });
    expect(judged("worker-4", STOP_MS + 1_000)).toEqual(good);
    expect(judged("worker-4", STOP_MS + 1_001)).toEqual(late);
    expect(judged("worker-5", STOP_MS + 1_000)).toEqual(late);
  });

  it("of a producer ends when its last call does", () => {
    expect(judge((story) => stopAfter(story, STOP_MS + 1, { worker: null }))).toEqual(good);
  });

  it("of many at once may take longer", () => {
    expect(judge((story) => stopAfter(story, STOP_MS + 1, {}, "scale"))).toEqual(good);
  });

  it("is part of faults that the harness knows", () => {
    expect(FAULTS.map(({ kind }) => kind)).toEqual(expect.arrayContaining([...STOPS]));
  });
});
