import type {
  ClusterStatus,
  Consumer,
  FailingSchedule,
  FeedHeld,
  GapHolder,
  Queue,
  Worker,
} from "../../api/types.ts";
import { formatCount, formatSeconds, plural, pluralCut, shortId } from "../../format.ts";
import type { LiveState } from "../../live/live-state.ts";
import { watchedSeconds } from "../../live/watched.ts";
import { describeParked } from "../consumers/parked-text.ts";
import { timingOf } from "../ring/beats.ts";

/** Something that a person should know, in words, with the next step. */
export interface ProblemNote {
  readonly key: string;
  readonly severity: "bad" | "warn";
  readonly what: string;
  readonly next: string;
  /** Where the next step is taken. */
  readonly href?: string;
}

/** A younger gap is an append in flight, and no news. */
const FRESH_SECONDS = 1;
/** Beside two heartbeats, of which one was missed. */
const LATE_BEAT_SECONDS = 1;
const DEAD_SHOWN_SECONDS = 600;
const LONG_WAIT_SECONDS = 60;
/** A queue in which nothing moved for less may just be between two tasks. */
const STILL_SECONDS = 10;
/** Of the starts that its rate allows, so many were missed before it counts as stuck. */
const STARTS_MISSED = 3;

/** For how long the cluster was watched, and how long ago each queue was seen to move. */
export interface Motion {
  readonly watchedSeconds: number;
  readonly movedAgo: Readonly<Record<string, number>>;
}

export const UNWATCHED: Motion = { watchedSeconds: 0, movedAgo: {} };

export function motionOf({ moments, moved, statusAtMs }: LiveState): Motion {
  const now = statusAtMs / 1000;
  const ago = Object.entries(moved).map(([queue, at]) => [queue, Math.max(0, now - at)] as const);
  return { watchedSeconds: watchedSeconds(moments), movedAgo: Object.fromEntries(ago) };
}

/** Everything that is wrong, the worst first. */
export function problemsOf(status: ClusterStatus, motion = UNWATCHED): ProblemNote[] {
  const all = [
    ...leaderProblems(status),
    ...feedProblems(status.feedHeld),
    ...gapProblems(status),
    ...status.consumers.flatMap(consumerProblems),
    ...status.queues.flatMap((queue) => queueProblems(queue, status, motion)),
    ...status.failingSchedules.map(scheduleProblem),
    ...status.workers.flatMap(workerProblems),
  ];
  return [
    ...all.filter(({ severity }) => severity === "bad"),
    ...all.filter(({ severity }) => severity === "warn"),
  ];
}

function leaderProblems({ leader, workers }: ClusterStatus): ProblemNote[] {
  const isAlive = workers.some(({ status }) => status === "active");
  if (!isAlive) {
    return [
      {
        key: "workers",
        severity: "bad",
        what: "No worker is running: nothing is processed.",
        next: "Start a worker, or look why the last ones stopped.",
      },
    ];
  }
  if (leader.workerId !== undefined) return [];
  return [
    {
      key: "leader",
      severity: "warn",
      what: "Nobody leads: consumers are not assigned, and delayed tasks do not become due.",
      next: "An active worker takes over within seconds. If it does not, look at its log.",
    },
  ];
}

function gapProblems({ openGaps, consumers }: ClusterStatus): ProblemNote[] {
  const { positions, holders } = openGaps;
  const [first] = positions;
  const oldest = holders.toSorted((a, b) => b.ageSeconds - a.ageSeconds)[0];
  if (first === undefined || (oldest !== undefined && oldest.ageSeconds < FRESH_SECONDS)) return [];
  const waiting = consumers.filter(
    ({ checkpoint, state }) => state === "running" && BigInt(checkpoint) < BigInt(first),
  );
  const who =
    waiting.length === 1 ? `Consumer ${waiting[0]?.name} is` : "Consumers that come there are";
  const held = `${who} held at position ${formatCount(first)}`;
  if (oldest === undefined) {
    return [
      {
        key: "gap",
        severity: "warn",
        what: `${held}, and nobody is visible who could hold it.`,
        next: "It closes by itself.",
      },
    ];
  }
  return [
    {
      key: "gap",
      severity: "bad",
      what: `${held} by ${describeHolder(oldest)}.`,
      next: endHolder(oldest),
    },
  ];
}

function feedProblems(held: FeedHeld | undefined): ProblemNote[] {
  if (held === undefined) return [];
  const [oldest] = held.holders;
  const by = oldest === undefined ? "an open transaction" : describeHolder(oldest);
  return [
    {
      key: "feed",
      severity: "bad",
      what:
        `The feed is held for ${formatSeconds(held.seconds)} by ${by}, which changed tasks: ` +
        "what was changed after that is not shown live.",
      next: oldest === undefined ? "It goes on when that ends." : endHolder(oldest),
    },
  ];
}

function endHolder({ pid, application }: GapHolder): string {
  return pid === null
    ? `Commit or roll back the prepared transaction ${application ?? ""}.`
    : `Let it finish, or end it: SELECT pg_terminate_backend(${pid})`;
}

function describeHolder({ pid, application, user, state, ageSeconds }: GapHolder): string {
  const who = pid === null ? `prepared transaction ${application ?? ""}` : `pid ${pid}`;
  const from = pid !== null && application ? ` (${application}${user ? `, ${user}` : ""})` : "";
  return `${who}${from}, ${state ?? "open"} for ${formatSeconds(ageSeconds)}`;
}

function consumerProblems(consumer: Consumer): ProblemNote[] {
  const { name, state, poison, reason, lag, parkedEvents } = consumer;
  const href = `/consumers?name=${encodeURIComponent(name)}`;
  const notes: ProblemNote[] = [];
  const note = (key: string, severity: ProblemNote["severity"], what: string, next: string) =>
    notes.push({ key: `${key}:${name}`, severity, what, next, href });
  if (state === "quarantined") {
    const at = poison === undefined ? "" : ` at position ${formatCount(poison.position)}`;
    const failures = poison === undefined ? "" : ` after ${plural(poison.failures, "failure")}`;
    const error = poison?.error ?? reason ?? "no error was recorded";
    note(
      "quarantine",
      "bad",
      `Consumer ${name} stopped${at}${failures}: ${error}`,
      "Fix its handler and resume it, or skip the event for ever.",
    );
  }
  if (state === "paused") {
    const why = reason === undefined ? "" : ` (${reason})`;
    note(
      "paused",
      "warn",
      `Consumer ${name} is paused${why}, ${plural(Number(lag), "event")} behind.`,
      "Resume it when it may go on.",
    );
  }
  if (state === "unassigned" && BigInt(lag) > 0n) {
    note(
      "unassigned",
      "bad",
      `No worker runs consumer ${name}, which is ${plural(Number(lag), "event")} behind.`,
      "Start a worker that has it.",
    );
  }
  if (parkedEvents > 0) {
    note(
      "parked",
      "warn",
      `Consumer ${name} has set aside ${describeParked(consumer)}.`,
      "Fix its handler; to resume it replays them in order.",
    );
  }
  return notes;
}

/** Whether tasks wait for long although some could have been started. */
function isStuck(queue: Queue, { workers }: ClusterStatus, motion: Motion): boolean {
  const { name, limits, running = 0, oldestPendingSeconds: waits = 0 } = queue;
  if (waits <= LONG_WAIT_SECONDS || running > 0 || workers.length === 0) return false;
  const rates = [limits.rate, limits.keyRate].filter((rate) => rate !== null);
  const needed = Math.max(
    STILL_SECONDS,
    ...rates.map(({ count, seconds }) => (STARTS_MISSED * seconds) / count),
    // What a rate lets through all at once comes again when its time is over.
    ...rates.map(({ seconds }) => seconds),
  );
  // One that is limited runs nothing most of the time: it takes a while to see that it stands.
  if (rates.length > 0 && motion.watchedSeconds < needed) return false;
  return (motion.movedAgo[name] ?? Number.POSITIVE_INFINITY) >= needed;
}

function queueProblems(queue: Queue, status: ClusterStatus, motion: Motion): ProblemNote[] {
  const { name, isPaused, pauseReason, limits, depths = {}, dead = 0, isDeadCut = false } = queue;
  const depth = Object.values(depths).reduce((sum, count) => sum + count, 0);
  const notes: ProblemNote[] = [];
  const named = encodeURIComponent(name);
  if (isPaused) {
    const why = pauseReason === undefined ? "" : ` (${pauseReason})`;
    notes.push({
      key: `queue-paused:${name}`,
      severity: "warn",
      what: `Queue ${name} is paused${why} with ${plural(depth, "task")} in it.`,
      next: "Resume it when it may go on.",
      href: "/queues",
    });
  } else if (limits.concurrency === 0 && depth > 0) {
    notes.push({
      key: `queue-shut:${name}`,
      severity: "warn",
      what: `Queue ${name} has a limit of 0 at once, with ${plural(depth, "task")} in it.`,
      next: "Raise its limit when they may run.",
      href: "/queues",
    });
  } else if (isStuck(queue, status, motion)) {
    const waits = formatSeconds(queue.oldestPendingSeconds ?? 0);
    notes.push({
      key: `queue-stuck:${name}`,
      severity: "bad",
      what: `Nobody takes tasks of queue ${name}: the oldest waits for ${waits}.`,
      next: "Open one of its tasks to see why it does not run.",
      href: `/tasks?queue=${named}&state=pending`,
    });
  }
  if (dead > 0) {
    notes.push({
      key: `dead:${name}`,
      severity: "warn",
      what: `${pluralCut(dead, isDeadCut, "task")} of queue ${name} died.`,
      next: "See what those of this token's tenant died of, and redrive them.",
      href: `/dead-letters?queue=${named}`,
    });
  }
  return notes;
}

function scheduleProblem({ tenant, name, error }: FailingSchedule): ProblemNote {
  return {
    key: `schedule:${tenant}:${name}`,
    severity: "warn",
    what: `Schedule ${name} of tenant ${tenant} cannot fire: ${error}`,
    next: "It keeps its tick and tries again. Look at the error.",
    href: "/schedules",
  };
}

function workerProblems(worker: Worker): ProblemNote[] {
  const { id, status, host, pid, heartbeatAgeSeconds: age } = worker;
  const who = `Worker ${shortId(id)}${host === undefined ? "" : ` (${host}, pid ${pid})`}`;
  if (status === "dead" && age < DEAD_SHOWN_SECONDS) {
    return [
      {
        key: `worker:${id}`,
        severity: "warn",
        what: `${who} died: it was last heard ${formatSeconds(age)} ago.`,
        next: "What it had runs elsewhere. Look at its log for the reason.",
      },
    ];
  }
  const lateSeconds = 2 * timingOf(worker).heartbeatSeconds + LATE_BEAT_SECONDS;
  if (status !== "active" || age < lateSeconds) return [];
  return [
    {
      key: `worker:${id}`,
      severity: "warn",
      what: `${who} is late with its heartbeat: ${formatSeconds(age)}.`,
      next: "Its process hangs, is starved of CPU, or cannot reach the database.",
    },
  ];
}
