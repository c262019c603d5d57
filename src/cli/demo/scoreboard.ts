import { CLUSTER_RULES } from "../../checker/cluster.ts";
import { CONSUMER_RULES } from "../../checker/consumers.ts";
import { EVENT_RULES } from "../../checker/events.ts";
import { type Facts, gather, hasEnded } from "../../checker/facts.ts";
import { FENCE_RULES } from "../../checker/fences.ts";
import { KEY_RULES } from "../../checker/keys.ts";
import type { Rule, RuleName } from "../../checker/rule.ts";
import { TASK_RULES } from "../../checker/tasks.ts";
import type { Tidemill } from "../../worker/tidemill.ts";
import type { DemoNames } from "../sql/demo.ts";
import { formatCount } from "../table.ts";
import type { Ledger, OrderLines } from "./ledger.ts";
import { Look, type Seen } from "./look.ts";
import { SCENE } from "./shop.ts";

export type Figure = "lost" | "doubled" | "outOfOrder";

/** The rules that hold at every instant, and what each finding of them adds to. */
const FIGURES: Readonly<Partial<Record<RuleName, Figure>>> = {
  "lost-task": "lost",
  "lost-event": "lost",
  "missing-effect": "lost",
  "skipped-event": "lost",
  "lost-tick": "lost",
  "doubled-enqueue": "doubled",
  "doubled-end": "doubled",
  "doubled-append": "doubled",
  "doubled-effect": "doubled",
  "foreign-effect": "doubled",
  "repeated-event": "doubled",
  "doubled-tick": "doubled",
  "key-order": "outOfOrder",
  "key-overlap": "outOfOrder",
  "reordered-event": "outOfOrder",
};

const ALL_RULES: readonly Rule[] = [
  ...TASK_RULES,
  ...EVENT_RULES,
  ...FENCE_RULES,
  ...KEY_RULES,
  ...CONSUMER_RULES,
  ...CLUSTER_RULES,
];

/** What was found out so far, since the demo began. */
export interface Score extends Readonly<Record<Figure, number>> {
  /** Tasks that ended, and events that every consumer is past. */
  readonly tasksDone: number;
  readonly eventsDone: number;
  /** Tasks that wait or run. */
  readonly tasksOpen: number;
  /** The first few findings, in words. */
  readonly findings: readonly string[];
  /** How often it was looked. */
  readonly looks: number;
}

const FINDINGS_SHOWN = 5;
/** Enough to see that something is very wrong. */
const FINDINGS_MAX = 100_000;

/**
 * Judges the shop while it runs, by the rules of the history checker: what was promised to it
 * beside what the tables say at one instant. Each finding counts once, however often it is seen.
 */
export class Scoreboard {
  readonly #ledger: Ledger;
  readonly #look: Look;
  readonly #findings = new Map<string, Figure>();
  #tasksSettled = 0;
  #score: Score = {
    lost: 0,
    doubled: 0,
    outOfOrder: 0,
    tasksDone: 0,
    eventsDone: 0,
    tasksOpen: 0,
    findings: [],
    looks: 0,
  };

  private constructor(ledger: Ledger, look: Look) {
    this.#ledger = ledger;
    this.#look = look;
  }

  /** What happened before is not judged. */
  static async open(mill: Tidemill, names: DemoNames, ledger: Ledger): Promise<Scoreboard> {
    return new Scoreboard(ledger, await Look.begin(mill, names));
  }

  get score(): Score {
    return this.#score;
  }

  /** Tells what is worth telling: consumers that somebody moved, tasks that changed hands. */
  async judge(): Promise<Pick<Seen, "moved" | "losses">> {
    const seen = await this.#look.next(this.#ledger);
    const facts = gather({ ...SCENE, consumers: seen.consumers }, seen.entries, seen.truth);
    this.#note(facts);
    const { ended, open } = this.#settle(facts, seen.lines);
    const count = (figure: Figure): number =>
      [...this.#findings.values()].filter((one) => one === figure).length;
    this.#score = {
      lost: count("lost"),
      doubled: count("doubled"),
      outOfOrder: count("outOfOrder"),
      tasksDone: this.#tasksSettled + ended,
      eventsDone: seen.eventsDone,
      tasksOpen: open,
      findings: [...this.#findings.keys()].slice(0, FINDINGS_SHOWN),
      looks: this.#score.looks + 1,
    };
    return seen;
  }

  #note(facts: Facts): void {
    for (const rule of ALL_RULES) {
      const figure = FIGURES[rule.name];
      if (figure === undefined) continue;
      for (const { message } of rule.find(facts)) {
        if (this.#findings.size >= FINDINGS_MAX) return;
        this.#findings.set(message, figure);
      }
    }
  }

  /** Lets go of orders of which nothing is open; counts the tasks of the others. */
  #settle(
    { tasks }: Facts,
    taken: readonly OrderLines[],
  ): { readonly ended: number; readonly open: number } {
    let ended = 0;
    let open = 0;
    for (const lines of taken) {
      const names = lines.entries.flatMap(({ what }) => (what.op === "enqueue" ? what.names : []));
      const found = names.flatMap((name) => tasks.items.get(name)?.fact ?? []);
      const over = found.filter(hasEnded).length;
      if (lines.isOver && over === found.length) {
        if (this.#ledger.settle(lines)) this.#tasksSettled += over;
        continue;
      }
      this.#ledger.postpone(lines);
      ended += over;
      open += found.length - over;
    }
    return { ended, open };
  }
}

export function scoreText({ lost, doubled, outOfOrder }: Score): string {
  const count = formatCount;
  return `lost ${count(lost)} · doubled ${count(doubled)} · out of order ${count(outOfOrder)}`;
}
