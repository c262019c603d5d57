import { ConflictError, NotFoundError } from "../base/errors.ts";
import { refuseUnknown, requireNumber } from "../base/options.ts";
import { announceChange } from "../cluster/sql/changes.ts";
import type { Connection } from "../db/database.ts";
import type { EnqueueContext } from "../tasks/enqueue.ts";
import { nextTick, parseCron } from "./cron.ts";
import { enqueueFor, FIRINGS_KEPT } from "./firing.ts";
import {
  type CheckedSchedule,
  checkSchedule,
  isSameSchedule,
  rehearse,
  type Schedule,
  type ScheduleFiring,
  type ScheduleOptions,
  toFiring,
  toSchedule,
} from "./schedule.ts";
import { readFiringOf, readFirings, recordRun } from "./sql/firings.ts";
import {
  deleteSchedule,
  insertSchedule,
  lockSchedule,
  pauseSchedule,
  readNow,
  readSchedules,
  resumeSchedule,
  type ScheduleRow,
  updateSchedule,
} from "./sql/schedules.ts";

const STORE_TRIES = 3;
const FIRINGS_SHOWN = 100;

export interface ResumeOptions {
  /**
   * Whether the schedule's catch-up policy decides about ticks that passed during the pause.
   * Otherwise they do not fire.
   *
   * Defaults to false.
   */
  readonly catchUp?: boolean;
}

/**
 * What people and programs do to schedules while workers fire them. Each act locks the row of the
 * schedule, as a firing does: it waits for the firing in flight, and none begins before it commits.
 */
export class ScheduleAdmin {
  readonly #tasks: EnqueueContext;
  readonly #changesChannel: string;
  readonly #onEnqueued: (queue: string) => void;

  constructor(
    tasks: EnqueueContext,
    changesChannel: string,
    onEnqueued: (queue: string) => void = () => {},
  ) {
    this.#tasks = tasks;
    this.#changesChannel = changesChannel;
    this.#onEnqueued = onEnqueued;
  }

  /**
   * Creates the schedule, or makes it what is given. The same definition again changes nothing, so
   * every process may call this when it starts. Another cron expression or time zone waits for its
   * next tick from now on; a pause and the record of firings stay.
   */
  async put<Payload, Result, Input>(
    name: string,
    options: ScheduleOptions<Payload, Result, Input>,
  ): Promise<Schedule> {
    const wanted = await checkSchedule(this.#tasks.directory, name, options);
    const [known] = await readSchedules(this.#tasks.db, name);
    if (known !== undefined && isSameSchedule(known, wanted.row)) return toSchedule(known);
    return await this.#tasks.db.transaction(async (tx) => {
      const { row, isChanged } = await store(tx, wanted);
      if (isChanged) await announceChange(tx, this.#changesChannel);
      return toSchedule(row);
    });
  }

  /** By name. */
  async list(): Promise<Schedule[]> {
    return (await readSchedules(this.#tasks.db)).map(toSchedule);
  }

  async get(name: string): Promise<Schedule> {
    const [row] = await readSchedules(this.#tasks.db, name);
    if (row === undefined) throw unknown(name);
    return toSchedule(row);
  }

  /** Its latest firings, the last one first. The last 1,000 are kept. */
  async firings(
    name: string,
    options: { readonly limit?: number } = {},
  ): Promise<ScheduleFiring[]> {
    refuseUnknown("firings", options, ["limit"]);
    const range = { min: 1, max: FIRINGS_KEPT, integer: true };
    const limit = requireNumber("limit", options.limit ?? FIRINGS_SHOWN, range);
    await this.get(name);
    return (await readFirings(this.#tasks.db, name, limit)).map(toFiring);
  }

  /** Which schedule and tick a task belongs to; undefined when none, or too long ago. */
  async firingOf(taskId: string): Promise<ScheduleFiring | undefined> {
    const row = await readFiringOf(this.#tasks.db, taskId);
    return row === undefined ? undefined : toFiring(row);
  }

  /** Forgets the schedule and its firings. Tasks that it enqueued stay. */
  async remove(name: string): Promise<void> {
    await this.#act(name, async (tx) => {
      await deleteSchedule(tx, name);
    });
  }

  /** No tick fires until it is resumed. */
  async pause(name: string): Promise<void> {
    await this.#act(name, (tx) => pauseSchedule(tx, name));
  }

  async resume(name: string, options: ResumeOptions = {}): Promise<void> {
    refuseUnknown("resume", options, ["catchUp"]);
    await this.#act(name, async (tx, row) => {
      const now = await readNow(tx);
      const isPast = row.next_at !== null && row.next_at <= now;
      const nextAt =
        isPast && options.catchUp !== true
          ? nextTick(parseCron(row.cron, row.time_zone), now)
          : (row.next_at ?? undefined);
      await resumeSchedule(tx, name, nextAt);
    });
  }

  /** Enqueues its task once, now, also while it is paused. Its ticks stay as they are. */
  async runNow(name: string): Promise<{ readonly id: string; readonly queue: string }> {
    const [known] = await readSchedules(this.#tasks.db, name);
    if (known === undefined) throw unknown(name);
    // Its queue is looked up before a connection is held: many calls at once may want the last one.
    await rehearse(this.#tasks.directory, known);
    const task = await this.#tasks.db.transaction(async (tx) => {
      const row = await lockSchedule(tx, name);
      if (row === undefined) throw unknown(name);
      const [id] = await enqueueFor(this.#tasks, tx, row, 1);
      if (id === undefined) throw new Error("a task was enqueued without an id");
      await recordRun(tx, name, id, FIRINGS_KEPT);
      return { id, queue: row.queue };
    });
    this.#onEnqueued(task.queue);
    return task;
  }

  async #act(
    name: string,
    act: (tx: Connection, row: ScheduleRow) => Promise<void>,
  ): Promise<void> {
    await this.#tasks.db.transaction(async (tx) => {
      const row = await lockSchedule(tx, name);
      if (row === undefined) throw unknown(name);
      await act(tx, row);
      await announceChange(tx, this.#changesChannel);
    });
  }
}

interface Stored {
  readonly row: ScheduleRow;
  readonly isChanged: boolean;
}

/** Insert, or else lock and update: a row that vanishes in between means to try again. */
async function store(tx: Connection, { row: wanted, cron }: CheckedSchedule): Promise<Stored> {
  const now = await readNow(tx);
  for (let tries = 0; tries < STORE_TRIES; tries += 1) {
    const inserted = await insertSchedule(tx, wanted, nextTick(cron, now));
    if (inserted !== undefined) return { row: inserted, isChanged: true };
    const known = await lockSchedule(tx, wanted.name);
    if (known === undefined) continue;
    if (isSameSchedule(known, wanted)) return { row: known, isChanged: false };
    const hasNewTimes = known.cron !== wanted.cron || known.time_zone !== wanted.time_zone;
    const nextAt = hasNewTimes ? nextTick(cron, now) : (known.next_at ?? undefined);
    const updated = await updateSchedule(tx, wanted, nextAt);
    if (updated !== undefined) return { row: updated, isChanged: true };
  }
  throw new ConflictError(`schedule "${wanted.name}" is put and removed at the same time`);
}

function unknown(name: string): NotFoundError {
  return new NotFoundError(
    `there is no schedule ${JSON.stringify(name)}; "tidemill schedule list" names them`,
  );
}
