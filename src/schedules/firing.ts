import { ConflictError } from "../base/errors.ts";
import { JsonText } from "../base/json-text.ts";
import type { Connection } from "../db/database.ts";
import { type EnqueueContext, enqueueTasks } from "../tasks/enqueue.ts";
import { dueTicks, parseCron } from "./cron.ts";
import {
  advanceSchedule,
  type DueSchedule,
  type LockedSchedule,
  lockDueSchedule,
  readFiredTicks,
} from "./sql/firings.ts";
import type { ScheduleKey, ScheduleRow } from "./sql/schedules.ts";

/** Firings that are kept of each schedule. */
export const FIRINGS_KEPT = 1_000;
/** Payloads of one transaction, if it has more than one: "all" may have thousands of ticks due. */
const FIRING_BYTES_MAX = 8 * 1024 * 1024;

export interface Fired {
  readonly queue: string;
  readonly ticks: readonly Date[];
  readonly taskIds: readonly string[];
  readonly missed: number;
}

/**
 * Fires what is due of one schedule, in one transaction: lock the row while it still waits for the
 * tick that was seen, enqueue, record, and set the next tick if it still waits for the same. So a
 * tick's task, its record and the move of next_at exist together or not at all, and whoever comes
 * second finds another next_at. No leader is needed for that; `mayFire` saves needless work.
 *
 * Undefined when there was nothing to do: fired by another, paused, changed or locked meanwhile.
 */
export async function fireSchedule(
  context: EnqueueContext,
  due: DueSchedule,
  mayFire: (tx: Connection) => Promise<boolean> = async () => true,
): Promise<Fired | undefined> {
  return await context.db.transaction(async (tx) => {
    if (!(await mayFire(tx))) return undefined;
    const schedule = await lockDueSchedule(tx, due);
    if (schedule === undefined || schedule.now < due.nextAt) return undefined;
    const { fire, missed, nextAt } = ticksOf(schedule, due.nextAt);
    const ticks = await withoutFired(tx, due, fire);
    const taskIds = await enqueueFor(context, tx, schedule, ticks.length);
    const advance = { ticks, taskIds, missed, nextAt, kept: FIRINGS_KEPT };
    if (!(await advanceSchedule(tx, due, advance))) {
      throw new ConflictError(`schedule "${due.name}" was changed while it fired`);
    }
    return { queue: schedule.queue, ticks, taskIds, missed };
  });
}

function ticksOf(schedule: LockedSchedule, nextAt: Date): ReturnType<typeof dueTicks> {
  const fitting = Math.floor(FIRING_BYTES_MAX / schedule.payload.length);
  return dueTicks(parseCron(schedule.cron, schedule.time_zone), nextAt, schedule.now, {
    catchUp: schedule.catch_up,
    catchUpMax: Math.max(1, Math.min(schedule.catch_up_max, fitting)),
  });
}

async function withoutFired(
  tx: Connection,
  key: ScheduleKey,
  ticks: readonly Date[],
): Promise<readonly Date[]> {
  if (ticks.length === 0) return ticks;
  const fired = new Set((await readFiredTicks(tx, key, ticks)).map((tick) => tick.getTime()));
  return ticks.filter((tick) => !fired.has(tick.getTime()));
}

/** Enqueues so many of the schedule's tasks in the transaction, and gives their ids. */
export async function enqueueFor(
  context: EnqueueContext,
  tx: Connection,
  schedule: Pick<ScheduleRow, "tenant" | "queue" | "payload" | "options">,
  count: number,
): Promise<string[]> {
  const { tenant, queue, options } = schedule;
  const payload = new JsonText(schedule.payload);
  const tasks = Array.from({ length: count }, () => ({ ...options, tenant, payload }));
  return await enqueueTasks(context, queue, tasks, {
    tx: { query: (text, values) => tx.client.query(text, values) },
  });
}
