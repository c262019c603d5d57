import { describe, expect, it } from "vitest";
import type { What } from "../../src/checker/history.ts";
import type { Truth } from "../../src/checker/truth.ts";
import { orders, plain, SCENE } from "../scene.ts";
import { check, KEPT_MAX, RULES, type Verdict } from "./check.ts";
import {
  effect,
  end,
  handled,
  line,
  order,
  type Story,
  start,
  task,
  tell,
  token,
} from "./story.ts";

describe("a good history", () => {
  it("breaks no rule", () => {
    const { entries, truth } = tell();
    expect(check(entries, truth)).toMatchObject({
      violations: [],
      counts: {
        tasks: 18,
        events: 5,
        faults: 2,
        lost: 0,
        doubled: 0,
        reordered: 0,
        skipped: 0,
        repeated: 0,
        stuck: 0,
      },
    });
  });

  it("breaks none however the files of its processes are mixed", () => {
    const { entries, truth } = tell();
    const mixed = entries.toSorted((a, b) => b.proc.localeCompare(a.proc));
    expect(check(mixed, truth).violations).toEqual([]);
  });

  it("that is empty breaks nothing but that there must be something", () => {
    const empty: Truth = {
      atMs: 0,
      tasks: [],
      effects: [],
      events: [],
      handled: [],
      terms: [],
      firings: [],
      losses: [],
      returns: [],
      gaps: [],
      checkpoints: [],
      moves: [],
      claims: [],
      cuts: [],
      packClaims: [],
      schedules: [],
      writes: [],
      leftovers: [],
    };
    const { violations, recoveries } = check([], empty);
    expect([...new Set(violations.map(({ rule }) => rule))]).toEqual(["unwitnessed"]);
    expect(recoveries).toEqual([]);
  });
});

describe("a verdict", () => {
  it("has one name for each rule", () => {
    expect(new Set(RULES.map(({ name }) => name)).size).toBe(RULES.length);
  });

  it("shows what is around a violation", () => {
    const { entries, truth } = tell();
    const [lost, ...others] = truth.tasks;
    const call = entries.find(({ what }) => what.op === "enqueue");
    expect(check(entries, { ...truth, tasks: others }).violations).toEqual([
      {
        rule: "lost-task",
        message: `task ${lost?.name} was told to be 1 and is not there`,
        slice: [call],
      },
    ]);
  });

  it("keeps a few violations of each rule and counts all", () => {
    const { entries, truth } = tell();
    const names = Array.from({ length: 500 }, (_, place) => `lost-${place}`);
    const call = { op: "enqueue", phase: "ok", queue: plain.name, names } as const;
    truth.handled = [];
    const { violations, counts } = check([...entries, line("producer-1", 1, call)], truth);
    const keptOf = (rule: string): number =>
      violations.filter((violation) => violation.rule === rule).length;
    expect(counts).toMatchObject({ lost: 500, skipped: 15 });
    expect(keptOf("lost-task")).toBe(KEPT_MAX);
    expect(keptOf("skipped-event")).toBe(15);
  });
});

const CALL = 100;

/** Half of the tasks are orders of a few keys, with their effects. */
function long(calls: number): Story {
  const { truth } = tell();
  for (const facts of [truth.tasks, truth.effects, truth.events, truth.handled]) facts.length = 0;
  for (const facts of [truth.firings, truth.losses, truth.gaps, truth.moves]) facts.length = 0;
  for (const facts of [truth.claims, truth.packClaims, truth.schedules]) facts.length = 0;
  const story: Story = { entries: [], truth };
  for (let call = 0; call < calls; call += 1) {
    const ids = Array.from({ length: CALL }, (_, place) => String(call * CALL + place + 1));
    if (call % 2 === 0) addOrders(story, ids, call);
    else addPlain(story, ids, call);
    addEvent(story, call + 1);
  }
  truth.checkpoints = SCENE.consumers.map(({ name: consumer }) => ({
    consumer,
    partition: 0,
    position: String(calls),
  }));
  return story;
}

const calling = (ids: readonly string[]) =>
  ({ op: "enqueue", phase: "ok", names: ids.map((id) => `task-${id}`), ids }) as const;

function addPlain({ entries, truth }: Story, ids: readonly string[], t: number): void {
  entries.push(line("producer", t, { ...calling(ids), queue: plain.name }));
  const claimId = `claim-${t}`;
  for (const id of ids) truth.tasks.push(task(id, `task-${id}`, { claimId }));
  truth.packClaims.push({ ids: ids.join(","), claimId, atMs: t });
  const what = {
    op: "begun",
    queue: plain.name,
    atMs: t,
    claims: [{ generation: 1, claimId, ids }],
  };
  entries.push(line("worker", t, what as What));
}

function addOrders({ entries, truth }: Story, ids: readonly string[], t: number): void {
  const keys = ids.map((_, place) => `key-${place}`);
  entries.push(line("producer", t, { ...calling(ids), queue: orders.name, keys }));
  for (const [place, id] of ids.entries()) {
    const winner = token(id, 1, `claim-${id}`);
    const fact = order(id, `task-${id}`, `key-${place}`, winner);
    truth.tasks.push(fact);
    truth.effects.push(effect(fact, 10 * t, 10 * t + 5));
    entries.push(line("worker", t, start(winner)), line("worker", t, end(winner, "committed")));
  }
}

function addEvent({ entries, truth }: Story, place: number): void {
  const name = `event-${place}`;
  const position = String(place);
  const call = { op: "append", phase: "ok", names: [name], positions: [position] } as const;
  entries.push(line("producer", place, call));
  truth.events.push({ position, name });
  for (const { name: consumer } of SCENE.consumers) {
    const fact = handled(truth.handled.length + 1, consumer, 0, place);
    const { seq, partition, xid } = fact;
    truth.handled.push(fact);
    truth.moves.push({ seq, consumer, partition, from: String(place - 1), to: position, xid });
  }
}

/** Of the processor: other tests run beside this one, and each waits for the others. */
function secondsOf(work: () => void): number {
  const before = process.cpuUsage();
  work();
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1_000_000;
}

describe("a long history", () => {
  it("of two hundred thousand tasks is judged within five seconds", () => {
    const { entries, truth } = long(2_000);
    let verdict: Verdict | undefined;
    const seconds = secondsOf(() => {
      verdict = check(entries, truth);
    });
    // It has few kinds of things, but many of each.
    expect(new Set(verdict?.violations.map(({ rule }) => rule))).toEqual(new Set(["unwitnessed"]));
    expect(verdict?.counts).toMatchObject({ tasks: 200_000, events: 2_000 });
    expect(seconds).toBeLessThan(5);
  });

  it("that is wrong everywhere is judged within five seconds", () => {
    const { entries, truth } = long(2_000);
    for (const [place, fact] of truth.tasks.entries()) {
      truth.tasks[place] = { ...fact, name: `other-${fact.id}`, state: "running" };
    }
    truth.handled = [];
    let verdict: Verdict | undefined;
    const seconds = secondsOf(() => {
      verdict = check(entries, truth);
    });
    expect(verdict?.counts).toMatchObject({ lost: 300_000, stuck: 200_000, skipped: 6_000 });
    expect(verdict?.violations.length).toBeLessThanOrEqual(KEPT_MAX * RULES.length);
    expect(seconds).toBeLessThan(5);
  });
});
