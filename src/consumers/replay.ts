import { messageOf } from "../base/errors.ts";
import type { BatchContext } from "./batch.ts";
import { BatchTx } from "./batch-tx.ts";
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

/**
 * Handles events that were set aside, in order, before newer ones of their streams: those are
 * still being parked behind them while the stream is marked. Each is removed in the transaction
 * that handled it. A failure parks its stream again. Returns how many were handled, or undefined
 * when the partition is not ours to run.
 */
export async function replayParked(context: BatchContext): Promise<number | undefined> {
  const { db, partition, workerId, batchTimeoutMs, hardStop } = context;
  return await db.withConnection(async (connection) => {
    const [, assignment, checkpoint] = await Promise.all([
      beginBatch(connection, "READ COMMITTED"),
      lockAssignment(connection, partition.name, batchTimeoutMs),
      lockCheckpoint(connection, partition.name, undefined),
    ]);
    if (assignment?.ownerId !== workerId || checkpoint?.state !== undefined) {
      await rollbackBatch(connection);
      return undefined;
    }
    const events = await readReplayableEvents(connection, partition.name, REPLAY_EVENTS_MAX);
    const tx = new BatchTx(connection, context.batchTimeoutMs);
    const given = { tx, signal: hardStop, consumer: partition.consumer.name, workerId };
    for (const event of events) {
      try {
        await partition.consumer.handle(event, given);
      } catch (error) {
        tx.close();
        if (tx.outage !== undefined) throw tx.outage;
        await rollbackBatch(connection);
        const failure = { stream: event.stream, error: messageOf(error), stack: stackOf(error) };
        await setParkedState(connection, partition.name, "parked", failure);
        return 0;
      }
    }
    tx.close();
    await unparkEvents(connection, partition.name, events);
    if (!(await commitBatch(connection))) throw new Error("the replay was rolled back");
    return events.length;
  });
}
