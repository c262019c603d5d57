/**
 * The highest position up to which everything is settled, meaning visible or never to come.
 *
 * Positions come from a sequence, so a lower one can become visible after a higher one. Two facts
 * make an advance safe: the positions seen continue the frontier without a hole, or an epoch has
 * closed over the holes. Time never does.
 *
 * @param frontier what is already known to be settled
 * @param settledTo ceiling of the newest closed epoch
 * @param positions visible above the frontier, ascending, read after that epoch closed
 */
export function safeFrontier(
  frontier: bigint,
  settledTo: bigint,
  positions: readonly bigint[],
): bigint {
  let reached = settledTo > frontier ? settledTo : frontier;
  for (const position of positions) {
    if (position <= reached) continue;
    if (position !== reached + 1n) break;
    reached = position;
  }
  return reached;
}

/**
 * How far a batch made of these rows may move a checkpoint. A window that was cut by its limit may
 * have more rows behind it, so it reaches only to its last row; otherwise it reaches the frontier.
 */
export function windowTarget(
  positions: readonly bigint[],
  isCut: boolean,
  frontier: bigint,
): bigint {
  const last = positions.findLast((position) => position <= frontier);
  const isCutBelowFrontier = isCut && last !== undefined && last === positions.at(-1);
  return isCutBelowFrontier ? last : frontier;
}

/** A fence drawn after the sequence was read: see docs/explanation/gaps.md. */
export interface Epoch {
  /** Last position handed out before the fence was drawn. */
  readonly ceiling: bigint;
  /** A transaction id of ours, drawn after `ceiling` was read and committed durably. */
  readonly fence: bigint;
  /** Transactions that might have been appending, read after `ceiling`. Only when asked for. */
  readonly lockers?: ReadonlySet<string>;
}

/** What one look at the server told, to be followed by a later read of the rows. */
export interface Observation {
  /** `pg_snapshot_xmin`: every transaction below it has ended. */
  readonly oldestRunning: bigint;
  /** Transactions that may be appending now; undefined when not looked at. */
  readonly lockers?: ReadonlySet<string>;
}

/** Whether every position up to the epoch's ceiling is settled, and by which proof. */
export function closedBy(epoch: Epoch, seen: Observation): "epoch" | "lockers" | undefined {
  // Strictly above: the fence itself is a finished transaction of ours.
  if (seen.oldestRunning > epoch.fence) return "epoch";
  if (epoch.lockers === undefined || seen.lockers === undefined) return undefined;
  for (const locker of seen.lockers) {
    // A transaction prepared before a restart comes back under a name nobody remembered.
    if (locker.startsWith("-1/") || epoch.lockers.has(locker)) return undefined;
  }
  return "lockers";
}
