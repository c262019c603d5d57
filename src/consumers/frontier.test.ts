import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { closedBy, type Epoch, type Observation, safeFrontier, windowTarget } from "./frontier.ts";

describe("safeFrontier", () => {
  it("follows positions that continue the frontier", () => {
    expect(safeFrontier(4n, 0n, [5n, 6n, 7n])).toBe(7n);
  });

  it("holds before a hole", () => {
    expect(safeFrontier(4n, 0n, [6n, 7n])).toBe(4n);
  });

  it("crosses holes up to the ceiling of a closed epoch", () => {
    expect(safeFrontier(4n, 7n, [6n, 7n])).toBe(7n);
  });

  it("goes on from the ceiling while positions continue it", () => {
    expect(safeFrontier(4n, 7n, [6n, 7n, 8n, 9n])).toBe(9n);
  });

  it("does not carry a closed epoch past its ceiling", () => {
    // 9 was reserved after the epoch began, so the hole at 8 is still open.
    expect(safeFrontier(4n, 7n, [6n, 7n, 9n])).toBe(7n);
  });

  it("reaches a ceiling above which nothing is visible", () => {
    expect(safeFrontier(4n, 9n, [])).toBe(9n);
  });

  it("never goes back for an epoch that is older than what is known", () => {
    expect(safeFrontier(9n, 4n, [10n])).toBe(10n);
  });
});

describe("windowTarget", () => {
  it("reaches the frontier when the window was not cut", () => {
    expect(windowTarget([5n, 7n], false, 9n)).toBe(9n);
  });

  it("reaches only the last row of a window that was cut", () => {
    // Rows 8 and 9 may exist behind the limit.
    expect(windowTarget([5n, 7n], true, 9n)).toBe(7n);
  });

  it("reaches the frontier when the rows behind the cut are beyond it", () => {
    expect(windowTarget([5n, 7n, 12n], true, 9n)).toBe(9n);
  });

  it("stops at the frontier even when rows beyond it were read", () => {
    expect(windowTarget([5n, 12n], false, 9n)).toBe(9n);
  });

  it("reaches the frontier over positions of which none exists", () => {
    expect(windowTarget([], false, 9n)).toBe(9n);
  });
});

describe("closedBy", () => {
  const epoch: Epoch = { ceiling: 7n, fence: 100n };

  it("holds while a transaction as old as the fence runs", () => {
    expect(closedBy(epoch, { oldestRunning: 99n })).toBeUndefined();
  });

  it("holds at the fence itself, which is finished and proves nothing of its elders", () => {
    expect(closedBy(epoch, { oldestRunning: 100n })).toBeUndefined();
  });

  it("closes once every transaction up to the fence has ended", () => {
    expect(closedBy(epoch, { oldestRunning: 101n })).toBe("epoch");
  });

  it("closes when none of those remains that held the append's lock at the fence", () => {
    const held = { ...epoch, lockers: new Set(["3/7", "4/84"]) };
    const seen = { oldestRunning: 50n, lockers: new Set(["3/8", "9/1"]) };
    expect(closedBy(held, seen)).toBe("lockers");
  });

  it("holds while one of those still holds it", () => {
    const held = { ...epoch, lockers: new Set(["3/7", "4/84"]) };
    expect(closedBy(held, { oldestRunning: 50n, lockers: new Set(["4/84"]) })).toBeUndefined();
  });

  it("holds for a prepared transaction, whose name changes in a restart", () => {
    const held = { ...epoch, lockers: new Set(["4/84"]) };
    expect(closedBy(held, { oldestRunning: 50n, lockers: new Set(["-1/866"]) })).toBeUndefined();
  });

  it("proves nothing from lockers that were looked at only once", () => {
    const seen = { oldestRunning: 50n, lockers: new Set<string>() };
    expect(closedBy(epoch, seen)).toBeUndefined();
    const held = { ...epoch, lockers: new Set<string>() };
    expect(closedBy(held, { oldestRunning: 50n })).toBeUndefined();
  });
});

/*
 * PostgreSQL in a hundred lines: transaction ids, a sequence, snapshots, the append's lock, and a
 * crash that takes back what was not flushed. Steps that make no sense at the moment do nothing,
 * so every generated list is a history.
 */
const WEIGHTS = {
  begin: 6,
  draw: 8,
  commit: 4,
  abort: 3,
  unrelated: 1,
  ceiling: 5,
  fence: 5,
  look: 6,
  read: 3,
  consume: 4,
  crash: 1,
} as const;

interface Step {
  readonly step: keyof typeof WEIGHTS;
  /** Which of the running transactions. */
  readonly pick: number;
}

/** Ways to get it wrong that real systems shipped, or that break a precondition of the proof. */
type Mistake =
  | "recorded xmax"
  | "xid after nextval"
  | "full window ignored"
  | "rows older than the proof"
  | "lockers before the ceiling"
  | "fence not flushed";

interface Transaction {
  xid: bigint | undefined;
  readonly name: string;
  readonly isAppend: boolean;
  readonly positions: bigint[];
}

const WINDOW = 2;

class History {
  readonly #mistake: Mistake | undefined;
  #nextXid = 100n;
  #latestCompleted = 99n;
  #names = 0;
  #running: Transaction[] = [];
  #sequence = 0n;
  #flushed = { sequence: 0n, xid: 99n };
  #visible: bigint[] = [];

  #ceiling: bigint | undefined;
  #lockersAtLook: ReadonlySet<string> = new Set();
  #epochs: Epoch[] = [];
  #frontier = 0n;
  #rowsAtFence: readonly bigint[] = [];
  /** Durable: it is committed with what the consumer wrote. */
  #checkpoint = 0n;
  readonly handled = new Set<bigint>();

  constructor(mistake?: Mistake) {
    this.#mistake = mistake;
  }

  get crossed(): number {
    return Number(this.#checkpoint) - this.handled.size;
  }

  run(steps: readonly Step[]): void {
    for (const { step, pick } of steps) this.#step(step, pick);
  }

  #step(step: Step["step"], pick: number): void {
    switch (step) {
      case "begin":
      case "unrelated":
        return this.#begin(step === "begin");
      case "draw":
        return this.#draw(pick);
      case "commit":
      case "abort":
        return this.#end(pick, step === "commit");
      case "ceiling":
        this.#ceiling = this.#sequence;
        return;
      case "fence":
        return this.#drawFence();
      case "look":
        return this.#look();
      case "read":
        this.#frontier = safeFrontier(this.#frontier, 0n, this.#rowsAbove(this.#frontier));
        return;
      case "consume":
        return this.#consume();
      case "crash":
        return this.#crash();
    }
  }

  #begin(isAppend: boolean): void {
    if (this.#running.length >= 5) return;
    const isLate = isAppend && this.#mistake === "xid after nextval";
    const xid = isLate ? undefined : this.#drawXid();
    this.#running.push({ xid, name: `1/${this.#names++}`, isAppend, positions: [] });
  }

  #draw(pick: number): void {
    const appends = this.#running.filter((one) => one.isAppend);
    appends[pick % appends.length]?.positions.push(++this.#sequence);
  }

  #end(pick: number, isCommit: boolean): void {
    const [ended] = this.#running.splice(pick % Math.max(1, this.#running.length), 1);
    if (ended === undefined) return;
    const xid = ended.xid ?? this.#drawXid();
    if (xid > this.#latestCompleted) this.#latestCompleted = xid;
    if (!isCommit) return;
    this.#visible = [...this.#visible, ...ended.positions].sort((a, b) => (a < b ? -1 : 1));
    this.#flush();
  }

  #drawXid(): bigint {
    const xid = this.#nextXid;
    this.#nextXid += 1n;
    return xid;
  }

  #flush(): void {
    this.#flushed = { sequence: this.#sequence, xid: this.#nextXid - 1n };
  }

  #snapshot(): { xmin: bigint; xmax: bigint } {
    const xmax = this.#latestCompleted + 1n;
    const older = this.#running.flatMap(({ xid }) => (xid !== undefined && xid < xmax ? xid : []));
    return { xmax, xmin: older.reduce((min, xid) => (xid < min ? xid : min), xmax) };
  }

  #lockers(): ReadonlySet<string> {
    return new Set(this.#running.filter((one) => one.isAppend).map((one) => one.name));
  }

  #rowsAbove(position: bigint): bigint[] {
    return this.#visible.filter((one) => one > position);
  }

  #drawFence(): void {
    const ceiling = this.#ceiling;
    this.#ceiling = undefined;
    if (ceiling === undefined) return;
    const isBorrowed = this.#mistake === "recorded xmax";
    const fence = isBorrowed ? this.#snapshot().xmax - 1n : this.#drawXid();
    if (fence > this.#latestCompleted) this.#latestCompleted = fence;
    if (this.#mistake !== "fence not flushed") this.#flush();
    const isEarly = this.#mistake === "lockers before the ceiling";
    const lockers = isEarly ? this.#lockersAtLook : this.#lockers();
    this.#epochs.push({ ceiling, fence, ...(isBorrowed ? {} : { lockers }) });
    this.#rowsAtFence = this.#visible;
  }

  #look(): void {
    const seen: Observation = { oldestRunning: this.#snapshot().xmin, lockers: this.#lockers() };
    this.#lockersAtLook = this.#lockers();
    const closed = this.#epochs.findLast((epoch) => closedBy(epoch, seen) !== undefined);
    if (closed === undefined) return;
    this.#epochs = this.#epochs.slice(this.#epochs.indexOf(closed) + 1);
    this.#frontier = safeFrontier(this.#frontier, closed.ceiling, []);
  }

  #consume(): void {
    if (this.#frontier <= this.#checkpoint) return;
    const isStale = this.#mistake === "rows older than the proof";
    const all = (isStale ? this.#rowsAtFence : this.#visible).filter((p) => p > this.#checkpoint);
    const rows = all.slice(0, WINDOW);
    const isCut = this.#mistake !== "full window ignored" && rows.length === WINDOW;
    this.#checkpoint = windowTarget(rows, isCut, this.#frontier);
    for (const row of rows) if (row <= this.#checkpoint) this.handled.add(row);
    this.#flush();
  }

  /** Unfinished transactions are gone, unflushed ids are handed out again, the reader forgets. */
  #crash(): void {
    this.#running = [];
    this.#sequence = this.#flushed.sequence;
    this.#nextXid = this.#flushed.xid + 1n;
    this.#latestCompleted = this.#flushed.xid;
    this.#ceiling = undefined;
    if (this.#mistake === "fence not flushed") return; // The broken reader remembers, too.
    this.#epochs = [];
    this.#frontier = this.#checkpoint;
  }

  /** Events below the checkpoint that no one was given: lost. */
  get lost(): bigint[] {
    return this.#visible.filter((p) => p <= this.#checkpoint && !this.handled.has(p));
  }
}

const steps = Object.entries(WEIGHTS).map(([step, weight]) => ({
  weight,
  arbitrary: fc.constant(step as Step["step"]),
}));
const histories = fc.array(fc.record({ step: fc.oneof(...steps), pick: fc.nat(4) }), {
  minLength: 40,
  maxLength: 120,
  size: "max",
});

const losesNothing = (mistake?: Mistake) =>
  fc.property(histories, (steps) => {
    const history = new History(mistake);
    history.run(steps);
    expect(history.lost).toEqual([]);
  });

describe("the gap proof", () => {
  it("loses no event in any history of appends, aborts, looks and crashes", () => {
    fc.assert(losesNothing(), { numRuns: 3_000 });
  });

  it("is tried by histories that cross holes", () => {
    let crossed = 0;
    for (const steps of fc.sample(histories, { numRuns: 500, seed: 7 })) {
      const history = new History();
      history.run(steps);
      if (history.crossed > 0) crossed += 1;
    }
    expect(crossed).toBeGreaterThan(50);
  });

  it.each<Mistake>([
    "recorded xmax",
    "xid after nextval",
    "full window ignored",
    "rows older than the proof",
    "lockers before the ceiling",
    "fence not flushed",
  ])("is not vacuous: %s loses events in the same histories", (mistake) => {
    const run = fc.check(losesNothing(mistake), { numRuns: 3_000, seed: 7 });
    expect(run.failed).toBe(true);
  });
});
