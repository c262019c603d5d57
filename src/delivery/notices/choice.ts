import { mixedHash } from "../../base/identifier.ts";
import type { Candidate, Turn } from "./sql/notices.ts";

/** What waits, by queue, of one tenant: only queues with something to do are in it. */
export type WaitingWork = ReadonlyMap<string, number>;

/** One subscription that is to be told now, and of which queues. */
export interface Choice {
  readonly candidate: Candidate;
  readonly queues: readonly string[];
}

/**
 * Who of one tenant is told, and of what. Each of mode fanout that is due; of a group, for each
 * queue that has its turn, the one that was told longest ago; of mode hash, for each queue the one
 * that its name chooses.
 */
export function chooseNotices(
  candidates: readonly Candidate[],
  work: WaitingWork,
  quiet: readonly Turn[],
): Choice[] {
  const queues = [...work.keys()].sort();
  const concerns = ({ queues: named }: Candidate): string[] =>
    named === null ? queues : queues.filter((queue) => named.includes(queue));
  const told = new Map<Candidate, string[]>();
  const tell = (candidate: Candidate, queue: string): void => {
    told.set(candidate, [...(told.get(candidate) ?? []), queue]);
  };
  for (const candidate of candidates) {
    if (candidate.mode !== "fanout" || !candidate.is_due) continue;
    for (const queue of concerns(candidate)) tell(candidate, queue);
  }
  for (const [queue, member] of membersInTurn(candidates, concerns, quiet)) tell(member, queue);
  const hashed = candidates.filter(({ mode }) => mode === "hash");
  for (const queue of queues) {
    const named = hashed.filter((one) => concerns(one).includes(queue));
    const [chosen] = inHashOrder(named, queue);
    if (chosen?.is_due === true) tell(chosen, queue);
  }
  return [...told].map(([candidate, list]) => {
    return { candidate, queues: candidate.format === "codeq" ? next(candidate, list) : list };
  });
}

/** For each queue and group the member whose turn it is. */
function membersInTurn(
  candidates: readonly Candidate[],
  concerns: (candidate: Candidate) => readonly string[],
  quiet: readonly Turn[],
): (readonly [queue: string, member: Candidate])[] {
  const isQuiet = new Set(quiet.map(({ group_name, queue }) => turnKey(group_name, queue)));
  const members = candidates
    .filter(({ mode, is_due }) => mode === "group" && is_due)
    .sort(toldLongestAgo);
  const turns = new Map<string, readonly [string, Candidate]>();
  for (const member of members) {
    for (const queue of concerns(member)) {
      const turn = turnKey(member.group_name ?? "", queue);
      if (!isQuiet.has(turn) && !turns.has(turn)) turns.set(turn, [queue, member]);
    }
  }
  return [...turns.values()];
}

/** No name holds the separator. */
const turnKey = (group: string, queue: string): string => `${group}\u001f${queue}`;

/** Who was never told comes first, then who was told before others; the oldest of several. */
function toldLongestAgo(a: Candidate, b: Candidate): number {
  const since = (a.told_at?.getTime() ?? 0) - (b.told_at?.getTime() ?? 0);
  return since || byId(a, b);
}

const byId = (a: Candidate, b: Candidate): number => (a.id < b.id ? -1 : a.id > b.id ? 1 : 0);

/**
 * Each weighs the queue with its own address, and the heaviest is chosen: whoever comes or goes
 * moves no queue but its own, and one that comes back has the same. Those whose last call failed
 * come after all others.
 */
function inHashOrder(candidates: readonly Candidate[], queue: string): Candidate[] {
  const weight = ({ url }: Candidate): number => mixedHash(`${queue}\u001f${url}`);
  const isDown = ({ failures }: Candidate): number => (failures > 0 ? 1 : 0);
  return candidates.toSorted(
    (a, b) => isDown(a) - isDown(b) || weight(b) - weight(a) || byId(a, b),
  );
}

/** Notices of CodeQ name one queue: the one after that of the last notice. */
function next({ told_queue }: Candidate, queues: readonly string[]): readonly string[] {
  const last = told_queue ?? "";
  const chosen = queues.find((queue) => queue > last) ?? queues[0];
  return chosen === undefined ? [] : [chosen];
}
