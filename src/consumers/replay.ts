import { messageOf } from "../base/errors.ts";
import type { Connection } from "../db/database.ts";
import { isUnavailable } from "../db/sqlstate.ts";
import type { PersistedEvent, StreamRef } from "../events/event.ts";
import { BatchTx } from "./batch-tx.ts";
import { type BatchContext, Deadline, type HandlerFailure, handleInOrder } from "./handling.ts";
import { stackOf } from "./poison.ts";
import {
  beginBatch,
  commitBatch,
  lockAssignment,
  lockCheckpoint,
  rollbackBatch,
} from "./sql/batch.ts";
import { readReplayableEvents, setParkedState, unparkEvents } from "./sql/parked.ts";

/** Small, because one failure rolls all of them back. */
const REPLAY_EVENTS_MAX = 100;

export interface Replay {
  readonly handled: number;
  /** The stream that failed again, and why: it is parked again. */
  readonly failure:
    | {
        readonly stream: StreamRef;
        readonly error: string;
        readonly stack: string | undefined;
        /** The time was up. */
        readonly isLate: boolean;
      }
    | undefined;
}

/**
 * Handles events that were set aside, in order, before newer ones of their streams: those are
 * still being parked behind them while the stream is marked. Each is removed in the transaction
 * that handled it. A failure parks its stream again. Undefined when the partition is not ours.
 */
export async function replayParked(context: BatchContext): Promise<Replay | undefined> {
  const { db, partition, hardStop } = context;
  const attempt = (countMax: number): Promise<Replay | undefined> =>
    db.withConnection((connection) => replayOnce(context, connection, countMax));
  let replay = await attempt(REPLAY_EVENTS_MAX);
  // Too slow together says nothing of the one at hand: one alone shows it, or makes progress.
  if (replay?.failure?.isLate === true && !hardStop.aborted) replay = await attempt(1);
  if (replay?.failure === undefined) return replay;
  if (hardStop.aborted) return undefined; // Interrupted: whoever takes over replays them.
  await setParkedState(db, partition.name, "parked", replay.failure);
  return replay;
}

async function replayOnce(
  context: BatchContext,
  connection: Connection,
  countMax: number,
): Promise<Replay | undefined> {
  const { partition, workerId, batchTimeoutMs } = context;
  const [, assignment, checkpoint] = await Promise.all([
    beginBatch(connection, "READ COMMITTED"),
    lockAssignment(connection, partition.name, batchTimeoutMs, workerId),
    lockCheckpoint(connection, partition.name, undefined),
  ]);
  if (assignment?.ownerId !== workerId || checkpoint?.state !== undefined) {
    await rollbackBatch(connection);
    return undefined;
  }
  const replayable = await readReplayableEvents(connection, partition.name, countMax);
  const tx = new BatchTx(context.db, connection, batchTimeoutMs);
  const deadline = new Deadline(context);
  try {
    const handled = await handleInOrder(context, connection, { tx, deadline }, replayable);
    tx.close(); // Before ROLLBACK or COMMIT is on the wire.
    const { next } = handled;
    const events = next === undefined ? replayable : replayable.slice(0, replayable.indexOf(next));
    const failure = handled.failure ?? (await commitReplay(connection, partition.name, events));
    if (failure === undefined) return { handled: events.length, failure: undefined };
    if (deadline.isReached) connection.destroy();
    else await rollbackBatch(connection);
    const { event, error } = failure;
    const why = { error: messageOf(error), stack: stackOf(error), isLate: deadline.isReached };
    return { handled: 0, failure: { stream: event.stream, ...why } };
  } finally {
    deadline.clear();
    tx.close();
  }
}

/** What the handlers left to fail at the commit counts against the last event. */
async function commitReplay(
  connection: Connection,
  partition: string,
  events: readonly PersistedEvent[],
): Promise<HandlerFailure | undefined> {
  try {
    await unparkEvents(connection, partition, events);
    if (await commitBatch(connection)) return undefined;
    throw new Error("a failed statement in the replay was not awaited");
  } catch (error) {
    const event = events.at(-1);
    if (event === undefined || isUnavailable(error)) throw error;
    return { event, error };
  }
}
