import { withoutUndefined } from "../../base/options.ts";
import type { CatchUp, Schedule, ScheduleOptions } from "../../schedules/schedule.ts";
import { DEFAULT_TENANT } from "../../tasks/task.ts";
import { confirm } from "../confirm.ts";
import type { GlobalFlags } from "../options.ts";
import { print, printJson } from "../output.ts";
import { readPayload } from "../payload.ts";
import { scheduleLines } from "../schedule-view.ts";
import { withTidemill } from "../session.ts";
import { formatInstant, shown } from "../text.ts";
import { type TaskFlags, taskOptions } from "./task.ts";

interface Documented extends GlobalFlags {
  readonly json?: boolean;
}

interface Named extends Documented {
  readonly tenant?: string;
}

interface Confirmed extends Named {
  readonly yes?: boolean;
}

const scopeOf = ({ tenant }: Named): { readonly tenant?: string } =>
  tenant === undefined ? {} : { tenant };

export async function listSchedules(flags: Documented): Promise<void> {
  await withTidemill(flags, async ({ schedules }) => {
    const all = await schedules.list();
    if (flags.json === true) printJson(all);
    else if (all.length > 0) print(scheduleLines(all).join("\n"));
    else
      print('No schedule. To make one: tidemill schedule add <name> --cron "..." --queue <queue>');
  });
}

export interface AddFlags extends Confirmed, TaskFlags {
  readonly cron: string;
  readonly queue: string;
  readonly timeZone?: string;
  readonly payload?: string;
  readonly catchUp?: CatchUp;
  readonly catchUpMax?: number;
}

export async function addSchedule(name: string, flags: AddFlags): Promise<void> {
  const { cron, queue, timeZone, catchUp, catchUpMax } = flags;
  const payload = flags.payload === undefined ? undefined : await readPayload(flags.payload);
  const options = withoutUndefined({
    ...taskOptions(flags),
    cron,
    queue,
    timeZone,
    catchUp,
    catchUpMax,
    payload,
  }) as ScheduleOptions;
  await withTidemill(flags, async ({ schedules }) => {
    const { tenant = DEFAULT_TENANT } = flags;
    const known = (await schedules.list({ tenant })).find((one) => one.name === name);
    if (known !== undefined) {
      const has = `${known.cron} in ${known.timeZone}, to queue ${known.queue}`;
      await confirm(`This replaces schedule ${shown(name)} (${has}).`, flags);
    }
    const stored = await schedules.put(name, options);
    if (flags.json === true) printJson(stored);
    else
      print(`Schedule ${shown(name)} ${known ? "is replaced" : "is added"}; ${nextText(stored)}.`);
  });
}

function nextText({ nextAt, pausedAt }: Schedule): string {
  if (pausedAt !== undefined) return "it is paused";
  return nextAt === undefined ? "it never fires" : `it fires at ${formatInstant(nextAt)}`;
}

export async function removeSchedule(name: string, flags: Confirmed): Promise<void> {
  await withTidemill(flags, async ({ schedules }) => {
    const { cron, queue } = await schedules.get(name, scopeOf(flags));
    await confirm(
      `This forgets schedule ${shown(name)} (${cron}, to queue ${queue}) and its firings.`,
      flags,
    );
    await schedules.remove(name, scopeOf(flags));
    if (flags.json === true) printJson({ name, isRemoved: true });
    else print(`Schedule ${shown(name)} is removed; tasks that it enqueued stay.`);
  });
}

export async function pauseSchedule(name: string, flags: Named): Promise<void> {
  await withTidemill(flags, async ({ schedules }) => {
    await schedules.pause(name, scopeOf(flags));
    if (flags.json === true) printJson(await schedules.get(name, scopeOf(flags)));
    else print(`Schedule ${shown(name)} is paused.`);
  });
}

export async function resumeSchedule(
  name: string,
  flags: Named & { readonly catchUp?: boolean },
): Promise<void> {
  await withTidemill(flags, async ({ schedules }) => {
    const { pausedAt } = await schedules.get(name, scopeOf(flags));
    await schedules.resume(name, { ...scopeOf(flags), catchUp: flags.catchUp === true });
    const schedule = await schedules.get(name, scopeOf(flags));
    const what = pausedAt === undefined ? "was not paused" : "goes on";
    if (flags.json === true) printJson(schedule);
    else print(`Schedule ${shown(name)} ${what}; ${nextText(schedule)}.`);
  });
}

export async function runScheduleNow(name: string, flags: Named): Promise<void> {
  await withTidemill(flags, async ({ schedules }) => {
    const { id, queue } = await schedules.runNow(name, scopeOf(flags));
    if (flags.json === true) printJson({ id, queue });
    else print(`Schedule ${shown(name)} enqueued task ${id} to queue ${queue}.`);
  });
}
