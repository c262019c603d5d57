import type { RuleName } from "../src/checker/rule.ts";

/** A deliberate breakage of the engine, which the suite must notice. */
export interface Mutant {
  readonly name: string;
  /** What it breaks, in one sentence. */
  readonly breaks: string;
  readonly edits: readonly Edit[];
  /** Tried in this order until one goes red. */
  readonly catchers: readonly Catcher[];
}

/** One text of one file, which must be there once: so the list stays in step with the source. */
export interface Edit {
  readonly file: string;
  readonly find: string;
  readonly replace: string;
}

/** A run with faults; it counts as red only when one of these rules was broken. */
export interface ChaosCatcher {
  readonly kind: "chaos";
  readonly seconds: number;
  readonly seeds: readonly number[];
  readonly faults: readonly string[];
  readonly rules: readonly RuleName[];
}

/** A test file. */
export interface TestCatcher {
  readonly kind: "test";
  readonly file: string;
  /** Only tests whose name has this in it. Defaults to all of the file. */
  readonly only?: string;
  /** Models draw their commands by it. Defaults to none, for tests that draw nothing. */
  readonly seeds?: readonly number[];
  /** How long a model may go on drawing. Defaults to what it takes in the suite. */
  readonly seconds?: number;
}

export type Catcher = ChaosCatcher | TestCatcher;

export const chaos = (more: Omit<ChaosCatcher, "kind">): ChaosCatcher => ({
  kind: "chaos",
  ...more,
});

export const test = (file: string, more: Omit<TestCatcher, "kind" | "file"> = {}): TestCatcher => ({
  kind: "test",
  file,
  ...more,
});

/** The models try many orders of commands for each seed, so a few seeds are many trials. */
export const model = (file: string, seconds = 25): TestCatcher =>
  test(`test/model/${file}`, { seeds: [1, 2, 3], seconds });
