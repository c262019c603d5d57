import { describe, expect, it } from "vitest";
import { SCENE } from "../scene.ts";
import { alter, handled, judge, line, named, remove, type Story } from "./story.ts";

/** As if it had never been appended. */
function forget({ truth }: Story, name: string): void {
  const { position } = remove(truth.events, named(name));
  truth.handled = truth.handled.filter((fact) => fact.position !== position);
}

/** All consumers handled it. */
function happen({ truth }: Story, name: string): void {
  truth.events.push({ position: "8", name });
  for (const [place, { name: consumer }] of SCENE.consumers.entries()) {
    truth.handled.push(handled(place + 16, consumer, 0, 8));
  }
  truth.checkpoints = truth.checkpoints.map((fact) => ({ ...fact, position: "8" }));
}

describe("a history of events is bad when", () => {
  it("an event that was promised is not there", () => {
    const judged = judge((story) => forget(story, "event-1"));
    expect(judged).toEqual({ rules: ["lost-event"], counts: { lost: 1 } });
  });

  it("an event is at another position than its producer was told", () => {
    const judged = judge(({ entries }) => {
      const what = { op: "append", phase: "ok", names: ["event-3"], positions: ["5"] } as const;
      alter(entries, (entry) => "positions" in entry.what && entry.what.positions?.[0] === "4", {
        what,
      });
    });
    expect(judged).toEqual({ rules: ["lost-event"], counts: { lost: 1 } });
  });

  it("an event is there that nobody appended", () => {
    const judged = judge((story) => happen(story, "stranger"));
    expect(judged).toEqual({ rules: ["unexpected-event"], counts: {} });
  });

  it("an event is there though its transaction was rolled back", () => {
    const judged = judge((story) => happen(story, "rolled-back-1"));
    expect(judged).toEqual({ rules: ["unexpected-event"], counts: {} });
  });

  it("a part of a transaction of unknown outcome is there", () => {
    const judged = judge((story) => forget(story, "event-5"));
    expect(judged).toEqual({ rules: ["torn-append"], counts: {} });
  });

  it("one name became two events", () => {
    const judged = judge((story) => happen(story, "event-1"));
    expect(judged).toEqual({ rules: ["doubled-append"], counts: { doubled: 1 } });
  });
});

describe("a history of events is good when", () => {
  it("a name that failed once was appended by another call", () => {
    const judged = judge((story) => {
      happen(story, "rolled-back-1");
      const what = { op: "append", phase: "unknown", names: ["rolled-back-1"] } as const;
      story.entries.push(line("producer-1", 1_100, what));
    });
    expect(judged).toEqual({ rules: [], counts: {} });
  });
});
