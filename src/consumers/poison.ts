import { messageOf, storable, TidemillError } from "../base/errors.ts";
import { announceChange } from "../cluster/sql/changes.ts";
import type { Database } from "../db/database.ts";
import type { PersistedEvent } from "../events/event.ts";
import type { ConsumerSettings } from "./options.ts";
import { lockAssignment, lockCheckpoint } from "./sql/batch.ts";
import { insertQuarantine } from "./sql/states.ts";

/** The worker stopped because a consumer kept failing and `onFailure` is "stop-worker". */
export class ConsecutiveFailuresError extends TidemillError {
  readonly code = "TM_CONSECUTIVE_FAILURES";
  readonly retryable = false;
  readonly consumer: string;
  readonly position: bigint;

  constructor(consumer: string, position: bigint, failures: number, cause: unknown) {
    super(
      `consumer ${consumer} failed ${failures} times at position ${position}: ${messageOf(cause)}`,
      { cause },
    );
    this.consumer = consumer;
    this.position = position;
  }
}

export interface Poison {
  readonly event: PersistedEvent;
  readonly error: unknown;
  readonly failures: number;
}

/**
 * Stops one partition at the event that keeps failing, with all that a person needs to see. Only
 * its owner may, and only while the checkpoint stands right below the event, so that a resumed
 * consumer continues there. False when that is no longer so.
 */
export async function quarantine(
  db: Database,
  partition: string,
  poison: Poison,
  settings: ConsumerSettings,
): Promise<boolean> {
  const { event, error, failures } = poison;
  return await db.transaction(async (tx) => {
    const { batchTimeoutMs, workerId } = settings;
    const assignment = await lockAssignment(tx, partition, batchTimeoutMs, workerId);
    if (assignment?.ownerId !== workerId) return false;
    const checkpoint = await lockCheckpoint(tx, partition, undefined);
    if (checkpoint === undefined || checkpoint.position >= event.position) return false;
    await insertQuarantine(tx, partition, {
      position: event.position,
      eventId: event.id,
      error: messageOf(error),
      stack: stackOf(error),
      failures,
    });
    await announceChange(tx, settings.changesChannel);
    return true;
  });
}

export function stackOf(error: unknown): string | undefined {
  const stack = error instanceof Error ? error.stack : undefined;
  return stack === undefined ? undefined : storable(stack);
}
