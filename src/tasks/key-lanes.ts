import type { HeldKey, KeyLaneStart, KeyLook } from "./sql/key-lanes.ts";

/** What this worker knows of the lane of one bucket. */
interface Lane {
  floor: number;
  /** Up to here only tasks of `held` and `full` keys are pending. */
  start: number;
  held: readonly HeldKey[];
  full: readonly string[];
  /** Nothing was found when somebody last asked, but for tasks of keys that were full. */
  isEmpty: boolean;
  fullWhenEmpty: readonly string[];
  /** Grows whenever the floor is lowered: what was asked before must not raise it again. */
  version: number;
}

const isWorthAsking = ({ isEmpty, fullWhenEmpty }: Lane, full: readonly string[]): boolean =>
  !isEmpty || fullWhenEmpty.some((key) => !full.includes(key));

/** What was known when a look or a claim was sent. */
export interface Asked {
  readonly version: number;
  /** Keys of which nothing more was asked for. */
  readonly full: readonly string[];
}

const NONE: readonly never[] = [];
/** Numbers from a floor to the first free task that make it worth remembering what is between. */
const PASS_NUMBERS = 1_000;
/** Held keys that a look tells of one lane, at most one more than are of use. */
export const HELD_MAX = 101;
/** Held keys that every claim names, of all lanes together. */
const HELD_MAX_TOTAL = 1_000;

/**
 * The lanes of the buckets that a worker may claim from: where to begin, and which to ask.
 *
 * Nothing at or below a floor is pending; it never passes a held task, which comes first when its
 * key flows again. Between floor and start are tasks of held keys, and of full ones, of which
 * enough are here. Whoever begins at the start must except the latter, and find that the former
 * are held still.
 */
export class KeyLaneBook {
  readonly #lanes = new Map<number, Lane>();
  readonly #laneOf: (key: string) => number;
  #version = 0;
  /** Nothing was worth asking, and nothing has changed since. */
  #isAllEmpty = false;

  constructor(laneOf: (key: string) => number) {
    this.#laneOf = laneOf;
  }

  get size(): number {
    return this.#lanes.size;
  }

  get numbers(): number[] {
    return [...this.#lanes.keys()];
  }

  /** Before something is asked; goes with the answer. */
  asks(full: readonly string[]): Asked {
    return { version: this.#version, full };
  }

  open(lane: number): void {
    this.#lanes.set(lane, this.#unknown());
  }

  close(lane: number): boolean {
    return this.#lanes.delete(lane);
  }

  clear(): void {
    this.#lanes.clear();
  }

  /** Tasks below the floor may be wanted again. */
  lower(lane: number): void {
    if (this.#lanes.has(lane)) this.#lanes.set(lane, this.#unknown());
  }

  lowerAll(): void {
    for (const lane of this.#lanes.keys()) this.lower(lane);
  }

  #unknown(): Lane {
    this.#version += 1;
    this.#isAllEmpty = false;
    return {
      floor: 0,
      start: 0,
      held: NONE,
      full: NONE,
      isEmpty: false,
      fullWhenEmpty: NONE,
      version: this.#version,
    };
  }

  /** Work may have come to any lane. */
  assumeWork(): void {
    this.#isAllEmpty = false;
    for (const lane of this.#lanes.values()) lane.isEmpty = false;
  }

  /** What is worth asking: also where a key was full and is not any more. */
  busy(full: readonly string[]): number[] {
    return [...this.#lanes].flatMap(([number, lane]) =>
      isWorthAsking(lane, full) ? [number] : [],
    );
  }

  /** Whether any is. Asked at every turn, so it remembers when nothing was. */
  isBusy(fullKeys: () => readonly string[]): boolean {
    if (this.#isAllEmpty) return false;
    let hasFull = false;
    for (const lane of this.#lanes.values()) {
      if (!lane.isEmpty) return true;
      hasFull ||= lane.fullWhenEmpty.length > 0;
    }
    this.#isAllEmpty = !hasFull;
    return hasFull && this.busy(fullKeys()).length > 0;
  }

  /** Where to begin when tasks of full keys are not asked for. */
  starts(numbers: readonly number[], full: readonly string[]): KeyLaneStart[] {
    return numbers.map((number) => {
      const lane = this.#lanes.get(number);
      if (lane === undefined) return { lane: number, floor: 0, start: 0, held: NONE };
      const { floor, start, held } = lane;
      const isPassable = lane.full.every((key) => full.includes(key));
      return isPassable
        ? { lane: number, floor, start, held }
        : { lane: number, floor, start: floor, held: NONE };
    });
  }

  /** Takes in a look. `settled` is what was proven before its snapshot, or by it. */
  saw(look: Pick<KeyLook, "lanes">, asked: Asked, settled: number): void {
    this.#isAllEmpty = false;
    const fullIn = this.#byLane(asked.full);
    let total = 0;
    for (const { lane: number, order, freeOrder, passed } of look.lanes) {
      const lane = this.#lanes.get(number);
      if (lane === undefined || lane.version > asked.version) continue;
      lane.floor = Math.max(lane.floor, Math.min(settled, (order ?? Infinity) - 1));
      lane.isEmpty = freeOrder === null;
      lane.fullWhenEmpty = fullIn.get(number) ?? NONE;
      const start = Math.min(settled, (freeOrder ?? Infinity) - 1);
      const held = passed?.held ?? NONE;
      const isWorthIt =
        start - lane.floor >= PASS_NUMBERS &&
        held.length < HELD_MAX &&
        total + held.length <= HELD_MAX_TOTAL;
      lane.start = isWorthIt ? start : lane.floor;
      lane.held = isWorthIt ? held : NONE;
      lane.full = isWorthIt ? lane.fullWhenEmpty : NONE;
      total += lane.held.length;
    }
  }

  /**
   * A claim took everything up to `last` that was pending, and passed over nothing. `settled` is
   * what was proven before its snapshot.
   */
  took(number: number, last: number, asked: Asked, settled: number): void {
    const lane = this.#lanes.get(number);
    if (lane === undefined || lane.version > asked.version) return;
    lane.floor = Math.max(lane.floor, Math.min(settled, last));
    lane.start = lane.floor;
    lane.held = NONE;
    lane.full = NONE;
  }

  /** A claim got less than it asked for. */
  markEmpty(numbers: readonly number[], asked: Asked): void {
    this.#isAllEmpty = false;
    const fullIn = this.#byLane(asked.full);
    for (const number of numbers) {
      const lane = this.#lanes.get(number);
      if (lane === undefined || lane.version > asked.version) continue;
      lane.isEmpty = true;
      lane.fullWhenEmpty = fullIn.get(number) ?? NONE;
    }
  }

  #byLane(keys: readonly string[]): ReadonlyMap<number, readonly string[]> {
    const byLane = new Map<number, string[]>();
    for (const key of keys) {
      const lane = this.#laneOf(key);
      byLane.set(lane, [...(byLane.get(lane) ?? NONE), key]);
    }
    return byLane;
  }
}
