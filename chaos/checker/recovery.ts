import { type Facts, groupBy } from "../../src/checker/facts.ts";
import type { FaultRecord, Token } from "../../src/checker/history.ts";
import type { Life } from "../../src/checker/life.ts";
import type { Finding, Rule } from "../../src/checker/rule.ts";
import { storyOf } from "../../src/checker/tasks.ts";

/** How the faults of one kind were got over. */
export interface Recovery {
  readonly fault: string;
  readonly count: number;
  /**
   * Until the last task that a hit process held had ended or was free for others, from when it was
   * hit, or mended if a transaction had its row locked; where nobody was lost, until work went on.
   * Infinity when one never was.
   */
  readonly worstMs: number;
  readonly boundMs: number;
  /** Until work went on, whoever did it, from when the fault was mended. */
  readonly resumedMs: number;
  /** Until the last task that was held had ended or been claimed anew; null: none was held. */
  readonly rerunMs: number | null;
}

/** In the order in which kinds first struck. */
export function recoveriesOf(facts: Facts): Recovery[] {
  const recoveries = new Map<string, Recovery>();
  for (const fault of facts.faults) {
    const { kind, boundMs } = fault;
    const before = recoveries.get(kind);
    const resumedMs = fault.recoveredMs ?? Infinity;
    const held = heldIn(facts, fault);
    const freedMs = longest(
      held.map(({ atMs, freedAtMs, isLocked }) => freedAtMs - (isLocked ? fault.toMs : atMs)),
    );
    const rerunMs = longest(held.map(({ atMs, movedAtMs }) => movedAtMs - atMs));
    recoveries.set(kind, {
      fault: kind,
      count: (before?.count ?? 0) + 1,
      worstMs: Math.max(before?.worstMs ?? 0, freedMs ?? resumedMs),
      boundMs: Math.max(before?.boundMs ?? 0, boundMs),
      resumedMs: Math.max(before?.resumedMs ?? 0, resumedMs),
      rerunMs: longest([before?.rerunMs, rerunMs].flatMap((ms) => ms ?? [])),
    });
  }
  return [...recoveries.values()];
}

/** Null of none. What was over before it began took no time. */
const longest = (times: readonly number[]): number | null =>
  times.length === 0 ? null : times.reduce((a, b) => Math.max(a, b), 0);

/** A task that a process held when it was hit. */
interface HeldTask {
  readonly by: string;
  readonly atMs: number;
  readonly task: Token;
  /** When it ended or was claimed anew, whichever was first; Infinity when it was neither. */
  readonly movedAtMs: number;
  /**
   * When it did, or was taken away, to run alone, or was given back: then it may have to wait for
   * others, or for its next attempt.
   */
  readonly freedAtMs: number;
  /** A transaction of its handler had its row locked: nobody takes it before that is over. */
  readonly isLocked: boolean;
}

/** What was held by those whom the fault hit. */
function heldIn({ held, lives, truth }: Facts, { fromMs, toMs }: FaultRecord): HeldTask[] {
  const looks = held.filter(({ atMs }) => atMs >= fromMs && atMs <= toMs);
  const frees = groupBy([...truth.losses, ...truth.returns], ({ task }) => task);
  return looks.flatMap(({ by, atMs, tasks, locked }) =>
    tasks.map((task) => {
      const movedAtMs = movedAtMsOf(task, lives.get(task.id));
      const freed = (frees.get(task.id) ?? []).filter((one) => one.atMs >= atMs);
      const freedAtMs = freed.reduce((first, one) => Math.min(first, one.atMs), movedAtMs);
      return { by, atMs, task, movedAtMs, freedAtMs, isLocked: locked.includes(task.id) };
    }),
  );
}

function movedAtMsOf({ generation }: Token, life: Life | undefined): number {
  const newer = life?.claims.filter((claim) => claim.generation > generation) ?? [];
  const endedAtMs = life?.task?.finishedAtMs ?? Infinity;
  return newer.reduce((first, { atMs }) => Math.min(first, atMs), endedAtMs);
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

/** Something that goes wrong while what somebody held is still to be taken. */
type Setback = Pick<FaultRecord, "fromMs" | "toMs" | "boundMs">;

/**
 * A task or an event may take the leader's process along. Nobody takes anything before another one
 * leads, which may last as long as after a fault.
 */
export function lostLeads({ exits, truth }: Facts, boundMs: number): Setback[] {
  return exits.flatMap(({ t, what: { worker, asked } }) => {
    const leader = truth.terms.findLast(({ atMs }) => atMs <= t)?.leader ?? null;
    const isLost = asked === null && worker !== null && worker === leader;
    return isLost ? [{ fromMs: t, toMs: t, boundMs }] : [];
  });
}

/** Another fault that begins meanwhile may keep the others from taking what somebody held. */
export function deadlineOf(hitAtMs: number, untilMs: number, others: readonly Setback[]): number {
  let deadlineMs = untilMs;
  for (const { fromMs, toMs, boundMs } of others) {
    const isMeanwhile = fromMs >= hitAtMs && fromMs <= deadlineMs;
    if (isMeanwhile) deadlineMs = Math.max(deadlineMs, toMs + boundMs);
  }
  return deadlineMs;
}

/**
 * What a dead worker held is taken from it in time. Of other faults a late loss proves nothing: the
 * worker goes on, and loses more when a task blocks its process or ends it.
 */
function* lateLosses(facts: Facts): Generator<Finding> {
  const { truth, faults } = facts;
  const deaths = faults.filter(({ kind }) => DEATHS.includes(kind));
  const deadlines = new Map<string, { readonly death: FaultRecord; readonly deadlineMs: number }>();
  for (const death of deaths) {
    const setbacks = [...faults, ...lostLeads(facts, death.boundMs)];
    const deadlineMs = deadlineOf(death.fromMs, death.toMs + death.boundMs, setbacks);
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

/**
 * What whoever was hit held ends or is free for others in time, and not only some of it. The time
 * of a task whose handler has its row locked in a transaction begins when the fault ends: as long
 * as its session stands it may still commit.
 */
function* lateReleases(facts: Facts): Generator<Finding> {
  for (const fault of facts.faults) {
    const faults = facts.faults.filter((one) => one !== fault);
    const others = [...faults, ...lostLeads(facts, fault.boundMs)];
    for (const { by, atMs, task, freedAtMs, isLocked } of heldIn(facts, fault)) {
      const fromMs = isLocked ? fault.toMs : atMs;
      const deadlineMs = deadlineOf(atMs, fromMs + fault.boundMs, others);
      if (freedAtMs <= deadlineMs) continue;
      const when = freedAtMs === Infinity ? "never" : `${Math.round(freedAtMs - atMs)} ms later`;
      const message = `task ${task.id}, which ${by} held at the ${fault.kind}, was free ${when}`;
      yield { message, slice: [fault, ...storyOf(facts, task.id)] };
    }
  }
}

/** Everything goes on within the time that is promised. */
export const RECOVERY_RULES: readonly Rule[] = [
  { name: "slow-recovery", count: null, find: slow },
  { name: "late-loss", count: null, find: lateLosses },
  { name: "late-release", count: null, find: lateReleases },
];
