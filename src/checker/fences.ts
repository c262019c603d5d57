import { type Facts, hasEnded } from "./facts.ts";
import type { Ended, Started, Token } from "./history.ts";
import type { Line } from "./life.ts";
import type { Finding, Rule } from "./rule.ts";
import { storyOf } from "./tasks.ts";
import type { ClaimFact, TaskFact } from "./truth.ts";

/*
 * One claim of a task wins. Effects and completions share a transaction, so whoever had no lease
 * any more must have left neither.
 */

const tokenText = ({ generation, claimId }: Pick<TaskFact, "generation" | "claimId">): string =>
  `claim ${claimId} of generation ${generation}`;

type Claim = Pick<Token, "generation" | "claimId">;

/** Whether the task was completed, and by this claim. */
const isWinner = (task: TaskFact | undefined, { generation, claimId }: Claim): boolean =>
  task?.state === "completed" && task.generation === generation && task.claimId === claimId;

function endText(task: TaskFact | undefined): string {
  if (task === undefined) return "it is not there";
  return task.state === "completed" ? `${tokenText(task)} completed it` : `it is ${task.state}`;
}

function* foreignEffects(facts: Facts): Generator<Finding> {
  for (const effect of facts.truth.effects) {
    const { task: id } = effect;
    const task = facts.lives.get(id)?.task;
    if (isWinner(task, effect)) continue;
    const message = `${tokenText(effect)} left an effect of task ${id}, but ${endText(task)}`;
    yield { message, slice: [effect, ...storyOf(facts, id)] };
  }
}

function* doubledEffects(facts: Facts): Generator<Finding> {
  for (const effect of facts.spareEffects) {
    const message = `task ${effect.task} (${effect.name}) has more than one effect`;
    yield { message, slice: [effect, ...storyOf(facts, effect.task)] };
  }
}

function* missingEffects(facts: Facts): Generator<Finding> {
  for (const { id, task, effect } of facts.lives.values()) {
    if (task?.state !== "completed" || effect !== undefined) continue;
    if (!facts.scene.hasEffect(task.queue)) continue;
    const message = `task ${id} (${task.name}) is completed without its effect`;
    yield { message, slice: storyOf(facts, id) };
  }
}

/** What ended is claimed no more. */
function* lateStarts(facts: Facts): Generator<Finding> {
  for (const { id, task, attempts } of facts.lives.values()) {
    if (task === undefined || !hasEnded(task)) continue;
    for (const { what } of attempts) {
      if (what.op !== "start" || what.task.generation <= task.generation) continue;
      const message = `${tokenText(what.task)} started task ${id}, but ${endText(task)}`;
      yield { message, slice: storyOf(facts, id) };
    }
  }
}

/** Each start of a generation beside the first of the same. */
function* restarts({ lives }: Facts): Generator<readonly [Line<Started>, Line<Started>]> {
  for (const { attempts } of lives.values()) {
    if (attempts.length < 2) continue;
    const starts = attempts.filter(isStart);
    if (starts.length < 2) continue;
    const firsts = new Map<number, Line<Started>>();
    for (const line of starts) {
      const { generation } = line.what.task;
      const first = firsts.get(generation);
      if (first === undefined) firsts.set(generation, line);
      else yield [first, line];
    }
  }
}

const isStart = (line: Line<Started | Ended>): line is Line<Started> => line.what.op === "start";

/** Faults of which the server recovers from its log, by their kinds. */
export const CRASHES: readonly string[] = ["crash-server", "kill-backend", "full-disk"];

/**
 * Claims do not wait for the disk, so a crash of the server takes some of them back, and their
 * generation goes to somebody else. What the tables do not know was taken back, by a crash that
 * began before the claim that stands, if there is one. Whoever had it may start until its lease
 * would have ended: it does not know. A start counts where the database told its time; the clock
 * of a process proves nothing. Nothing else hands out a generation twice.
 */
function mayBeTakenBack(
  { scene, faults, lives }: Facts,
  starts: readonly [Line<Started>, Line<Started>],
): boolean {
  const [{ what }] = starts;
  const { claims = [] } = lives.get(what.task.id) ?? {};
  const of = (one: Line<Started>): ClaimFact | undefined =>
    claims.find(
      ({ generation, claimId }) =>
        generation === one.what.task.generation && claimId === one.what.task.claimId,
    );
  const standing = starts.flatMap((one) => of(one) ?? []);
  if (standing.length === starts.length) return false;
  const lost = starts.filter((one) => of(one) === undefined);
  const told = lost.flatMap((one) => one.what.atMs ?? []);
  const fromMs = told.reduce((a, b) => Math.min(a, b), Infinity);
  const untilMs = standing.at(0)?.atMs ?? told.reduce((a, b) => Math.max(a, b), -Infinity);
  const isTimeless = standing.length + told.length === 0;
  const leaseMs = scene.leaseSeconds * 1_000;
  return faults.some(
    (fault) =>
      CRASHES.includes(fault.kind) &&
      (isTimeless || fault.fromMs <= untilMs) &&
      (told.length === 0 || fromMs <= fault.toMs + leaseMs),
  );
}

function* sharedGenerations(facts: Facts): Generator<Finding> {
  for (const [first, line] of restarts(facts)) {
    const { id, generation, claimId } = line.what.task;
    if (claimId === first.what.task.claimId || mayBeTakenBack(facts, [first, line])) continue;
    const message = `generation ${generation} of task ${id} was handed out twice`;
    yield { message, slice: [first, line, ...storyOf(facts, id)] };
  }
}

function* doubledStarts(facts: Facts): Generator<Finding> {
  for (const [first, line] of restarts(facts)) {
    const { task } = line.what;
    if (task.claimId !== first.what.task.claimId) continue;
    const message = `${tokenText(task)} started task ${task.id} twice`;
    yield { message, slice: [first, line, ...storyOf(facts, task.id)] };
  }
}

/** A transaction with a completion in it committed, and so that claim must have won. */
function* unkeptCommits(facts: Facts): Generator<Finding> {
  for (const { id, task, attempts } of facts.lives.values()) {
    for (const { what } of attempts) {
      if (what.op !== "end" || what.how !== "committed" || isWinner(task, what.task)) continue;
      const claim = tokenText(what.task);
      const message = `${claim} committed the end of task ${id}, but ${endText(task)}`;
      yield { message, slice: storyOf(facts, id) };
    }
  }
}

/** A worker may let go of a task. Nobody else may take one while its lease lasts. */
function* cutLeases(facts: Facts): Generator<Finding> {
  const lossOf = (id: string, atMs: number): string => `${id} ${atMs}`;
  const losses = new Set(facts.truth.losses.map(({ task, atMs }) => lossOf(task, atMs)));
  for (const cut of facts.truth.cuts) {
    const { task: id, claimId, nextClaimId, atMs } = cut;
    if (nextClaimId === null && !losses.has(lossOf(id, atMs))) continue;
    const how = nextClaimId === null ? "was given up" : `went to claim ${nextClaimId}`;
    const message = `task ${id} ${how} while the lease of claim ${claimId} lasted`;
    yield { message, slice: [cut, ...storyOf(facts, id)] };
  }
}

/** Who may end a task. */
export const FENCE_RULES: readonly Rule[] = [
  { name: "foreign-effect", count: null, find: foreignEffects },
  { name: "doubled-effect", count: "doubled", find: doubledEffects },
  { name: "missing-effect", count: "lost", find: missingEffects },
  { name: "late-start", count: null, find: lateStarts },
  { name: "shared-generation", count: null, find: sharedGenerations },
  { name: "doubled-start", count: null, find: doubledStarts },
  { name: "unkept-commit", count: "lost", find: unkeptCommits },
  { name: "cut-lease", count: null, find: cutLeases },
];
