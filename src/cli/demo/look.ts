import type { Entry } from "../../checker/history.ts";
import type { Scene } from "../../checker/scene.ts";
import type { EffectFact, EventFact, TaskFact, Truth } from "../../checker/truth.ts";
import type { SqlExecutor } from "../../db/executor.ts";
import type { Tidemill } from "../../worker/tidemill.ts";
import type { DemoNames } from "../sql/demo.ts";
import {
  type ActionRow,
  beginLook,
  type EventRow,
  type Marks,
  readActions,
  readCheckpoints,
  readEffects,
  readEvents,
  readFirings,
  readHandled,
  readLosses,
  readMarks,
  readMs,
  readTasks,
  readTouched,
  type TaskRow,
} from "../sql/demo-truth.ts";
import type { Copy, Ledger, OrderLines } from "./ledger.ts";
import { DEMO_SCOPES, NAMED_QUEUES, REPORT, reports, STREAM_TYPE } from "./shop.ts";

/** What was promised, and what the tables say of it at one instant. */
export interface Seen {
  readonly lines: readonly OrderLines[];
  readonly entries: readonly Entry[];
  readonly truth: Truth;
  readonly consumers: Scene["consumers"];
  readonly eventsDone: number;
  /** Consumers that somebody moved since the last look. */
  readonly moved: readonly ActionRow[];
  /** Tasks that were taken from silent workers since the last look. */
  readonly losses: readonly { readonly worker: string; readonly tasks: number }[];
}

/** Orders that are judged in one look; the others have their turn in the next. */
const ORDERS_MAX = 5_000;
const EVENTS_MAX = 20_000n;
/**
 * Numbers are drawn before a commit: what lies so far behind the highest one that was seen is read
 * again. Findings count once, so reading too much does no harm.
 */
const BEHIND = 500n;
const CONSUMERS = Object.keys(DEMO_SCOPES);
const MOVES = /^(rewind|skip|retire|repartition)/;

/** Positions above the first, up to the second. */
interface Range {
  readonly from: bigint;
  readonly upTo: bigint;
}

/** What is not looked at: no rule finds anything in it. */
const UNSEEN = {
  terms: [],
  losses: [],
  returns: [],
  gaps: [],
  moves: [],
  claims: [],
  cuts: [],
  packClaims: [],
  schedules: [],
  writes: [],
  leftovers: [],
} as const satisfies Partial<Truth>;

type Mutable<T> = { -readonly [Name in keyof T]: T[Name] };
const most = (numbers: Iterable<string>, least: bigint): bigint => {
  let found = least;
  for (const number of numbers) if (BigInt(number) > found) found = BigInt(number);
  return found;
};
const least = (numbers: readonly bigint[], highest: bigint): bigint =>
  numbers.reduce((found, number) => (number < found ? number : found), highest);

/** Looks at the shop again and again, each time at what may have changed. */
export class Look {
  readonly #mill: Tidemill;
  readonly #names: DemoNames;
  readonly #marks: Mutable<Marks>;
  readonly #startMs: number;
  readonly #startPosition: bigint;
  /** Up to where events were judged, for every consumer. */
  #judged: bigint;
  #eventsDone = 0;
  /** Of consumers that somebody moved: only what comes after is judged. */
  readonly #from = new Map<string, bigint>();
  readonly #lost = new Map<string, number>();

  private constructor(mill: Tidemill, names: DemoNames, start: Marks, startMs: number) {
    this.#mill = mill;
    this.#names = names;
    this.#marks = { ...start };
    this.#startMs = startMs;
    this.#startPosition = start.position;
    this.#judged = start.position;
  }

  static async begin(mill: Tidemill, names: DemoNames): Promise<Look> {
    return await mill.transaction(async (tx) => {
      await beginLook(tx);
      return new Look(mill, names, await readMarks(tx, names), await readMs(tx));
    });
  }

  async next(ledger: Ledger): Promise<Seen> {
    const copy = ledger.copy(); // Before the tables: they must have all that was promised.
    return await this.#mill.transaction(async (tx) => {
      await beginLook(tx);
      return await this.#see(tx, copy, ledger.run);
    });
  }

  async #see(tx: SqlExecutor, copy: Copy, run: string): Promise<Seen> {
    const names = this.#names;
    const moved = await this.#moves(tx);
    const touched = await readTouched(tx, names, this.#marks.effect - BEHIND);
    this.#marks.effect = touched.last > this.#marks.effect ? touched.last : this.#marks.effect;
    const taken = new Map(copy.next(ORDERS_MAX).map((lines) => [lines.order, lines]));
    for (const order of touched.orders) {
      const lines = copy.find(order);
      if (lines !== undefined) taken.set(order, lines);
    }
    const lines = [...taken.values()];
    const entries = lines.flatMap((one) => one.entries);
    const firings = await readFirings(tx, names, { schedule: REPORT, after: this.#marks.firing });
    const { rows, effects } = await this.#tasks(tx, entries, {
      orders: [...taken.keys(), ...touched.orders],
      ids: firings.map(({ task }) => task),
    });
    const { range, ...log } = await this.#log(tx, entries, run);
    const tasks = rows.map((row) => toTask(row, run));
    const atMs = await readMs(tx);
    const losses = this.#newLosses(await readLosses(tx, names, this.#startMs));
    const truth: Truth = { ...UNSEEN, atMs, tasks, effects, firings, ...log };
    const consumers = this.#expectations(log.checkpoints, range);
    return { lines, entries, truth, consumers, eventsDone: this.#eventsDone, moved, losses };
  }

  /** Tasks with their effects: of each that is read, all of both. */
  async #tasks(
    tx: SqlExecutor,
    entries: readonly Entry[],
    { orders, ids }: { readonly orders: readonly string[]; readonly ids: readonly string[] },
  ): Promise<{ readonly rows: TaskRow[]; readonly effects: EffectFact[] }> {
    const queues = [...NAMED_QUEUES, reports.name];
    const told = entries.flatMap(({ what }) => (what.op === "enqueue" ? (what.ids ?? []) : []));
    const after = this.#marks.task - BEHIND;
    const known = await readTasks(tx, this.#names, { queues, after, ids: [...told, ...ids] });
    this.#marks.task = most(
      known.map(({ id }) => id),
      this.#marks.task,
    );
    const found = new Set(known.map(({ id }) => id));
    const keys = new Set([...orders, ...known.flatMap(({ key }) => key ?? [])]);
    const effects = await readEffects(tx, this.#names, { orders: [...keys], tasks: [...found] });
    const missing = effects.map(({ task }) => task).filter((task) => !found.has(task));
    const others =
      missing.length === 0
        ? []
        : await readTasks(tx, this.#names, { queues, after: BigInt(2 ** 62), ids: missing });
    return { rows: [...known, ...others], effects };
  }

  /** Events and what consumers made of them. */
  async #log(
    tx: SqlExecutor,
    entries: readonly Entry[],
    run: string,
  ): Promise<Pick<Truth, "events" | "handled" | "checkpoints"> & { readonly range: Range }> {
    const names = this.#names;
    const checkpoints = await readCheckpoints(tx, names, CONSUMERS);
    const overlap = this.#judged - BEHIND;
    const from = overlap < this.#startPosition ? this.#startPosition : overlap;
    const upTo = from + EVENTS_MAX;
    const ids = entries.flatMap(({ what }) => (what.op === "append" ? (what.positions ?? []) : []));
    const which = { streamType: STREAM_TYPE, after: from, upTo, ids };
    const events = (await readEvents(tx, names, which)).map((row) => toEvent(row, run));
    const since = this.#marks.handled - BEHIND;
    const all = await readHandled(tx, names, { from, upTo, since });
    this.#marks.handled = most(
      all.map(({ seq }) => seq),
      this.#marks.handled,
    );
    const handled = all.filter(
      ({ consumer, position }) => BigInt(position) > this.#floorOf(consumer),
    );
    if (checkpoints.length === CONSUMERS.length) {
      const reached = least(
        checkpoints.map(({ position }) => BigInt(position)),
        upTo,
      );
      if (reached > this.#judged) {
        this.#eventsDone += events.filter(
          ({ name, position: at }) =>
            name.startsWith(run) && BigInt(at) > this.#judged && BigInt(at) <= reached,
        ).length;
        this.#judged = reached;
      }
    }
    return { events, handled, checkpoints, range: { from, upTo } };
  }

  #floorOf(consumer: string): bigint {
    return this.#from.get(consumer) ?? this.#startPosition;
  }

  /**
   * Each must have handled what it is past, unless somebody moved it. Of events elsewhere, which
   * are read because their orders are open, it was not read who handled them.
   */
  #expectations(checkpoints: Truth["checkpoints"], { from, upTo }: Range): Scene["consumers"] {
    const reached = new Map(checkpoints.map((one) => [one.consumer, BigInt(one.position)]));
    return Object.entries(DEMO_SCOPES).map(([name, types]) => ({
      name,
      handles: ({ position, type }) => {
        const at = BigInt(position);
        const isRead = at > from && at <= upTo && at > this.#floorOf(name);
        return isRead && at <= (reached.get(name) ?? 0n) && types.includes(type ?? "");
      },
    }));
  }

  /** Who rewinds a consumer, or skips an event, wants it so: the rules hold again from here on. */
  async #moves(tx: SqlExecutor): Promise<ActionRow[]> {
    const actions = await readActions(tx, this.#names, this.#marks.action);
    if (actions.length === 0) return [];
    const { action, position } = await readMarks(tx, this.#names);
    this.#marks.action = action;
    const moved = actions.filter((one) => MOVES.test(one.action));
    for (const { consumer } of moved) this.#from.set(consumer, position);
    return moved.filter(({ consumer }) => CONSUMERS.includes(consumer));
  }

  #newLosses(totals: readonly { worker: string; tasks: number }[]): Seen["losses"] {
    return totals.flatMap(({ worker, tasks }) => {
      const more = tasks - (this.#lost.get(worker) ?? 0);
      this.#lost.set(worker, tasks);
      return more > 0 ? [{ worker, tasks: more }] : [];
    });
  }
}

/** Of what the shop of this run made; people may give any name to what they make. */
function nameIn(json: string | null, run: string): string | undefined {
  try {
    const name: unknown = Reflect.get(Object(JSON.parse(json ?? "null")), "name");
    return typeof name === "string" && name.startsWith(run) ? name : undefined;
  } catch {
    return undefined; // Bytes, of somebody who tries things.
  }
}

function toTask({ payload, ...row }: TaskRow, run: string): TaskFact {
  return { ...row, name: nameIn(payload, run) ?? `by hand ${row.id}` };
}

function toEvent({ position, type, payload }: EventRow, run: string): EventFact {
  return { position, type, name: nameIn(payload.toString("utf8"), run) ?? `by hand ${position}` };
}
