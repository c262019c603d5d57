import type { Begun, Started, Token } from "./history.ts";
import type { Life, Line } from "./life.ts";
import type { ClaimFact, PackClaimFact } from "./truth.ts";

/*
 * There are millions of beginnings, and of claims in packs, and nearly all are the only one of
 * their task and of the claim that ended it. Of those, their time is all that is kept.
 */

type LifeOf = (id: string) => Life;

const isLast = ({ task }: Life, { generation, claimId }: Omit<Token, "id">): boolean =>
  task?.generation === generation && task.claimId === claimId;

/** Each of a line. */
function* each({ proc, t, what }: Line<Begun>): Generator<Line<Started>> {
  const { queue, atMs } = what;
  const time = atMs === null ? {} : { atMs };
  for (const { ids, ...claim } of what.claims) {
    for (const id of ids) {
      yield { proc, t, what: { op: "start", queue, task: { id, ...claim }, ...time } };
    }
  }
}

/** Counts them by queues. */
export function addBegins(lines: readonly Line<Begun>[], lifeOf: LifeOf): Map<string, number> {
  const counts = new Map<string, number>();
  for (const { what } of lines) {
    const ids = what.claims.flatMap((claim) => claim.ids);
    counts.set(what.queue, (counts.get(what.queue) ?? 0) + ids.length);
    for (const id of ids) lifeOf(id).begins += 1;
  }
  for (const line of lines) {
    for (const start of each(line)) {
      const life = lifeOf(start.what.task.id);
      const isOfLast = isLast(life, start.what.task);
      if (isOfLast) life.begunAtMs ??= start.what.atMs;
      if (life.begins > 1 || !isOfLast) life.attempts.push(start);
    }
  }
  return counts;
}

export function addClaims(claims: readonly ClaimFact[], lifeOf: LifeOf): void {
  for (const claim of claims) {
    const life = lifeOf(claim.task);
    if (isLast(life, claim)) life.claimedAtMs = claim.atMs;
    life.claims.push(claim);
  }
}

/** A pack is claimed once: who loses it makes rows of its tasks. */
const PACK_GENERATION = 1;

export function addPackClaims(packs: readonly PackClaimFact[], lifeOf: LifeOf): void {
  for (const { ids, claimId, atMs } of packs) {
    for (const task of ids.split(",")) {
      const claim = { task, generation: PACK_GENERATION, claimId, atMs };
      const life = lifeOf(task);
      const isOfLast = isLast(life, claim);
      if (isOfLast) life.claimedAtMs = atMs;
      if (!isOfLast || life.attempts.length > 0) life.claims.push(claim);
    }
  }
}
