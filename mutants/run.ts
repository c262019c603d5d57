import type { Mutant } from "./mutant.ts";
import { Tree } from "./tree.ts";
import { type Trial, trialsOf } from "./trial.ts";
import type { Verdict } from "./verdict.ts";

/** What became of one mutant. */
export interface Outcome {
  readonly mutant: string;
  /** Survived: all its catchers were green. Unknown: something could not run. */
  readonly kind: "caught" | "survived" | "unknown";
  /** The rule or the test that went red. */
  readonly by: string | null;
  readonly command: string | null;
  readonly seed: number | null;
  /** Until it was caught, or all catchers were green. */
  readonly seconds: number;
}

type Say = (line: string) => void;

/**
 * Tells catchers that are red anyway: whatever went red on a mutant must be green on the project as
 * it is, or its red says nothing.
 */
export class Control {
  readonly #known = new Map<string, Verdict>();
  readonly #say: Say;

  constructor(say: Say) {
    this.#say = say;
  }

  /** Undefined: green. */
  async whyNot(trial: Trial): Promise<string | undefined> {
    let verdict = this.#known.get(trial.command);
    if (verdict === undefined) {
      this.#say(`  without the mutant: ${trial.command}`);
      using tree = new Tree([]);
      verdict = await trial.run(tree);
      this.#known.set(trial.command, verdict);
    }
    switch (verdict.kind) {
      case "green":
        return undefined;
      case "red":
        return `"${verdict.by}" is red without the mutant as well`;
      case "broken":
        return `it could not run without the mutant:\n${verdict.why}`;
    }
  }
}

/** Tries the catchers of one mutant until one is red on it, and green without it. */
export async function runMutant(mutant: Mutant, control: Control, say: Say): Promise<Outcome> {
  say(`${mutant.name}: ${mutant.breaks}`);
  using tree = new Tree(mutant.edits);
  let seconds = 0;
  let isUnknown = false;
  const outcome = (kind: Outcome["kind"], by: string | null, trial?: Trial): Outcome => {
    const { command = null, seed = null } = trial ?? {};
    return { mutant: mutant.name, kind, by, command, seed, seconds };
  };
  for (const trial of mutant.catchers.flatMap(trialsOf)) {
    say(`  ${trial.command}`);
    const fromMs = performance.now();
    const verdict = await trial.run(tree);
    seconds += (performance.now() - fromMs) / 1_000;
    if (verdict.kind === "green") {
      say(`  green${verdict.note === undefined ? "" : `: ${verdict.note}`}`);
      continue;
    }
    if (verdict.kind === "broken") {
      say(`  could not run:\n${verdict.why}`);
      isUnknown = true;
      continue;
    }
    const why = await control.whyNot(trial);
    if (why === undefined) {
      say(`  caught: ${verdict.by}`);
      return outcome("caught", verdict.by, trial);
    }
    say(`  does not count: ${why}`);
    isUnknown = true;
  }
  say(isUnknown ? "  not known" : "  survived");
  return outcome(isUnknown ? "unknown" : "survived", null);
}
