import { withoutUndefined } from "../../base/options.ts";
import { type HttpQueueOptions, httpQueue } from "../../tasks/http-queue.ts";
import type { LimitChanges, Rate } from "../../tasks/limits.ts";
import type { PauseKeyOptions } from "../../tasks/queue-admin.ts";
import { UsageError } from "../errors.ts";
import { requireQueue } from "../find-queue.ts";
import { callOf, type HttpFlags } from "../http-flags.ts";
import type { GlobalFlags } from "../options.ts";
import { print, printJson } from "../output.ts";
import { limitsText, queueLines } from "../queue-view.ts";
import { withTidemill } from "../session.ts";
import { formatInstant, shown } from "../text.ts";

interface Documented extends GlobalFlags {
  readonly json?: boolean;
}

export async function listQueues(flags: Documented): Promise<void> {
  await withTidemill(flags, async (mill) => {
    const queues = await mill.queues.list();
    if (flags.json === true) printJson(queues);
    else if (queues.length > 0) print(queueLines(queues).join("\n"));
    else print("No queue was registered yet: a worker registers those it handles.");
  });
}

export interface DefineFlags extends Documented, HttpFlags {
  readonly maxAttempts?: number;
  readonly timeout?: number;
}

export async function defineHttpQueue(name: string, flags: DefineFlags): Promise<void> {
  const { maxAttempts, timeout: timeoutSeconds } = flags;
  const options = { ...withoutUndefined({ maxAttempts, timeoutSeconds }), ...callOf(flags) };
  const queue = httpQueue(name, options as HttpQueueOptions);
  await withTidemill(flags, async (mill) => {
    const isNew = (await mill.queues.define(queue)) === "made";
    if (flags.json === true) printJson({ queue: name, isNew, http: queue.settings.http });
    else
      print(
        `Queue ${name} is ${isNew ? "defined" : "as given now"}. Workers with httpJobs run it.`,
      );
  });
}

export async function pauseQueue(
  name: string,
  flags: Documented & { readonly reason?: string },
): Promise<void> {
  const { reason, json } = flags;
  await withTidemill(flags, async (mill) => {
    await requireQueue(mill, name);
    await mill.queues.pause(name, reason === undefined ? {} : { reason });
    const { running } = await requireQueue(mill, name);
    const rest = running === 0 ? "" : ` What runs goes on: ${running}.`;
    if (json === true) printJson({ queue: name, isPaused: true, running });
    else print(`Queue ${name} is paused.${rest}`);
  });
}

export async function resumeQueue(name: string, flags: Documented): Promise<void> {
  await withTidemill(flags, async (mill) => {
    const { isPaused: wasPaused } = await requireQueue(mill, name);
    await mill.queues.resume(name);
    if (flags.json === true) printJson({ queue: name, isPaused: false, wasPaused });
    else print(`Queue ${name} ${wasPaused ? "goes on" : "was not paused"}.`);
  });
}

export interface LimitFlags extends Documented {
  readonly concurrency?: number | "none";
  readonly rate?: Rate | "none";
  readonly keyRate?: Rate | "none";
  readonly reset?: boolean;
}

/** Shows the limits, after changing those that are given. The others stay. */
export async function limitQueue(name: string, flags: LimitFlags): Promise<void> {
  const { concurrency, rate, keyRate } = flags;
  const isSetting = [concurrency, rate, keyRate].some((one) => one !== undefined);
  if (isSetting && flags.reset === true) {
    throw new UsageError("--reset hands all limits back: leave out the others");
  }
  await withTidemill(flags, async (mill) => {
    await requireQueue(mill, name);
    if (isSetting) await mill.queues.setLimits(name, changesOf(flags));
    if (flags.reset === true) await mill.queues.resetLimits(name);
    const { limits } = await requireQueue(mill, name);
    if (flags.json === true) printJson({ queue: name, limits });
    else print(`Queue ${name}: ${limitsText(limits) || "no limits"}.`);
  });
}

function changesOf({ concurrency, rate, keyRate }: LimitFlags): LimitChanges {
  const change = <T>(given: T | "none" | undefined): T | null | undefined =>
    given === "none" ? null : given;
  return withoutUndefined({
    concurrency: change(concurrency),
    rate: change(rate),
    keyRate: change(keyRate),
  });
}

interface KeyFlags extends Documented {
  readonly tenant?: string;
}

export async function pauseKey(
  queue: string,
  key: string,
  flags: KeyFlags & { readonly until?: Date; readonly reason?: string },
): Promise<void> {
  const { tenant, until, reason, json } = flags;
  requireKey(key);
  if (until !== undefined && until.getTime() <= Date.now()) {
    throw new UsageError(`--until is past: ${formatInstant(until)}`);
  }
  await withTidemill(flags, async ({ queues }) => {
    const options = withoutUndefined({ tenant, until, reason }) as PauseKeyOptions;
    await queues.pauseKey(queue, key, options);
    const how = until === undefined ? "until it is resumed" : `until ${formatInstant(until)}`;
    if (json === true) printJson({ queue, key, ...options });
    else print(`Key ${shown(key)} of queue ${queue} is paused ${how}.`);
  });
}

export async function resumeKey(queue: string, key: string, flags: KeyFlags): Promise<void> {
  const { tenant, json } = flags;
  requireKey(key);
  await withTidemill(flags, async ({ queues }) => {
    const wasPaused = await queues.resumeKey(queue, key, tenant === undefined ? {} : { tenant });
    if (json === true) printJson({ queue, key, wasPaused });
    else print(`Key ${shown(key)} of queue ${queue} ${wasPaused ? "goes on" : "was not paused"}.`);
  });
}

function requireKey(key: string): void {
  if (key === "") throw new UsageError("the key is empty, and no task has such a key");
}
