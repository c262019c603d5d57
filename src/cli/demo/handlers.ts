import { systemClock } from "../../base/clock.ts";
import type { TaskContext } from "../../tasks/context.ts";
import type { Queue, TaskHandler } from "../../tasks/queue.ts";
import { LeaseLostError, type Task } from "../../tasks/task.ts";
import type { Tidemill } from "../../worker/tidemill.ts";
import { type DemoNames, readNow, saveEffect, saveReport } from "../sql/demo.ts";
import { type Letter, receipts, refunds, reports } from "./shop.ts";

/** A completion that came too late. */
export interface Refused {
  readonly task: string;
  readonly queue: string;
  readonly generation: number;
}

export interface HandlerParts {
  readonly mill: Tidemill;
  readonly names: DemoNames;
  /** One is being written. */
  readonly onLetter: () => void;
  readonly onRefused: (refused: Refused) => void;
}

/** So long that a worker which is stopped suddenly has some of it in its hands. */
const WORK_MS = { least: 300, most: 900 };

/**
 * What the shop does for its orders. Each effect is written in the transaction that completes its
 * task: both commit, or neither does.
 */
export function demoHandlers(parts: HandlerParts): TaskHandler[] {
  return [letters(receipts, parts), letters(refunds, parts), reporter(parts)];
}

function letters(queue: Queue<Letter>, parts: HandlerParts): TaskHandler {
  return queue.handle(async (task, context) => {
    const name = nameOf(task);
    const order = task.partitionKey;
    const startedAt = await parts.mill.transaction(readNow);
    parts.onLetter();
    await work();
    await complete(task, context, parts, async (tx) => {
      const effect = { queue: queue.name, name, order, token: context.token, startedAt };
      await saveEffect(tx, parts.names, effect);
    });
  });
}

function reporter(parts: HandlerParts): TaskHandler {
  return reports.handle(async (task, context) => {
    await complete(task, context, parts, (tx) => saveReport(tx, parts.names));
  });
}

/** What a person enqueues by hand may carry anything. */
export function nameOf({ id, payload }: Pick<Task, "id" | "payload">): string {
  const name: unknown = Reflect.get(Object(payload), "name");
  return typeof name === "string" ? name : `by hand ${id}`;
}

type Tx = Parameters<TaskContext["complete"]>[0];

async function complete(
  { id, queue }: Task,
  context: TaskContext,
  { mill, onRefused }: HandlerParts,
  write: (tx: Tx) => Promise<void>,
): Promise<void> {
  try {
    await mill.transaction(async (tx) => {
      await write(tx);
      await context.complete(tx);
    });
  } catch (error) {
    if (error instanceof LeaseLostError) {
      onRefused({ task: id, queue, generation: context.token.generation });
    }
    throw error;
  }
}

/**
 * As a slow printer: it does not hear that the lease was lost. A worker that was paused goes on
 * here as if nothing had been, and it is the fence that stops it.
 */
async function work(): Promise<void> {
  const ms = WORK_MS.least + Math.random() * (WORK_MS.most - WORK_MS.least);
  await new Promise<void>((resolve) => void systemClock.after(ms, resolve));
}
