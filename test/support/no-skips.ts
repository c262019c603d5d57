import { appendFileSync } from "node:fs";
import type { Reporter, SerializedError, TestCase, TestModule, Vitest } from "vitest/node";

interface Tally {
  passed: number;
  failed: number;
  readonly skipped: TestCase[];
}

/**
 * Names every test that did not run, and why. In CI such a test is a failure: a suite that skips
 * what its machine lacks would be green and prove nothing.
 *
 * Appends `passed failed skipped` to the file that TIDEMILL_TEST_TALLY names, for who sums up runs.
 */
export class NoSkips implements Reporter {
  #isFiltered = false;

  onInit(vitest: Vitest): void {
    this.#isFiltered = vitest.config.testNamePattern !== undefined;
  }

  onTestRunEnd(modules: readonly TestModule[], errors: readonly SerializedError[]): void {
    const tally = count(modules, errors);
    // With a name filter all others are skipped too, and nobody asked for them.
    const skipped = tally.skipped.filter((test) => !this.#isFiltered || reasonOf(test) !== "");
    for (const test of skipped) {
      const reason = reasonOf(test) || "no reason given";
      process.stdout.write(
        `skipped: ${test.module.relativeModuleId} > ${test.fullName}: ${reason}\n`,
      );
    }
    if (skipped.length > 0 && process.env["CI"]) {
      process.stdout.write(`${skipped.length} skipped, which is a failure in CI\n`);
      process.exitCode = 1;
    }
    const file = process.env["TIDEMILL_TEST_TALLY"];
    if (file) appendFileSync(file, `${tally.passed} ${tally.failed} ${tally.skipped.length}\n`);
  }
}

function count(modules: readonly TestModule[], errors: readonly SerializedError[]): Tally {
  const tally: Tally = { passed: 0, failed: errors.length, skipped: [] };
  for (const module of modules) {
    tally.failed += module.errors().length; // A file that could not be loaded has no tests.
    for (const test of module.children.allTests()) {
      const { state } = test.result();
      if (state === "passed") tally.passed += 1;
      else if (state === "failed") tally.failed += 1;
      else tally.skipped.push(test);
    }
  }
  return tally;
}

function reasonOf(test: TestCase): string {
  const result = test.result();
  return result.state === "skipped" ? (result.note ?? "") : "";
}
