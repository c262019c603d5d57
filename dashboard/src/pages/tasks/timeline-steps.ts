import type { Failure, Task } from "../../api/types.ts";

/** One thing that happened to a task. */
export interface TimelineStep {
  readonly at: string;
  readonly what: string;
  readonly tone: "calm" | "busy" | "good" | "warn" | "bad";
  readonly detail?: string;
  readonly stack?: string;
}

const OUTCOMES: Readonly<Record<string, string>> = {
  failed: "failed",
  nack: "was put back by its handler",
  abandon: "was given back",
  lost: "was lost with its worker",
  timeout: "took too long",
};

const ENDS: Readonly<Record<string, Pick<TimelineStep, "what" | "tone">>> = {
  completed: { what: "Completed", tone: "good" },
  failed: { what: "Refused for good", tone: "bad" },
  dead: { what: "Died", tone: "bad" },
  cancelled: { what: "Cancelled", tone: "warn" },
};

const on = (worker: string | undefined): string => (worker === undefined ? "" : ` on ${worker}`);

/** What became of a task from its first day on, oldest first. */
export function timelineOf(task: Task, failures: readonly Failure[]): TimelineStep[] {
  const steps: TimelineStep[] = [
    { at: task.createdAt, what: `Enqueued into ${task.queue}`, tone: "calm" },
    ...failures.map(
      (failure): TimelineStep => ({
        at: failure.at,
        what:
          `Attempt ${failure.attempt} ${OUTCOMES[failure.outcome] ?? failure.outcome}` +
          on(failure.workerId),
        tone: failure.outcome === "abandon" ? "warn" : "bad",
        detail: failure.reason,
        ...(failure.stack === undefined ? {} : { stack: failure.stack }),
      }),
    ),
    ...claimOf(task, failures),
    ...endOf(task, failures),
  ];
  return steps.toSorted((a, b) => Date.parse(a.at) - Date.parse(b.at));
}

/**
 * The last claim, the only one whose instant is kept; it has no failure of its own. Attempts are
 * counted anew after a redrive, so it is time that tells an old failure from one of this claim.
 */
function claimOf(task: Task, failures: readonly Failure[]): TimelineStep[] {
  const { claimedAt, workerId, generation, attempt, state } = task;
  if (claimedAt === undefined) return [];
  const hasFailed = failures.some(({ at }) => Date.parse(at) >= Date.parse(claimedAt));
  if (hasFailed && state !== "running" && state !== "dead") return [];
  return [
    {
      at: claimedAt,
      what: `Claimed${workerId === undefined ? "" : ` by ${workerId}`}`,
      tone: "busy",
      detail: `attempt ${attempt}, generation ${generation}`,
    },
  ];
}

const CAUSES: Readonly<Record<string, string>> = {
  attempts_exhausted: "out of attempts",
  worker_lost: "its workers were lost with it",
  invalid_payload: "its payload is not valid",
};

function endOf(task: Task, failures: readonly Failure[]): TimelineStep[] {
  const end = ENDS[task.state];
  if (end === undefined || task.finishedAt === undefined) return [];
  const isTold = failures.some(({ reason }) => reason === task.reason);
  const cause = CAUSES[task.cause ?? ""];
  return [
    {
      at: task.finishedAt,
      what: cause === undefined ? end.what : `${end.what}: ${cause}`,
      tone: end.tone,
      ...(task.reason === undefined || isTold ? {} : { detail: task.reason }),
    },
  ];
}
