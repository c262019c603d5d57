import type { Facts } from "../../src/checker/facts.ts";
import type { Exited } from "../../src/checker/history.ts";
import type { Finding, Rule } from "../../src/checker/rule.ts";
import { EXIT_GAVE_BACK } from "../../src/index.ts";
import { OUTAGE_CODE, REMOVED_CODE } from "../ending.ts";
import { POISON_CODE, STOP_MS } from "../scene.ts";

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
    const after = exit.stopMs === null ? "" : `, ${exit.stopMs} ms after it was told to stop`;
    const message = `${exit.process} ended with ${exit.signal ?? exit.code}${after}`;
    yield { message, slice: [rest, ...lastLines] };
  }
}

/** Of the time in between, how long a task kept the process from hearing of anything. */
function blockedMsOf({ blocks }: Facts, process: string, fromMs: number, toMs: number): number {
  return blocks
    .filter((block) => block.process === process)
    .map((block) => Math.min(toMs, block.toMs) - Math.max(fromMs, block.fromMs))
    .reduce((sum, ms) => sum + Math.max(0, ms), 0);
}

/** Faults in which one worker or server is told to stop, by their kinds. */
export const STOPS: readonly string[] = ["deploy", "server-stop"];

/** A worker or a server that is told to stop gives back what it cannot end in time. */
function* lateStops(facts: Facts): Generator<Finding> {
  const stops = facts.faults.filter(({ kind }) => STOPS.includes(kind));
  const told = new Set(stops.flatMap(({ targets }) => targets));
  for (const { t, what: exit } of facts.exits) {
    const { process, worker, signal, stopMs, lastLines, ...rest } = exit;
    if (worker === null || !told.has(worker) || signal !== null || stopMs === null) continue;
    const tookMs = stopMs - blockedMsOf(facts, process, t - stopMs, t);
    if (tookMs <= STOP_MS) continue;
    const message = `${process} took ${tookMs} ms to stop, and may take ${STOP_MS} ms`;
    yield { message, slice: [{ process, worker, stopMs, ...rest }, ...lastLines] };
  }
}

/** What becomes of those who do the work. */
export const PROCESS_RULES: readonly Rule[] = [
  { name: "crashed-process", count: null, find: crashed },
  { name: "late-stop", count: null, find: lateStops },
];
