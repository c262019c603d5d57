import type { Facts } from "../../src/checker/facts.ts";
import type { FaultRecord } from "../../src/checker/history.ts";
import type { Finding, Rule } from "../../src/checker/rule.ts";
import { REMOVED_CODE } from "../ending.ts";

/** Faults that are over before a lease is, by their kinds. */
export const SHORT_PAUSES: readonly string[] = ["pause-below-lease"];

/** What is lost within a lease of its end is lost by it, unless another fault has begun. */
function endOf({ scene, faults }: Facts, pause: FaultRecord): number {
  const next = faults.find(({ fromMs }) => fromMs > pause.fromMs);
  return Math.min(pause.toMs + scene.leaseSeconds * 1_000, next?.fromMs ?? Infinity);
}

/** Beyond its lease, what somebody lost is taken within this. */
const TAKEN_MS = 2_000;

/** A task that blocks a process for longer than a lease costs it all it holds, as death does. */
function isExcused({ scene, exits, blocks }: Facts, worker: string, atMs: number): boolean {
  const exit = exits.find(({ what }) => what.worker === worker);
  const isGone = exit !== undefined && exit.what.code !== REMOVED_CODE && exit.t <= atMs;
  const takenMs = scene.leaseSeconds * 1_000 + TAKEN_MS;
  return (
    isGone ||
    blocks.some(
      ({ process, fromMs, toMs }) =>
        process === exit?.what.process &&
        fromMs <= atMs &&
        atMs <= Math.max(toMs, fromMs + takenMs),
    )
  );
}

/** Who stands still for less than its lease loses nothing, and nobody takes it for dead. */
function* falseLosses(facts: Facts): Generator<Finding> {
  for (const pause of facts.faults) {
    if (!SHORT_PAUSES.includes(pause.kind)) continue;
    const { fromMs, kind, targets } = pause;
    const toMs = endOf(facts, pause);
    const isMeant = (worker: string | null, atMs: number): worker is string =>
      worker !== null &&
      targets.includes(worker) &&
      atMs >= fromMs &&
      atMs <= toMs &&
      !isExcused(facts, worker, atMs);
    for (const loss of facts.truth.losses) {
      if (!isMeant(loss.worker, loss.atMs)) continue;
      const message = `task ${loss.task} was taken from a worker that lived, at the ${kind}`;
      yield { message, slice: [pause, loss] };
    }
    for (const { t, what: exit } of facts.exits) {
      if (exit.code !== REMOVED_CODE || !isMeant(exit.worker, t)) continue;
      yield { message: `${exit.process} was taken for dead at the ${kind}`, slice: [pause, exit] };
    }
  }
}

/** What a short pause costs: nothing. */
export const PAUSE_RULES: readonly Rule[] = [
  { name: "false-loss", count: null, find: falseLosses },
];
