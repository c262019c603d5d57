import { addBegins, addClaims, addPackClaims } from "./begins.ts";
import type {
  Appended,
  Begun,
  Blocked,
  Ended,
  Enqueued,
  Entry,
  Exited,
  FaultRecord,
  Held,
  Sample,
  Started,
  What,
} from "./history.ts";
import { emptyLife, type Life, type Line } from "./life.ts";
import type { Scene } from "./scene.ts";
import type { EffectFact, EventFact, HandledFact, TaskFact, Truth } from "./truth.ts";

/** Facts by something that should tell them apart. */
export interface Index<Fact> {
  readonly first: ReadonlyMap<string, Fact>;
  /** Those whose place in `first` another one has. */
  readonly again: readonly Fact[];
}

type Call = Line<Enqueued> | Line<Appended>;

/** A name, with the call that asked for it and with what is there. */
export interface Item<Fact> {
  readonly name: string;
  call: Call | undefined;
  /** What the system told the caller: the id of a task, the position of an event. */
  told: string | undefined;
  fact: Fact | undefined;
}

/** What was asked for, beside what is there. */
export interface Ledger<Fact> {
  readonly noun: "task" | "event";
  readonly items: ReadonlyMap<string, Item<Fact>>;
  /** Facts with a name that another one has. */
  readonly again: readonly Fact[];
  readonly idOf: (fact: Fact) => string;
  readonly calls: readonly Call[];
}

/** What one consumer handled, in the order of `seq`. */
export interface Reading {
  readonly consumer: string;
  readonly handles: (event: EventFact) => boolean;
  readonly setsAside: boolean;
  readonly facts: readonly HandledFact[];
  readonly byPosition: Index<HandledFact>;
}

/** History and truth, put in order once for all rules. */
export interface Facts {
  readonly scene: Scene;
  readonly truth: Truth;
  readonly enqueues: readonly Line<Enqueued>[];
  readonly tasks: Ledger<TaskFact>;
  readonly events: Ledger<EventFact>;
  /** Of all events, ascending. */
  readonly positions: readonly string[];
  /** Of tasks, by their ids. */
  readonly lives: ReadonlyMap<string, Life>;
  /** How many handlers said that they began, by queue. */
  readonly begins: ReadonlyMap<string, number>;
  /** Tasks and effects of a life that has one already. */
  readonly spareTasks: readonly TaskFact[];
  readonly spareEffects: readonly EffectFact[];
  readonly readings: readonly Reading[];
  /** In the order in which they began. */
  readonly faults: readonly FaultRecord[];
  readonly samples: readonly Sample[];
  readonly exits: readonly Line<Exited>[];
  readonly blocks: readonly Blocked[];
  readonly held: readonly Held[];
}

export function gather(scene: Scene, entries: readonly Entry[], truth: Truth): Facts {
  const lines = sort(entries);
  const named = truth.tasks.filter(({ queue }) => scene.isNamed(queue));
  return {
    scene,
    truth,
    enqueues: lines.enqueues,
    tasks: ledger("task", lines.enqueues, named, ({ id }) => id),
    events: ledger("event", lines.appends, truth.events, ({ position }) => position),
    positions: truth.events.map(({ position }) => position).sort(compareNumbers),
    ...livesOf(truth, lines.attempts, lines.begins),
    readings: readingsOf(scene, truth.handled),
    faults: lines.faults.sort((a, b) => a.fromMs - b.fromMs),
    samples: lines.samples,
    exits: lines.exits,
    blocks: lines.blocks,
    held: lines.held,
  };
}

interface Sorted {
  readonly enqueues: Line<Enqueued>[];
  readonly appends: Line<Appended>[];
  readonly attempts: Line<Started | Ended>[];
  readonly begins: Line<Begun>[];
  readonly faults: FaultRecord[];
  readonly samples: Sample[];
  readonly exits: Line<Exited>[];
  readonly blocks: Blocked[];
  readonly held: Held[];
}

const tells = <Op extends What["op"]>(
  entry: Entry,
  op: Op,
): entry is Line<Extract<What, { readonly op: Op }>> => entry.what.op === op;

function sort(entries: readonly Entry[]): Sorted {
  const lines: Sorted = {
    enqueues: [],
    appends: [],
    attempts: [],
    begins: [],
    faults: [],
    samples: [],
    exits: [],
    blocks: [],
    held: [],
  };
  for (const entry of entries) {
    if (tells(entry, "enqueue")) lines.enqueues.push(entry);
    else if (tells(entry, "append")) lines.appends.push(entry);
    else if (tells(entry, "start") || tells(entry, "end")) lines.attempts.push(entry);
    else if (tells(entry, "begun")) lines.begins.push(entry);
    else if (tells(entry, "fault")) lines.faults.push(entry.what.fault);
    else if (tells(entry, "sample")) lines.samples.push(entry.what.sample);
    else if (tells(entry, "exit")) lines.exits.push(entry);
    else if (tells(entry, "block")) lines.blocks.push(entry.what);
    else if (tells(entry, "held")) lines.held.push(entry.what.held);
  }
  return lines;
}

/** Of several calls of a name, the one that promises most tells what may be there. */
const WEIGHT = { fail: 0, unknown: 1, ok: 2 } as const;
const weightOf = (call: Call | undefined): number =>
  call === undefined ? -1 : WEIGHT[call.what.phase];

const toldBy = ({ what }: Call): readonly string[] | undefined =>
  what.op === "enqueue" ? what.ids : what.positions;

function ledger<Fact extends { readonly name: string }>(
  noun: "task" | "event",
  calls: readonly Call[],
  facts: readonly Fact[],
  idOf: (fact: Fact) => string,
): Ledger<Fact> {
  const items = new Map<string, Item<Fact>>();
  const itemOf = (name: string): Item<Fact> => {
    let item = items.get(name);
    if (item === undefined) {
      item = { name, call: undefined, told: undefined, fact: undefined };
      items.set(name, item);
    }
    return item;
  };
  for (const call of calls) {
    const told = toldBy(call);
    for (const [place, name] of call.what.names.entries()) {
      const item = itemOf(name);
      if (weightOf(item.call) >= weightOf(call)) continue;
      item.call = call;
      item.told = told?.[place];
    }
  }
  const again: Fact[] = [];
  for (const fact of facts) {
    const item = itemOf(fact.name);
    if (item.fact === undefined) item.fact = fact;
    else again.push(fact);
  }
  return { noun, items, again, idOf, calls };
}

const LIVE: ReadonlySet<string> = new Set(["scheduled", "pending", "running"]);
export const hasEnded = ({ state }: TaskFact): boolean => !LIVE.has(state);

function livesOf(
  { tasks, effects, claims, packClaims }: Truth,
  attempts: readonly Line<Started | Ended>[],
  begunLines: readonly Line<Begun>[],
): Pick<Facts, "lives" | "begins" | "spareTasks" | "spareEffects"> {
  const lives = new Map<string, Life>();
  const lifeOf = (id: string): Life => {
    let life = lives.get(id);
    if (life === undefined) {
      life = emptyLife(id);
      lives.set(id, life);
    }
    return life;
  };
  const spareTasks: TaskFact[] = [];
  for (const task of tasks) {
    const life = lifeOf(task.id);
    const before = life.task;
    const isBetter = before === undefined || (hasEnded(task) && !hasEnded(before));
    if (isBetter) life.task = task;
    if (before !== undefined) spareTasks.push(isBetter ? before : task);
  }
  const spareEffects: EffectFact[] = [];
  for (const effect of effects) {
    const life = lifeOf(effect.task);
    if (life.effect === undefined) life.effect = effect;
    else spareEffects.push(effect);
  }
  for (const line of attempts) lifeOf(line.what.task.id).attempts.push(line);
  const begins = addBegins(begunLines, lifeOf);
  for (const { what } of attempts) {
    if (what.op === "start") begins.set(what.queue, (begins.get(what.queue) ?? 0) + 1);
  }
  addClaims(claims, lifeOf);
  addPackClaims(packClaims, lifeOf);
  return { lives, begins, spareTasks, spareEffects };
}

/** Also those of whom there should be something and is nothing. */
function readingsOf({ consumers }: Scene, handled: readonly HandledFact[]): Reading[] {
  const byConsumer = groupBy(handled, ({ consumer }) => consumer);
  const expected = new Map(consumers.map((one) => [one.name, one]));
  const names = new Set([...expected.keys(), ...byConsumer.keys()]);
  return [...names].map((consumer) => {
    const facts = byConsumer.get(consumer) ?? [];
    facts.sort((a, b) => compareNumbers(a.seq, b.seq));
    const { handles = () => true, setsAside = false } = expected.get(consumer) ?? {};
    const byPosition = indexBy(facts, ({ position }) => position);
    return { consumer, handles, setsAside, facts, byPosition };
  });
}

function indexBy<Fact>(facts: readonly Fact[], keyOf: (fact: Fact) => string): Index<Fact> {
  const first = new Map<string, Fact>();
  const again: Fact[] = [];
  for (const fact of facts) {
    const key = keyOf(fact);
    if (first.has(key)) again.push(fact);
    else first.set(key, fact);
  }
  return { first, again };
}

export function groupBy<Fact>(
  facts: readonly Fact[],
  keyOf: (fact: Fact) => string,
): Map<string, Fact[]> {
  const groups = new Map<string, Fact[]>();
  for (const fact of facts) {
    const key = keyOf(fact);
    const group = groups.get(key);
    if (group === undefined) groups.set(key, [fact]);
    else group.push(fact);
  }
  return groups;
}

/**
 * Of whole numbers in decimal, as the database writes them: they need not fit a number, and a
 * million of them are compared quicker as they are.
 */
export function compareNumbers(a: string, b: string): number {
  if (a.length !== b.length) return a.length - b.length;
  if (a === b) return 0;
  return a < b ? -1 : 1;
}
