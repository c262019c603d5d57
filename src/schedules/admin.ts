import { ConflictError, NotFoundError } from "../base/errors.ts";
import { refuseUnknown, requireNumber } from "../base/options.ts";
import { announceChange } from "../cluster/sql/changes.ts";
import type { Connection } from "../db/database.ts";
import type { EnqueueContext } from "../tasks/enqueue.ts";
import { DEFAULT_TENANT } from "../tasks/task.ts";
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
const SCOPE_KEYS = ["tenant", "queues"];

export interface ScheduleScope {
  /** Whose schedule it is. Defaults to "default". */
  readonly tenant?: string;
  /** Only a schedule of one of these queues; another is not found. Defaults to all. */
  readonly queues?: readonly string[];
}

export interface ListSchedulesOptions {
  /** Defaults to every tenant. */
  readonly tenant?: string;
  /** Only those of these queues. Defaults to all. */
  readonly queues?: readonly string[];
  /** Only names above this one: the last of the page before. Defaults to none. */
  readonly after?: string;
  /** Defaults to all. */
  readonly limit?: number;
}

export interface ResumeOptions extends ScheduleScope {
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
   * next tick from now on; a pause and the record of firings stay. Where `queues` are given, one
   * that enqueues to another queue is not replaced.
   */
  async put<Payload, Result, Input>(
    name: string,
    options: ScheduleOptions<Payload, Result, Input>,
    { queues }: Pick<ScheduleScope, "queues"> = {},
  ): Promise<Schedule> {
    const wanted = await checkSchedule(this.#tasks.directory, name, options);
    const { tenant } = wanted.row;
    const [known] = await readSchedules(this.#tasks.db, { tenant, name, queues });
    if (known !== undefined && isSameSchedule(known, wanted.row)) return toSchedule(known);
    return await this.#tasks.db.transaction(async (tx) => {
      const { row, isChanged } = await store(tx, wanted, queues);
      if (isChanged) await announceChange(tx, this.#changesChannel);
      return toSchedule(row);
    });
  }

  /** By name. */
  async list(options: ListSchedulesOptions = {}): Promise<Schedule[]> {
    refuseUnknown("list", options, ["tenant", "queues", "after", "limit"]);
    const { limit } = options;
    if (limit !== undefined) requireNumber("limit", limit, { min: 1, integer: true });
    return (await readSchedules(this.#tasks.db, options)).map(toSchedule);
  }

  async get(name: string, scope: ScheduleScope = {}): Promise<Schedule> {
    return toSchedule(await this.#find(name, scope));
  }

  async #find(name: string, scope: ScheduleScope): Promise<ScheduleRow> {
    const { tenant = DEFAULT_TENANT, queues } = scope;
    const [row] = await readSchedules(this.#tasks.db, { tenant, name, queues });
    if (row === undefined) throw unknown(name);
    return row;
  }

  /** Its latest firings, the last one first. The last 1,000 are kept. */
  async firings(
    name: string,
    options: ScheduleScope & { readonly limit?: number } = {},
  ): Promise<ScheduleFiring[]> {
    refuseUnknown("firings", options, ["limit", ...SCOPE_KEYS]);
    const range = { min: 1, max: FIRINGS_KEPT, integer: true };
    const limit = requireNumber("limit", options.limit ?? FIRINGS_SHOWN, range);
    const { tenant } = await this.#find(name, options);
    return (await readFirings(this.#tasks.db, { tenant, name }, limit)).map(toFiring);
  }

  /** Which schedule and tick a task belongs to; undefined when none, or too long ago. */
  async firingOf(
    taskId: string,
    { tenant }: Pick<ScheduleScope, "tenant"> = {},
  ): Promise<ScheduleFiring | undefined> {
    const row = await readFiringOf(this.#tasks.db, taskId, tenant);
    return row === undefined ? undefined : toFiring(row);
  }

  /** Forgets the schedule and its firings. Tasks that it enqueued stay. */
  async remove(name: string, scope: ScheduleScope = {}): Promise<void> {
    await this.#act(name, scope, async (tx, row) => {
      await deleteSchedule(tx, row);
    });
  }

  /** No tick fires until it is resumed. */
  async pause(name: string, scope: ScheduleScope = {}): Promise<void> {
    await this.#act(name, scope, (tx, row) => pauseSchedule(tx, row));
  }

  async resume(name: string, options: ResumeOptions = {}): Promise<void> {
    refuseUnknown("resume", options, ["catchUp", ...SCOPE_KEYS]);
    await this.#act(name, options, async (tx, row) => {
      const now = await readNow(tx);
      const isPast = row.next_at !== null && row.next_at <= now;
      const nextAt =
        isPast && options.catchUp !== true
          ? nextTick(parseCron(row.cron, row.time_zone), now)
          : (row.next_at ?? undefined);
      await resumeSchedule(tx, row, nextAt);
    });
  }

  /** Enqueues its task once, now, also while it is paused. Its ticks stay as they are. */
  async runNow(
    name: string,
    scope: ScheduleScope = {},
  ): Promise<{ readonly id: string; readonly queue: string }> {
    const known = await this.#find(name, scope);
    // Its queue is looked up before a connection is held: many calls at once may want the last one.
    await rehearse(this.#tasks.directory, known);
    const task = await this.#tasks.db.transaction(async (tx) => {
      const row = await lockSchedule(tx, known);
      if (row === undefined || !isOf(row, scope.queues)) throw unknown(name);
      const [id] = await enqueueFor(this.#tasks, tx, row, 1);
      if (id === undefined) throw new Error("a task was enqueued without an id");
      await recordRun(tx, row, id, FIRINGS_KEPT);
      return { id, queue: row.queue };
    });
    this.#onEnqueued(task.queue);
    return task;
  }

  async #act(
    name: string,
    { tenant = DEFAULT_TENANT, queues }: ScheduleScope,
    act: (tx: Connection, row: ScheduleRow) => Promise<void>,
  ): Promise<void> {
    await this.#tasks.db.transaction(async (tx) => {
      const row = await lockSchedule(tx, { tenant, name });
      if (row === undefined || !isOf(row, queues)) throw unknown(name);
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
async function store(
  tx: Connection,
  { row: wanted, cron }: CheckedSchedule,
  queues: readonly string[] | undefined,
): Promise<Stored> {
  const now = await readNow(tx);
  for (let tries = 0; tries < STORE_TRIES; tries += 1) {
    const inserted = await insertSchedule(tx, wanted, nextTick(cron, now));
    if (inserted !== undefined) return { row: inserted, isChanged: true };
    const known = await lockSchedule(tx, wanted);
    if (known === undefined) continue;
    if (!isOf(known, queues)) {
      throw new ConflictError(`a schedule of another queue has the name "${wanted.name}"`);
    }
    if (isSameSchedule(known, wanted)) return { row: known, isChanged: false };
    const hasNewTimes = known.cron !== wanted.cron || known.time_zone !== wanted.time_zone;
    const nextAt = hasNewTimes ? nextTick(cron, now) : (known.next_at ?? undefined);
    const updated = await updateSchedule(tx, wanted, nextAt);
    if (updated !== undefined) return { row: updated, isChanged: true };
  }
  throw new ConflictError(`schedule "${wanted.name}" is put and removed at the same time`);
}

const isOf = ({ queue }: ScheduleRow, queues: readonly string[] | undefined): boolean =>
  queues === undefined || queues.includes(queue);

function unknown(name: string): NotFoundError {
  return new NotFoundError(
    `there is no schedule ${JSON.stringify(name)}; "tidemill schedule list" names them`,
  );
}
