import { TimeoutError } from "../../base/errors.ts";
import { withoutUndefined } from "../../base/options.ts";
import type { ScheduleTaskOptions } from "../../schedules/schedule.ts";
import type { TaskOptions } from "../../tasks/new-task.ts";
import type { TaskState } from "../../tasks/task.ts";
import type { Tidemill } from "../../worker/tidemill.ts";
import { requireQueue } from "../find-queue.ts";
import { callOf, type HttpFlags } from "../http-flags.ts";
import type { GlobalFlags } from "../options.ts";
import { print, printJson, toJson } from "../output.ts";
import { readPayload } from "../payload.ts";
import { withTidemill } from "../session.ts";
import { pageLines, taskDocument, taskLines } from "../task-view.ts";
import { shown } from "../text.ts";

/** What a task may be given, by `task enqueue` and by schedules. */
export interface TaskFlags extends HttpFlags {
  readonly kind?: string;
  readonly priority?: TaskOptions["priority"];
  readonly key?: string;
  readonly maxAttempts?: number;
  readonly timeout?: number;
  readonly webhook?: string;
  readonly tenant?: string;
}

export function taskOptions(flags: TaskFlags): ScheduleTaskOptions & { readonly tenant?: string } {
  return withoutUndefined({
    kind: flags.kind,
    priority: flags.priority,
    partitionKey: flags.key,
    maxAttempts: flags.maxAttempts,
    timeoutSeconds: flags.timeout,
    webhook: flags.webhook,
    tenant: flags.tenant,
    ...callOf(flags),
  });
}

interface Documented extends GlobalFlags {
  readonly json?: boolean;
}

export interface EnqueueFlags extends Documented, TaskFlags {
  readonly runAt?: Date;
  readonly delay?: number;
  readonly idempotencyKey?: string;
  readonly wait?: boolean;
  readonly waitTimeout: number;
}

export async function enqueueTask(
  queue: string,
  given: string,
  flags: EnqueueFlags,
): Promise<void> {
  const payload = await readPayload(given);
  const options = withoutUndefined({
    ...taskOptions(flags),
    runAt: flags.runAt,
    delaySeconds: flags.delay,
    idempotencyKey: flags.idempotencyKey,
  }) as TaskOptions;
  await withTidemill(flags, async (mill) => {
    const { id } = await mill.enqueue(queue, payload, options);
    const isDocument = flags.json === true;
    // At once, and alone on its line: a script may take it while this waits.
    if (!isDocument) print(id);
    if (flags.wait !== true) {
      if (isDocument) printJson({ id, queue });
      return;
    }
    const result = (await resultOf(mill, id, flags.waitTimeout)) ?? null;
    if (isDocument) printJson({ id, queue, result });
    else print(toJson(result, 2));
  });
}

/** A wait that was too short says why the task did not end. */
async function resultOf(mill: Tidemill, id: string, seconds: number): Promise<unknown> {
  try {
    return await mill.result(id, { timeoutMs: seconds * 1_000 });
  } catch (error) {
    if (!(error instanceof TimeoutError)) throw error;
    const why = await mill.tasks.why(id);
    throw new TimeoutError(`task ${id} did not end within ${seconds} s: ${why}`, {
      cause: error,
    });
  }
}

export async function getTask(id: string, flags: Documented): Promise<void> {
  await withTidemill(flags, async ({ tasks }) => {
    const [task, failures] = await Promise.all([tasks.get(id), tasks.failures(id)]);
    if (flags.json === true) {
      printJson({ ...taskDocument(task), failures });
      return;
    }
    const isWaiting = task.state === "pending" || task.state === "scheduled";
    const why = isWaiting ? await tasks.why(id) : undefined;
    print(taskLines(task, failures, why).join("\n"));
  });
}

export interface ListFlags extends Documented {
  readonly queue?: string;
  readonly state?: TaskState;
  readonly key?: string;
  readonly tenant?: string;
  readonly before?: string;
  readonly limit: number;
}

export async function listTasks(flags: ListFlags): Promise<void> {
  const { queue, state, key: partitionKey, tenant, before, limit } = flags;
  await withTidemill(flags, async (mill) => {
    if (queue !== undefined) await requireQueue(mill, queue);
    const options = withoutUndefined({ queue, state, partitionKey, tenant, before, limit });
    const tasks = await mill.tasks.list(options);
    if (flags.json === true) printJson(tasks.map(taskDocument));
    else print(pageLines(tasks, limit, "No such task.").join("\n"));
  });
}

export async function cancelTask(
  id: string,
  flags: Documented & { readonly reason?: string },
): Promise<void> {
  const { reason, json } = flags;
  await withTidemill(flags, async ({ tasks }) => {
    const state = await tasks.cancel(id, reason === undefined ? {} : { reason });
    if (json === true) printJson({ id, state });
    else if (state === "cancelled") print(`Task ${id} is cancelled.`);
    else print(`Task ${id} is running; its handler is told to stop.`);
  });
}

export async function retryTask(id: string, flags: Documented): Promise<void> {
  await withTidemill(flags, async ({ tasks }) => {
    const { state: before } = await tasks.get(id);
    await tasks.retry(id);
    if (flags.json === true) printJson({ id, before });
    else print(`Task ${id} was ${before}, and runs as soon as a worker has a free slot.`);
  });
}

export async function explainTask(id: string, flags: Documented): Promise<void> {
  await withTidemill(flags, async ({ tasks }) => {
    const why = await tasks.why(id);
    if (flags.json === true) printJson({ id, why });
    else print(`Task ${id}: ${shown(why)}`);
  });
}
