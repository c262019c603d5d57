import type { TaskContext } from "../../src/tasks/context.ts";
import { queue, type TaskHandler } from "../../src/tasks/queue.ts";
import type { Task } from "../../src/tasks/task.ts";
import type { Random } from "../support/random.ts";
import { QUEUE } from "./producer.ts";
import type { SimProcess } from "./sim-process.ts";
import type { Timeline } from "./timeline.ts";

/** One call of a handler. */
export interface Call {
  readonly taskId: number;
  readonly claimId: string;
  readonly key: string | undefined;
  readonly workerId: string;
  readonly process: SimProcess;
  readonly startedAt: number;
  readonly signal: AbortSignal;
  isOver: boolean;
}

export interface HandlerOptions {
  readonly timeline: Timeline;
  readonly random: Random;
  readonly process: SimProcess;
  readonly leaseMs: number;
  readonly onCall: (call: Call) => void;
}

const work = queue(QUEUE, {
  maxAttempts: 1_000,
  maxLosses: 1_000,
  backoff: { kind: "fixed", baseSeconds: 1, maxSeconds: 1 },
});

/** Takes a while, sometimes longer than its lease, fails now and then, and may not heed its end. */
export function makeHandler(options: HandlerOptions): TaskHandler {
  const { timeline, random, process, leaseMs, onCall } = options;
  const run = async (task: Task, { signal, token, workerId }: TaskContext): Promise<void> => {
    const call: Call = {
      taskId: Number(task.id),
      claimId: token.claimId,
      key: task.partitionKey,
      workerId,
      process,
      startedAt: timeline.now,
      signal,
      isOver: false,
    };
    onCall(call);
    const isLong = random.chance(0.05);
    const takesMs = random.next() * (isLong ? 2 * leaseMs : 150);
    const heeds = random.chance(0.5);
    const fails = random.chance(0.08);
    try {
      await new Promise<void>((resolve) => {
        process.clock.after(takesMs, resolve);
        if (heeds) signal.addEventListener("abort", () => resolve(), { once: true });
      });
    } finally {
      call.isOver = true;
    }
    if (fails) throw new Error("as drawn");
  };
  return work.handle(run);
}
