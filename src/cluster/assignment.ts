/** A worker that may be given work, and the consumers it can run (`undefined`: any). */
export interface Candidate {
  readonly workerId: string;
  readonly capabilities: ReadonlySet<string> | undefined;
}

/** Consumer to owner; `undefined` when nobody owns it. */
export type Ownership = ReadonlyMap<string, string | undefined>;

export type AssignmentStrategy = "sticky" | "round-robin";

const byBytes = (a: string, b: string): number => Buffer.compare(Buffer.from(a), Buffer.from(b));

/** "name" is one capability, "name/*" that for every partition of it, however many there are. */
const canRun = ({ capabilities }: Candidate, consumer: string): boolean =>
  capabilities === undefined ||
  capabilities.has(consumer) ||
  capabilities.has(`${consumer.replace(/\/\d+$/, "")}/*`);

/**
 * The sources' algorithm: consumers by name, workers by id, consumer i to worker i mod n. A worker
 * that cannot run its share passes it to the next that can.
 */
export function assignRoundRobin(
  consumers: Iterable<string>,
  candidates: readonly Candidate[],
): Map<string, string | undefined> {
  const workers = candidates.toSorted((a, b) => byBytes(a.workerId, b.workerId));
  const result = new Map<string, string | undefined>();
  for (const [index, consumer] of [...consumers].sort(byBytes).entries()) {
    const turn = [...workers.keys()].map((step) => workers[(index + step) % workers.length]);
    const owner = turn.find((worker) => worker !== undefined && canRun(worker, consumer));
    result.set(consumer, owner?.workerId);
  }
  return result;
}

/**
 * Spreads consumers over the workers that can run them, as evenly as their capabilities allow, and
 * moves no consumer that need not move: owners that are still there keep what they have, orphans
 * go to the least loaded, and then single consumers move, along a chain where capabilities demand
 * it, only while that narrows the gap between two workers.
 */
export function assignSticky(
  current: Ownership,
  candidates: readonly Candidate[],
): Map<string, string | undefined> {
  const consumers = [...current.keys()].sort(byBytes);
  const workers = candidates.toSorted((a, b) => byBytes(a.workerId, b.workerId));
  const held = new Map<string, Set<string>>(workers.map((w) => [w.workerId, new Set()]));
  const orphans: string[] = [];
  for (const consumer of consumers) {
    const owner = workers.find((w) => w.workerId === current.get(consumer));
    if (owner !== undefined && canRun(owner, consumer)) held.get(owner.workerId)?.add(consumer);
    else orphans.push(consumer);
  }
  const load = (worker: Candidate): number => held.get(worker.workerId)?.size ?? 0;
  const result = new Map<string, string | undefined>(consumers.map((name) => [name, undefined]));
  for (const consumer of orphans) {
    const able = workers.filter((worker) => canRun(worker, consumer));
    const owner = able.reduce<Candidate | undefined>(
      (best, worker) => (best === undefined || load(worker) < load(best) ? worker : best),
      undefined,
    );
    if (owner !== undefined) held.get(owner.workerId)?.add(consumer);
  }
  while (narrowOnce(workers, held)) {
    // Each pass moves one unit of load from a worker to one with at least two fewer.
  }
  for (const [workerId, names] of held) for (const name of names) result.set(name, workerId);
  return result;
}

/** Moves load along the shortest chain from a fuller worker to one with at least two fewer. */
function narrowOnce(workers: readonly Candidate[], held: Map<string, Set<string>>): boolean {
  const load = (worker: Candidate): number => held.get(worker.workerId)?.size ?? 0;
  const fullest = workers.toSorted((a, b) => load(b) - load(a));
  for (const from of fullest) {
    const chain = findChain(from, workers, held);
    if (chain === undefined) continue;
    for (const { consumer, giver, taker } of chain) {
      held.get(giver)?.delete(consumer);
      held.get(taker)?.add(consumer);
    }
    return true;
  }
  return false;
}

interface Move {
  readonly consumer: string;
  readonly giver: string;
  readonly taker: string;
}

function findChain(
  from: Candidate,
  workers: readonly Candidate[],
  held: ReadonlyMap<string, ReadonlySet<string>>,
): Move[] | undefined {
  const load = (workerId: string): number => held.get(workerId)?.size ?? 0;
  const limit = load(from.workerId) - 2;
  const reached = new Map<string, Move[]>([[from.workerId, []]]);
  const queue = [from.workerId];
  // The emptiest first: what goes to a fuller one may have to move again.
  const takers = workers.toSorted((a, b) => load(a.workerId) - load(b.workerId));
  for (let giver = queue.shift(); giver !== undefined; giver = queue.shift()) {
    const path = reached.get(giver) ?? [];
    for (const taker of takers) {
      if (reached.has(taker.workerId)) continue;
      // The last in name order moves, so that repeated scaling moves the same few.
      const consumer = [...(held.get(giver) ?? [])]
        .sort(byBytes)
        .findLast((name) => canRun(taker, name) && !path.some((move) => move.consumer === name));
      if (consumer === undefined) continue;
      const next = [...path, { consumer, giver, taker: taker.workerId }];
      if (load(taker.workerId) <= limit) return next;
      reached.set(taker.workerId, next);
      queue.push(taker.workerId);
    }
  }
  return undefined;
}

/** Only what differs. Unassigned consumers that stay unassigned are no change. */
export function changedOwners(
  current: Ownership,
  wanted: Ownership,
): { consumer: string; from: string | undefined; to: string | undefined }[] {
  return [...wanted].flatMap(([consumer, to]) => {
    const from = current.get(consumer);
    return from === to ? [] : [{ consumer, from, to }];
  });
}
