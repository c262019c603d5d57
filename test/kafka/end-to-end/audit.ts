import type { Call, Entry, Failure } from "./books.ts";
import { kindOf } from "./jobs.ts";
import { type Change, impossible } from "./watcher.ts";

/** What an audit counts. */
export interface Tally {
  /** Attempts that count, of all tasks. */
  attempts: number;
  /** Calls by the record of the target. */
  calls: number;
  /** Attempts of which the target knows nothing: it was dead, or their worker died before. */
  uncalled: number;
  /** Attempts whose worker died. */
  lost: number;
  /** Attempts that found their target dead, or lost it. */
  cut: number;
  /** Attempts that ran out of time. */
  late: number;
  /** Answers of 200 that no worker heard, so that the job was called again. */
  unheard: number;
}

/** Every promise that was broken, in words. Empty: none. */
export type Faults = string[];

const RETRY_AFTER_MS = 1_000;
/** Else nobody did: the connection was refused, reset or closed. */
const ANSWERED = /^the target answered (\d+)$/;

/**
 * Holds the database against the record of the target: every job ended as it had to, every attempt
 * that counts is explained, and every call belongs to one attempt that says the same of it.
 */
export function auditJobs(entries: ReadonlyMap<string, Entry>, jobs: number): [Faults, Tally] {
  const faults: Faults = [];
  const tally = { attempts: 0, calls: 0, uncalled: 0, lost: 0, cut: 0, late: 0, unheard: 0 };
  const numbers = new Set([...entries.values()].map(({ n }) => n));
  if (entries.size !== jobs || numbers.size !== jobs) {
    faults.push(`${jobs} jobs became ${entries.size} tasks with ${numbers.size} numbers`);
  }
  const keys: Keys = { ofTask: new Map(), ofKey: new Map() };
  for (const entry of entries.values()) {
    const say = (what: string): void => {
      faults.push(`job ${entry.n} (${kindOf(entry.n).does}, task ${entry.id}): ${what}`);
    };
    const { end } = kindOf(entry.n);
    if (entry.state !== end) say(`is ${entry.state}, and must be ${end}`);
    for (const call of [...entry.calls.values()].flat()) auditCall(call, entry, keys, say);
    auditPauses(entry, say);
    for (let attempt = 1; attempt <= entry.attempt; attempt += 1) {
      auditAttempt(entry, attempt, tally, say);
    }
    if ([...entry.failures.keys()].some((attempt) => attempt > entry.attempt)) {
      say("has failures of attempts that it did not have");
    }
  }
  return [faults, tally];
}

type Say = (what: string) => void;

/** Of each task the key under which it is called, and the other way round. */
interface Keys {
  readonly ofTask: Map<string, string>;
  readonly ofKey: Map<string, string>;
}

/** It is a call of this job and of no other, of an attempt that there was, under one key. */
function auditCall(call: Call, { n, attempt, id }: Entry, keys: Keys, say: Say): void {
  if (call.n !== n) say(`the target was sent job ${call.n}`);
  if (call.does !== kindOf(n).does) say(`the target was asked for ${call.does}`);
  if (call.attempt < 1 || call.attempt > attempt) say(`was called as attempt ${call.attempt}`);
  const key = keys.ofTask.get(id) ?? call.key;
  const task = keys.ofKey.get(call.key) ?? id;
  if (key !== call.key || task !== id) say(`was called under ${call.key}, and not under ${key}`);
  keys.ofTask.set(id, key);
  keys.ofKey.set(call.key, task);
}

/** Whoever was told to come back in a second did not come before. */
function auditPauses({ calls }: Entry, say: Say): void {
  const all = [...calls.values()].flat().sort((a, b) => a.atMs - b.atMs);
  for (const [place, { status, atMs }] of all.entries()) {
    const next = all[place + 1];
    if (status !== 429 || next === undefined) continue;
    const pauseMs = next.atMs - atMs;
    if (pauseMs < RETRY_AFTER_MS) say(`came back ${pauseMs} ms after it was sent away`);
  }
}

function auditAttempt(entry: Entry, attempt: number, tally: Tally, say: Say): void {
  const calls = entry.calls.get(attempt) ?? [];
  const failures = entry.failures.get(attempt) ?? [];
  const [call] = calls;
  const [failure] = failures;
  tally.attempts += 1;
  tally.calls += calls.length;
  if (call === undefined) tally.uncalled += 1;
  if (calls.length > 1) say(`attempt ${attempt} called ${calls.length} times`);
  if (attempt === entry.attempt && entry.state === "completed") {
    if (failure !== undefined) say(`attempt ${attempt} completed and failed: ${failure.reason}`);
    if (call?.status !== 200) say(`is completed, and was answered ${call?.status}`);
    return;
  }
  if (failure === undefined || failures.length > 1) {
    say(`attempt ${attempt} is explained ${failures.length} times`);
    return;
  }
  const why = contradiction(failure, call);
  if (why !== undefined) say(`attempt ${attempt} ${failure.outcome}, ${failure.reason}: ${why}`);
  count(failure, call, tally);
}

/** What the database says of an attempt and its target denies. */
function contradiction({ outcome, reason }: Failure, call: Call | undefined): string | undefined {
  const answered = ANSWERED.exec(reason)?.[1];
  if (answered !== undefined) {
    return String(call?.status) === answered ? undefined : `its record says ${call?.status}`;
  }
  if (outcome === "lost" || outcome === "timeout") return undefined; // Whatever came of it.
  if (call?.status === undefined || call.status === 200) return undefined; // The target died.
  return `its record says ${call.status}`;
}

function count({ outcome, reason }: Failure, call: Call | undefined, tally: Tally): void {
  if (outcome === "lost") tally.lost += 1;
  else if (outcome === "timeout") tally.late += 1;
  else if (!ANSWERED.test(reason)) tally.cut += 1;
  if (call?.status === 200) tally.unheard += 1;
}

/** A client saw what is stored, of each task all of it and in order, and each change could be. */
export function auditFeed(
  entries: ReadonlyMap<string, Entry>,
  seen: ReadonlyMap<string, readonly Change[]>,
  stored: ReadonlyMap<string, readonly Change[]>,
): Faults {
  const faults: Faults = [];
  for (const { id, state, attempt } of entries.values()) {
    const told = seen.get(id) ?? [];
    const kept = stored.get(id) ?? [];
    if (write(told) !== write(kept)) {
      faults.push(`task ${id}: told ${write(told)}, and stored ${write(kept)}`);
    }
    for (const [place, change] of told.entries()) {
      const why = impossible(told[place - 1], change);
      if (why !== undefined) faults.push(`task ${id}: ${why} cannot be, in ${write(told)}`);
    }
    const last = told.at(-1);
    if (last?.state !== state || last.attempt !== attempt) {
      faults.push(
        `task ${id}: is ${state} ${attempt}, and was told to be ${write(told.slice(-1))}`,
      );
    }
  }
  if (seen.size !== entries.size) faults.push(`of ${entries.size} tasks ${seen.size} were told`);
  return faults;
}

const write = (changes: readonly Change[]): string =>
  changes.map(({ state, attempt }) => `${state} ${attempt}`).join(", ");
