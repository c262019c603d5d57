import type { Ended, Entry, Token, What } from "../../src/checker/history.ts";
import type { RuleName } from "../../src/checker/rule.ts";
import type {
  EffectFact,
  HandledFact,
  LeaderWriteFact,
  MoveFact,
  TaskFact,
  Truth,
} from "../../src/checker/truth.ts";
import {
  flaky,
  limited,
  lines,
  orders,
  plain,
  remote,
  remoteLimited,
  remoteLines,
  ticks,
} from "../scene.ts";
import { type Counts, check } from "./check.ts";

/* A small run with something of everything in which all went well, to be spoilt by tests. */

/** To be changed: each has its own. */
export interface Story {
  entries: Entry[];
  readonly truth: Draft;
}

type Draft = {
  -readonly [Name in keyof Truth]: Truth[Name] extends readonly (infer Fact)[]
    ? Fact[]
    : Truth[Name];
};

export function line(proc: string, t: number, what: What): Entry {
  return { t, proc, what };
}

export function token(id: string, generation: number, claimId: string): Token {
  return { id, generation, claimId };
}

export function start(task: Token): What {
  return { op: "start", queue: orders.name, task };
}

export function begun(queue: string, atMs: number | null, ...tasks: readonly Token[]): What {
  const claims = tasks.map(({ id, ...claim }) => ({ ...claim, ids: [id] }));
  return { op: "begun", queue, atMs, claims };
}

export function end(task: Token, how: Ended["how"]): What {
  return { op: "end", task, how };
}

export function task(id: string, name: string, more: Partial<TaskFact> = {}): TaskFact {
  return {
    id,
    name,
    queue: plain.name,
    key: null,
    state: "completed",
    generation: 1,
    claimId: `claim-${id}`,
    finishedAtMs: 1_200,
    leaseUntilMs: null,
    ...more,
  };
}

export function order(id: string, name: string, key: string, winner: Token): TaskFact {
  const { generation, claimId } = winner;
  return task(id, name, { queue: orders.name, key, generation, claimId });
}

export function effect(of: TaskFact, startedAtMs: number, atMs: number): EffectFact {
  const { id, name, key, generation, claimId } = of;
  return { task: id, name, key, generation, claimId: claimId ?? "", startedAtMs, atMs };
}

export function handled(
  seq: number,
  consumer: string,
  partition: number,
  position: number,
): HandledFact {
  const xid = String(700 + seq);
  const line = String(partition);
  return { seq: String(seq), consumer, partition, line, position: String(position), xid };
}

const inStream = (line: string, seq: number, position: number): HandledFact => ({
  ...handled(seq, "careful", 0, position),
  line,
});

/** A batch for each, and a last one that passed nothing but a gap. */
function chain(consumer: string, partition: number, facts: readonly HandledFact[]): MoveFact[] {
  const steps = [...facts.map(({ position, xid }) => ({ to: position, xid })), LAST_STEP];
  return steps.map((step, place) => ({
    seq: String(place + 1),
    consumer,
    partition,
    from: steps[place - 1]?.to ?? "0",
    ...step,
  }));
}

const END = "7";
const LAST_STEP = { to: END, xid: "790" };

/** Killed while it held the second order. */
export const DEAD_WORKER = "worker-a";
export const DEATH_MS = { from: 1_500, to: 2_000, bound: 5_000 };
export const CRASH_MS = { from: 8_000, to: 9_000, bound: 5_000 };

const FIRST = token("3", 1, "claim-3");
const SECOND_LOST = token("4", 1, "claim-4");
const SECOND = token("4", 2, "claim-4-again");
const THIRD = token("5", 1, "claim-5");
/** Its claim was taken back by the crash, and its generation handed out again. */
const FOURTH_TAKEN_BACK = token("6", 1, "claim-6");
const FOURTH = token("6", 1, "claim-6-again");

const enqueue = (phase: "ok" | "fail" | "unknown", names: string[], ids?: string[]): What => ({
  op: "enqueue",
  phase,
  queue: plain.name,
  names,
  ...(ids === undefined ? {} : { ids }),
});

const append = (phase: "ok" | "fail" | "unknown", names: string[], positions?: string[]): What => ({
  op: "append",
  phase,
  names,
  ...(positions === undefined ? {} : { positions }),
});

const MORE = ["14", "15", "16", "17", "18"];

const keyed = { op: "enqueue", phase: "ok", queue: orders.name, keys: ["a", "b"] } as const;

const produced = (): Entry[] =>
  [
    enqueue("ok", ["plain-1", "plain-2"], ["1", "2"]),
    { ...keyed, names: ["order-1", "order-2"], ids: ["3", "4"] },
    { ...keyed, names: ["order-3", "order-4"], ids: ["5", "6"] },
    enqueue("unknown", ["maybe-1", "maybe-2"]),
    enqueue("unknown", ["never-1", "never-2"]),
    enqueue("fail", ["refused-1"]),
    enqueue("ok", ["flaky-1"], ["9"]),
    enqueue("ok", ["limited-1"], ["10"]),
    enqueue(
      "ok",
      MORE.map((id) => `more-${id}`),
      MORE,
    ),
    append("ok", ["event-1", "event-2"], ["1", "2"]),
    append("fail", ["rolled-back-1"]),
    append("ok", ["event-3"], ["4"]),
    append("unknown", ["event-4", "event-5"]),
    append("unknown", ["gone-1", "gone-2"]),
  ].map((what, place) => line("producer-1", 1_000 + place, what));

const said = (queue: string, id: string): Entry =>
  line("worker-3", 1_050, begun(queue, 1_055, token(id, 1, `claim-${id}`)));

const worked = (): Entry[] => [
  said(plain.name, "1"),
  said(plain.name, "2"),
  said(limited.name, "10"),
  said(flaky.name, "14"),
  ...[lines, remote, remoteLines, remoteLimited].map(({ name }, n) => said(name, String(15 + n))),
  line("worker-1", 1_100, start(FIRST)),
  line("worker-1", 1_112, end(FIRST, "committed")),
  line("worker-1", 1_120, start(THIRD)),
  line("worker-1", 1_132, end(THIRD, "committed")),
  line("worker-1", 1_400, start(SECOND_LOST)),
  line("worker-2", 6_000, start(SECOND)),
  line("worker-2", 6_012, end(SECOND, "committed")),
  line("worker-2", 7_990, start(FOURTH_TAKEN_BACK)),
  line("worker-2", 9_100, end(FOURTH_TAKEN_BACK, "refused")),
  line("worker-3", 9_500, start(FOURTH)),
  line("worker-3", 9_512, end(FOURTH, "unknown")),
];

export function fault(
  kind: string,
  targets: readonly string[],
  during: typeof DEATH_MS,
  recoveredMs: number | null,
): What {
  const { from: fromMs, to: toMs, bound: boundMs } = during;
  return { op: "fault", fault: { kind, targets, fromMs, toMs, recoveredMs, boundMs } };
}

export function held(by: string, atMs: number, ...tasks: readonly Token[]): What {
  return { op: "held", held: { by, atMs, tasks, locked: [] } };
}

const sample = (atMs: number, running: number): What => ({
  op: "sample",
  sample: {
    atMs,
    finished: 0,
    handled: 0,
    remote: 0,
    limited: { [limited.name]: running, [remoteLimited.name]: running },
  },
});

const watched = (): Entry[] => [
  line("harness", 1_000, sample(1_000, 0)),
  line("harness", 1_050, sample(1_050, 4)),
  line("harness", 1_610, held("worker-1", 1_600, SECOND_LOST)),
  line("harness", 2_300, fault("kill", [DEAD_WORKER], DEATH_MS, 300)),
  line("harness", 9_900, fault("crash-server", ["the server"], CRASH_MS, 900)),
];

export function write(
  seq: string,
  term: string,
  { keySpace = null, epoch = null }: Partial<Pick<LeaderWriteFact, "keySpace" | "epoch">>,
): LeaderWriteFact {
  const what = keySpace === null ? "the owner of whole" : "what worker-a owns";
  return { seq, what, term, leader: "worker-a", isHeld: true, keySpace, epoch };
}

const tick = (id: string): TaskFact => task(id, "", { queue: ticks.name });

const WHOLE = [1, 2, 4, 5, 6].map((position, place) => handled(place + 1, "whole", 0, position));
const SPLIT = [
  [handled(6, "split", 0, 1), handled(7, "split", 0, 4), handled(10, "split", 0, 6)],
  [handled(8, "split", 1, 2), handled(9, "split", 1, 5)],
  [],
  [],
];
const CAREFUL = [1, 4, 6].map((position, place) => inStream("a", place + 11, position));
/** This stream was set aside, and handled when somebody had cured it. */
const CURED = [2, 5].map((position, place) => inStream("b", place + 14, position));

export function tell(): Story {
  const first = order("3", "order-1", "a", FIRST);
  const second = { ...order("4", "order-2", "b", SECOND), finishedAtMs: 6_012 };
  const third = order("5", "order-3", "a", THIRD);
  const fourth = order("6", "order-4", "b", FOURTH);
  const truth: Draft = {
    atMs: 20_000,
    tasks: [
      task("1", "plain-1"),
      task("2", "plain-2"),
      first,
      second,
      third,
      fourth,
      task("7", "maybe-1"),
      task("8", "maybe-2"),
      task("9", "flaky-1", { queue: flaky.name, state: "dead", generation: 3 }),
      task("10", "limited-1", { queue: limited.name }),
      ...["11", "12", "13"].map(tick),
      // What others made of them is told elsewhere.
      ...MORE.map((id) => task(id, `more-${id}`)),
    ],
    effects: [
      effect(first, 1_100, 1_110),
      effect(third, 1_120, 1_130),
      effect(second, 6_000, 6_010),
      effect(fourth, 9_500, 9_510),
    ],
    events: [
      { position: "1", name: "event-1" },
      { position: "2", name: "event-2" },
      { position: "4", name: "event-3" },
      { position: "5", name: "event-4" },
      { position: "6", name: "event-5" },
    ],
    handled: [...WHOLE, ...SPLIT.flat(), ...CAREFUL, ...CURED],
    terms: [
      { seq: "9", term: "9", leader: "worker-a", atMs: 100 },
      { seq: "10", term: "10", leader: "worker-b", atMs: 2_500 },
      { seq: "12", term: "12", leader: null, atMs: 20_000 },
    ],
    firings: ["11", "12", "13"].map((id, place) => ({
      schedule: "every-second",
      tickMs: 1_000 * (place + 1),
      firedAtMs: 1_000 * (place + 1) + 3,
      task: id,
    })),
    schedules: [{ schedule: "every-second", createdAtMs: 500, pausedAtMs: 4_100 }],
    writes: [
      write("1", "9", {}),
      write("2", "10", { keySpace: 1, epoch: "100" }),
      write("3", "12", { keySpace: 1, epoch: "103" }),
      write("4", "12", { keySpace: 1 }),
    ],
    leftovers: [],
    returns: [],
    losses: [
      { task: "4", worker: DEAD_WORKER, atMs: 5_000 },
      // A task blocked its process: no fault had hit it.
      { task: "9", worker: "worker-b", atMs: 19_000 },
    ],
    // The last position was rolled back as well.
    gaps: [{ from: "3", to: END, missing: "2" }],
    checkpoints: [
      { consumer: "whole", partition: 0, position: END },
      ...[0, 1, 2, 3].map((partition) => ({ consumer: "split", partition, position: END })),
      ...[0, 1].map((partition) => ({ consumer: "careful", partition, position: END })),
    ],
    claims: [
      { task: "3", generation: 1, claimId: "claim-3", atMs: 1_095 },
      { task: "4", generation: 1, claimId: "claim-4", atMs: 1_395 },
      { task: "4", generation: 2, claimId: "claim-4-again", atMs: 5_990 },
      { task: "5", generation: 1, claimId: "claim-5", atMs: 1_115 },
      { task: "6", generation: 1, claimId: "claim-6-again", atMs: 9_490 },
    ],
    packClaims: [{ ids: "1", claimId: "claim-1", atMs: 1_045 }],
    // Its worker let go of it when it stopped.
    cuts: [{ task: "9", claimId: "claim-9", nextClaimId: null, atMs: 4_000 }],
    moves: [
      ...chain("whole", 0, WHOLE),
      ...SPLIT.flatMap((facts, partition) => chain("split", partition, facts)),
      ...chain("careful", 0, CAREFUL),
      ...chain("careful", 1, []),
    ],
  };
  return { entries: [...produced(), ...worked(), ...watched()], truth };
}

/** Changes the one that matches. */
export function alter<Fact>(
  facts: Fact[],
  isMeant: (fact: Fact) => boolean,
  change: Partial<Fact>,
): void {
  const place = facts.findIndex(isMeant);
  const fact = facts[place];
  if (fact === undefined) throw new Error("the story has nothing of the kind");
  facts[place] = { ...fact, ...change };
}

/** Leaves out the one that matches, and gives it back. */
export function remove<Fact>(facts: Fact[], isMeant: (fact: Fact) => boolean): Fact {
  const place = facts.findIndex(isMeant);
  const [fact] = place < 0 ? [] : facts.splice(place, 1);
  if (fact === undefined) throw new Error("the story has nothing of the kind");
  return fact;
}

export const named =
  (name: string) =>
  (fact: { readonly name: string }): boolean =>
    fact.name === name;

export interface Judgement {
  readonly rules: readonly RuleName[];
  /** Of what is wrong, where there is any. */
  readonly counts: Partial<Counts>;
}

/** Which rules a spoilt story breaks, and what it adds to the counts. */
export function judge(spoil: (story: Story) => void): Judgement {
  const story = tell();
  spoil(story);
  const { violations, counts } = check(story.entries, story.truth);
  const { tasks: _, events: __, faults: ___, ...wrong } = counts;
  return {
    rules: [...new Set(violations.map(({ rule }) => rule))],
    counts: Object.fromEntries(Object.entries(wrong).filter(([, count]) => count > 0)),
  };
}
