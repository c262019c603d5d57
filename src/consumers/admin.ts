import { ConflictError, InvalidInputError, NotFoundError } from "../base/errors.ts";
import { requireNumber } from "../base/options.ts";
import { registerAssignments } from "../cluster/sql/assignments.ts";
import { announceChange } from "../cluster/sql/changes.ts";
import type { Connection, Database } from "../db/database.ts";
import type { StreamRef } from "../events/event.ts";
import { PARTITIONS_MAX, partitionNames } from "./consumer.ts";
import { type ParkedGroups, readParkedGroups } from "./parked.ts";
import { RebuildAdmin } from "./rebuild/admin.ts";
import { rebuiltConsumer } from "./rebuild/names.ts";
import { readRebuild } from "./rebuild/sql/rebuilds.ts";
import {
  deleteConsumer,
  forgetParkedAbove,
  insertConsumer,
  readCapableWorkers,
  readNextPosition,
  readPartitionCount,
  readPoisonPosition,
  readProgress,
  recordAction,
} from "./sql/admin.ts";
import { lockAssignment, lockCheckpoint, recordGap, saveCheckpoint } from "./sql/batch.ts";
import { readParkedStreams, setParkedState } from "./sql/parked.ts";
import { deleteState, insertPause, liftQuarantine } from "./sql/states.ts";

/** Longest wait for a batch in flight, which `batchTimeout` bounds by default to the same. */
const LOCK_MS = 30_000;
const NOBODY = "00000000-0000-0000-0000-000000000000";

/**
 * What a person may do to a consumer while workers run. Each act locks the assignment and then the
 * checkpoint, as a batch does: it waits for the batch in flight, and no batch begins before it has
 * committed. Each leaves a row in operator_actions.
 */
export class ConsumerAdmin {
  /** Start, status, compare, swap, roll back, cancel, forget. */
  readonly rebuilds: RebuildAdmin;
  readonly #db: Database;
  readonly #changesChannel: string;

  constructor(db: Database, changesChannel: string) {
    this.#db = db;
    this.#changesChannel = changesChannel;
    this.rebuilds = new RebuildAdmin(db, changesChannel);
  }

  /** Stops the consumer after its batch in flight. It stays stopped until resumed. */
  async pause(consumer: string, options: { readonly reason?: string } = {}): Promise<void> {
    const { reason } = options;
    await this.#act(consumer, async (tx, partition) => {
      if (!(await insertPause(tx, partition, reason))) return;
      await recordAction(tx, partition, "pause", { reason });
    });
  }

  /**
   * Lets a paused or quarantined consumer go on where it stopped, and replays what was parked.
   * Returns what was undone.
   */
  async resume(
    consumer: string,
    options: { readonly reason?: string } = {},
  ): Promise<{ resumed: number; replaying: number }> {
    const { reason } = options;
    let resumed = 0;
    let replaying = 0;
    await this.#act(consumer, async (tx, partition) => {
      const state = await deleteState(tx, partition);
      const streams = await setParkedState(tx, partition, "replaying");
      if (state !== undefined) resumed += 1;
      replaying += streams;
      if (state === undefined && streams === 0) return;
      await recordAction(tx, partition, "resume", { state, streams, reason });
    });
    return { resumed, replaying };
  }

  /** What was set aside by `onFailure: "park"`, by why: of the newest 1,000 streams. */
  async parked(): Promise<ParkedGroups> {
    return await readParkedGroups(this.#db);
  }

  /**
   * Handles the events of these parked streams again, in order and before newer ones of theirs. A
   * stream that fails again is parked again. Returns how many are replayed.
   */
  async replay(
    consumer: string,
    options: { readonly streams: readonly StreamRef[]; readonly reason?: string },
  ): Promise<number> {
    const { streams, reason } = options;
    if (streams.length === 0) throw new InvalidInputError("replay needs at least one stream");
    let replaying = 0;
    await this.#act(consumer, async (tx, partition) => {
      let changed = 0;
      for (const stream of streams) {
        changed += await setParkedState(tx, partition, "replaying", { stream });
      }
      replaying += changed;
      if (changed > 0) await recordAction(tx, partition, "replay", { streams: changed, reason });
    });
    if (replaying === 0) {
      throw new NotFoundError(`consumer ${consumer} has none of these streams parked`);
    }
    return replaying;
  }

  /**
   * Moves the checkpoint back, so that events above `to` are handled again. What the consumer wrote
   * for them is the caller's to undo first.
   */
  async rewind(
    consumer: string,
    options: { readonly to: bigint; readonly reason?: string },
  ): Promise<void> {
    const { to, reason } = options;
    if (to < 0n) throw new InvalidInputError(`a position is at least 0, not ${to}`);
    refuseRebuild(consumer);
    await this.#act(consumer, async (tx, partition, checkpoint) => {
      if (to > checkpoint) {
        throw new InvalidInputError(
          `consumer ${partition} is at ${checkpoint}: rewind goes back, not forward to ${to}`,
        );
      }
      await forgetParkedAbove(tx, partition, to);
      if (to < checkpoint) await saveCheckpoint(tx, partition, checkpoint, to);
      const detail = { from: String(checkpoint), to: String(to), reason };
      await recordAction(tx, partition, "rewind", detail);
    });
  }

  /**
   * Passes one position without handling it: the poison event of a quarantined consumer, the next
   * event, or a missing position that is still open. For ever, and for a reason that is kept.
   */
  async skip(
    consumer: string,
    options: { readonly reason: string; readonly position?: bigint },
  ): Promise<bigint> {
    const { reason } = options;
    if (!reason?.trim()) throw new InvalidInputError("skip needs a reason");
    const partitions = await this.#partitions(consumer);
    if (partitions.length > 1) {
      throw new InvalidInputError(
        `consumer ${consumer} has ${partitions.length} partitions; name the one to skip in, ` +
          `such as ${partitions[0]}`,
      );
    }
    let skipped = 0n;
    await this.#act(consumer, async (tx, partition, checkpoint) => {
      const poison = await readPoisonPosition(tx, partition);
      const next = await readNextPosition(tx, checkpoint);
      const position = options.position ?? poison ?? next;
      if (position === undefined || next === undefined) {
        throw new ConflictError(`consumer ${partition} is at the end of the log: nothing to skip`);
      }
      const isNext = position === checkpoint + 1n || position === poison;
      if (options.position === undefined && !isNext) {
        throw new ConflictError(
          `consumer ${partition} is at ${checkpoint} and the next event is ${position}; the ` +
            "positions in between may still be filled: wait, or name the position to skip to",
        );
      }
      if (position <= checkpoint || position > next) {
        throw new InvalidInputError(
          `consumer ${partition} is at ${checkpoint} and the next event is ${next}: ` +
            `only a position in between can be skipped, not ${position}`,
        );
      }
      await recordGap(tx, {
        partition,
        workerId: NOBODY,
        gapPosition: position,
        skipTo: position,
        highestVisible: next,
        openSeconds: 0,
        how: "person",
        missing: position - checkpoint,
        reason,
      });
      await saveCheckpoint(tx, partition, checkpoint, position);
      await liftQuarantine(tx, partition);
      await recordAction(tx, partition, "skip", { position: String(position), reason });
      skipped = position;
    });
    return skipped;
  }

  /** Forgets a consumer that no program has any more: its checkpoint, its share of the balance. */
  async retire(consumer: string, options: { readonly force?: boolean } = {}): Promise<void> {
    refusePartition(consumer);
    await this.#refuseWhileRebuilt(consumer);
    const partitions = await this.#partitions(consumer);
    if (options.force !== true) await this.#refuseIfRunning(consumer, partitions);
    await this.#db.transaction(async (tx) => {
      for (const partition of partitions) await lockAssignment(tx, partition, LOCK_MS);
      await deleteConsumer(tx, consumer, partitions);
      await recordAction(tx, consumer, "retire", {});
      await announceChange(tx, this.#changesChannel);
    });
  }

  /** Splits a consumer anew. Only while nobody runs it and all its partitions are equally far. */
  async repartition(consumer: string, options: { readonly partitions: number }): Promise<void> {
    refusePartition(consumer);
    const count = { min: 1, max: PARTITIONS_MAX, integer: true };
    const after = partitionNames(consumer, requireNumber("partitions", options.partitions, count));
    await this.#refuseWhileRebuilt(consumer);
    const before = await this.#partitions(consumer);
    await this.#refuseIfRunning(consumer, before);
    await this.#db.transaction(async (tx) => {
      const positions = new Set<bigint>();
      for (const partition of before) {
        await lockAssignment(tx, partition, LOCK_MS);
        const checkpoint = await lockCheckpoint(tx, partition, undefined);
        if (checkpoint !== undefined) positions.add(checkpoint.position);
        if (checkpoint?.state !== undefined) {
          throw new ConflictError(`${partition} is ${checkpoint.state}; resume it first`);
        }
        if ((await readParkedStreams(tx, partition)).length > 0) {
          throw new ConflictError(`${partition} has parked streams; resume it first`);
        }
      }
      const [position] = positions;
      if (position === undefined || positions.size > 1) {
        throw new ConflictError(
          `the partitions of consumer ${consumer} are not equally far; run it to the head of a ` +
            "quiet log, or rewind it, then repartition",
        );
      }
      await deleteConsumer(tx, consumer, before);
      await insertConsumer(tx, consumer, after, position);
      await registerAssignments(tx, after);
      const detail = { from: before.length, to: after.length, position: String(position) };
      await recordAction(tx, consumer, "repartition", detail);
      await announceChange(tx, this.#changesChannel);
    });
  }

  /** Where the slowest partition of the consumer is. */
  async progress(consumer: string): Promise<{ checkpoint: bigint; state: string | undefined }> {
    const { slowest, state } = await readProgress(this.#db, await this.#partitions(consumer));
    return { checkpoint: slowest, state };
  }

  async #partitions(consumer: string): Promise<string[]> {
    const count = await readPartitionCount(this.#db, consumer);
    if (count === undefined) {
      throw new NotFoundError(
        `there is no consumer ${JSON.stringify(consumer)}; "tidemill consumer list" names them`,
      );
    }
    return partitionNames(consumer, count);
  }

  /** Tables of it are kept, for this consumer as it is. */
  async #refuseWhileRebuilt(consumer: string): Promise<void> {
    refuseRebuild(consumer);
    const rebuild = await readRebuild(this.#db, consumer);
    if (rebuild === undefined) return;
    const how =
      rebuild.state === "swapped" ? "forget the tables from before" : "cancel its rebuild";
    throw new ConflictError(`consumer ${consumer} has a rebuild; ${how} first`);
  }

  async #refuseIfRunning(consumer: string, partitions: readonly string[]): Promise<void> {
    const workers = await readCapableWorkers(this.#db, partitions);
    if (workers.length === 0) return;
    throw new ConflictError(
      `consumer ${consumer} is part of ${workers.length} running worker(s), which would bring it ` +
        "back; stop them first",
    );
  }

  async #act(
    consumer: string,
    act: (tx: Connection, partition: string, checkpoint: bigint) => Promise<void>,
  ): Promise<void> {
    const partitions = await this.#partitions(consumer);
    await this.#db.transaction(async (tx) => {
      for (const partition of partitions) {
        await lockAssignment(tx, partition, LOCK_MS);
        const checkpoint = await lockCheckpoint(tx, partition, undefined);
        if (checkpoint !== undefined) await act(tx, partition, checkpoint.position);
      }
      await announceChange(tx, this.#changesChannel);
    });
  }
}

/** A rebuild begins at the beginning, and ends with all it has made. */
function refuseRebuild(name: string): void {
  const consumer = rebuiltConsumer(name);
  if (consumer === undefined) return;
  throw new InvalidInputError(
    `${name} is a rebuild; "tidemill consumer rebuild cancel ${consumer}" ends it`,
  );
}

/** Half a consumer cannot be retired or split. */
function refusePartition(consumer: string): void {
  if (!/\/\d+$/.test(consumer)) return;
  throw new InvalidInputError(
    `${consumer} is one partition; name the consumer ${consumer.replace(/\/\d+$/, "")}`,
  );
}
