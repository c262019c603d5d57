import type { Facts } from "../../src/checker/facts.ts";
import type { Exited } from "../../src/checker/history.ts";
import type { Finding, Rule } from "../../src/checker/rule.ts";
import { EXIT_GAVE_BACK } from "../../src/index.ts";
import { OUTAGE_CODE, REMOVED_CODE } from "../ending.ts";
import { POISON_CODE } from "../scene.ts";

const EXPECTED: readonly (number | null)[] = [0, POISON_CODE, OUTAGE_CODE, REMOVED_CODE];

function isExpected({ code, signal, asked }: Exited): boolean {
  if (signal !== null) return asked === "kill" && signal === "SIGKILL";
  return EXPECTED.includes(code) || (asked === "stop" && code === EXIT_GAVE_BACK);
}

/** One that is started again hides what it died of, such as a rejection that nobody handled. */
function* crashed({ exits }: Facts): Generator<Finding> {
  for (const { what: exit } of exits) {
    if (isExpected(exit)) continue;
    const { lastLines, ...rest } = exit;
    const message = `${exit.process} ended with ${exit.signal ?? exit.code}`;
    yield { message, slice: [rest, ...lastLines] };
  }
}

/** What becomes of those who do the work. */
export const PROCESS_RULES: readonly Rule[] = [
  { name: "crashed-process", count: null, find: crashed },
];
