import type { FaultRecord } from "../history.ts";
import type { Facts } from "./facts.ts";
import type { Finding, Rule } from "./rule.ts";

/** How the faults of one kind were got over. */
export interface Recovery {
  readonly fault: string;
  readonly count: number;
  /** Infinity when one never was. */
  readonly worstMs: number;
  readonly boundMs: number;
}

/** In the order in which kinds first struck. */
export function recoveriesOf({ faults }: Facts): Recovery[] {
  const recoveries = new Map<string, Recovery>();
  for (const { kind, recoveredMs, boundMs } of faults) {
    const before = recoveries.get(kind);
    recoveries.set(kind, {
      fault: kind,
      count: (before?.count ?? 0) + 1,
      worstMs: Math.max(before?.worstMs ?? 0, recoveredMs ?? Infinity),
      boundMs: Math.max(before?.boundMs ?? 0, boundMs),
    });
  }
  return [...recoveries.values()];
}

function* slow({ faults }: Facts): Generator<Finding> {
  for (const fault of faults) {
    const { kind, recoveredMs, boundMs } = fault;
    if (recoveredMs !== null && recoveredMs <= boundMs) continue;
    const took = recoveredMs === null ? "nothing moved again" : `it took ${recoveredMs} ms`;
    yield { message: `after ${kind} ${took}, and may take ${boundMs} ms`, slice: [fault] };
  }
}

/** Faults after which a worker or a server is gone for good, by their kinds. */
export const DEATHS: readonly string[] = ["kill", "server-kill"];

/** Another fault that begins meanwhile may keep the others from taking what the dead one held. */
function deadlineOf(death: FaultRecord, faults: readonly FaultRecord[]): number {
  let deadlineMs = death.toMs + death.boundMs;
  for (const { fromMs, toMs, boundMs } of faults) {
    const isMeanwhile = fromMs >= death.fromMs && fromMs <= deadlineMs;
    if (isMeanwhile) deadlineMs = Math.max(deadlineMs, toMs + boundMs);
  }
  return deadlineMs;
}

/**
 * What a dead worker held is taken from it in time. Of other faults a late loss proves nothing: the
 * worker goes on, and loses more when a task blocks its process or ends it.
 */
function* lateLosses({ truth, faults }: Facts): Generator<Finding> {
  const deaths = faults.filter(({ kind }) => DEATHS.includes(kind));
  const deadlines = new Map<string, { readonly death: FaultRecord; readonly deadlineMs: number }>();
  for (const death of deaths) {
    const deadlineMs = deadlineOf(death, faults);
    for (const worker of death.targets) deadlines.set(worker, { death, deadlineMs });
  }
  for (const loss of truth.losses) {
    const end = deadlines.get(loss.worker);
    if (end === undefined || loss.atMs <= end.deadlineMs) continue;
    const lateMs = Math.round(loss.atMs - end.deadlineMs);
    const message = `task ${loss.task} was taken from a dead worker ${lateMs} ms too late`;
    yield { message, slice: [end.death, loss] };
  }
}

/** Everything goes on within the time that is promised. */
export const RECOVERY_RULES: readonly Rule[] = [
  { name: "slow-recovery", count: null, find: slow },
  { name: "late-loss", count: null, find: lateLosses },
];
