import { type Clock, pause } from "../../base/clock.ts";
import { ConflictError, TimeoutError } from "../../base/errors.ts";
import { uuidv4 } from "../../base/uuid.ts";
import { announceChange } from "../../cluster/sql/changes.ts";
import type { Connection, Database } from "../../db/database.ts";
import { lockAssignment, lockCheckpoint } from "../sql/batch.ts";
import { liftHolds, type PartitionPosition, readPositions, setHolds } from "./sql/holds.ts";

/** The partitions of a projection and of its rebuild. */
export interface Sides {
  readonly consumer: string;
  readonly live: readonly string[];
  readonly rebuilt: readonly string[];
}

export interface AlignContext {
  readonly db: Database;
  readonly changesChannel: string;
  readonly clock: Clock;
}

/** What a rebuild makes good in no time: a projection is held meanwhile. */
export const BEHIND_MAX = 10_000n;
/** How long to wait for all to be there, and when holds end whatever happens. */
const PATIENCE_MS = 10_000;
const HOLD_SECONDS = 30;
const LOOK_MS = 20;
/** Longest wait for a batch in flight. */
const LOCK_MS = 30_000;

/**
 * Brings the projection and its rebuild to one position, the furthest that any of them has reached,
 * and runs `work` while they stay there. Holds are a convenience: they may run out meanwhile, and
 * `work` has to check what it relies on.
 */
export async function atOnePosition<T>(
  context: AlignContext,
  sides: Sides,
  work: (position: bigint) => Promise<T>,
): Promise<T> {
  const { db, changesChannel } = context;
  const holder = uuidv4();
  try {
    const position = await hold(context, sides, holder);
    await waitUntilThere(context, sides, position);
    return await work(position);
  } finally {
    await db.transaction(async (tx) => {
      await liftHolds(tx, holder);
      await announceChange(tx, changesChannel);
    });
  }
}

async function hold(
  { db, changesChannel }: AlignContext,
  sides: Sides,
  holder: string,
): Promise<bigint> {
  const { live, rebuilt } = sides;
  return await db.transaction(async (tx) => {
    const positions = await lockPositions(tx, [...live, ...rebuilt]);
    const position = furthestOf(sides, positions);
    const all = [...live, ...rebuilt];
    const held = await setHolds(tx, all, { position, holder, seconds: HOLD_SECONDS });
    if (held < all.length) {
      throw new ConflictError(
        `${sides.consumer} is being compared or swapped by somebody else; try again`,
      );
    }
    await announceChange(tx, changesChannel);
    return position;
  });
}

/** Waits for the batches in flight; none begins until the transaction ends. */
export async function lockPositions(
  tx: Connection,
  partitions: readonly string[],
): Promise<Map<string, PartitionPosition>> {
  const found = new Map<string, PartitionPosition>();
  for (const name of partitions) {
    await lockAssignment(tx, name, LOCK_MS);
    const checkpoint = await lockCheckpoint(tx, name, undefined);
    if (checkpoint === undefined) {
      throw new ConflictError(`${name} is not there any more; look at the status, and decide`);
    }
    found.set(name, { name, position: checkpoint.position, state: checkpoint.state });
  }
  return found;
}

/** The position to meet at. Refuses a rebuild that will not be there soon. */
export function furthestOf(
  { consumer, rebuilt }: Sides,
  positions: ReadonlyMap<string, PartitionPosition>,
): bigint {
  let furthest = 0n;
  for (const { position } of positions.values()) if (position > furthest) furthest = position;
  for (const name of rebuilt) {
    const { position = 0n, state } = positions.get(name) ?? {};
    if (position === furthest && state !== "quarantined") continue;
    if (state !== undefined) {
      throw new ConflictError(
        `${name} is ${state} at ${position}; resume it, or cancel the rebuild`,
      );
    }
    if (furthest - position > BEHIND_MAX) {
      throw new ConflictError(
        `the rebuild of ${consumer} is still ${furthest - position} positions behind; ` +
          "try again when it has caught up",
      );
    }
  }
  return furthest;
}

async function waitUntilThere(
  { db, clock }: AlignContext,
  { consumer, live, rebuilt }: Sides,
  position: bigint,
): Promise<void> {
  const deadlineMs = clock.now() + PATIENCE_MS;
  for (;;) {
    const all = await readPositions(db, [...live, ...rebuilt]);
    // A projection that somebody stopped is waited for in vain, and not needed for a swap.
    const isThere = all.every(
      (one) => one.position === position || (one.state !== undefined && live.includes(one.name)),
    );
    if (isThere) return;
    const stopped = all.find((one) => one.state !== undefined && rebuilt.includes(one.name));
    if (stopped !== undefined && stopped.position !== position) {
      throw new ConflictError(`${stopped.name} is ${stopped.state} at ${stopped.position}`);
    }
    if (clock.now() >= deadlineMs) {
      const late = all.find((one) => one.position !== position);
      throw new TimeoutError(
        `${late?.name ?? consumer} did not reach ${position} in ${PATIENCE_MS / 1000} s; try again`,
      );
    }
    await pause(LOOK_MS, clock, new AbortController().signal);
  }
}
