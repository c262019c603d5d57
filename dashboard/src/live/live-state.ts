import type { ClusterStatus, Queue } from "../api/types.ts";
import type { Connection, FeedSummary, LiveEvent } from "./events.ts";

/** What happened within one second. */
export interface Second {
  /** Seconds since 1970. */
  readonly at: number;
  readonly enqueued: number;
  readonly started: number;
  readonly completed: number;
  /** For good: refused or dead. */
  readonly failed: number;
  readonly retried: number;
  /** In classes; empty for none. */
  readonly waitMs: readonly number[];
  readonly runMs: readonly number[];
}

/** Figures of the whole cluster at one moment. */
export interface Moment {
  readonly at: number;
  /** The same by the clock of the database, which is not always that of this browser. */
  readonly serverAt: number;
  /** Where the log ends. */
  readonly latest: number;
  readonly depth: number;
  readonly oldestSeconds: number;
  readonly lag: number;
  /** Of each consumer, to tell how fast it goes. */
  readonly checkpoints: Readonly<Record<string, number>>;
  /** Of each worker, when it was last heard, by the clock of the database. */
  readonly beats: Readonly<Record<string, number>>;
}

/** Everything that is known of the present, as plain data: it is sent from thread to thread. */
export interface LiveState {
  readonly connection: Connection;
  readonly seconds: readonly Second[];
  readonly moments: readonly Moment[];
  readonly status: ClusterStatus | undefined;
  readonly statusAtMs: number;
  /** Of each queue, how many ended in each of the last seconds. */
  readonly ended: Readonly<Record<string, readonly { at: number; count: number }[]>>;
  /** Of each queue, when it was last seen that somebody takes its tasks. */
  readonly moved: Readonly<Record<string, number>>;
}

export const KEPT_SECONDS = 300;
const RATE_SECONDS = 10;
const QUEUES_MAX = 500;
/** Ages of the same task differ by what two looks took. */
const SAME_SECONDS = 0.5;
/** Of which positions per second are told. */
const PACE_SECONDS = 30;

export const NOTHING_YET: LiveState = {
  connection: { state: "connecting" },
  seconds: [],
  moments: [],
  status: undefined,
  statusAtMs: 0,
  ended: {},
  moved: {},
};

/** The state after an event. */
export function fold(state: LiveState, event: LiveEvent): LiveState {
  switch (event.kind) {
    case "connection":
      return { ...state, connection: event.connection };
    case "summary":
      // What was missed is told in a moment, and would look like a burst.
      if (event.summary.isReplay === true) return state;
      return withSummary(state, event.summary, Math.floor(event.atMs / 1000));
    case "status":
      return withStatus(state, event.status, event.atMs);
    default:
      return state;
  }
}

const emptySecond = (at: number): Second => ({
  at,
  enqueued: 0,
  started: 0,
  completed: 0,
  failed: 0,
  retried: 0,
  waitMs: [],
  runMs: [],
});

function withSummary(state: LiveState, summary: FeedSummary, at: number): LiveState {
  const last = state.seconds.at(-1);
  const isSame = last?.at === at;
  const before = isSame ? last : emptySecond(at);
  const rest = isSame ? state.seconds.slice(0, -1) : state.seconds;
  const kept = rest.filter((second) => second.at > at - KEPT_SECONDS);
  return {
    ...state,
    seconds: [...kept, addTo(before, summary)],
    ended: withEnded(state.ended, summary, at),
    moved: { ...state.moved, ...movedBy(summary, at) },
  };
}

function addTo(second: Second, { counts, retries, waitMs = [], runMs = [] }: FeedSummary): Second {
  const of = (...states: string[]): number =>
    counts.reduce((sum, { state, count }) => sum + (states.includes(state) ? count : 0), 0);
  return {
    at: second.at,
    enqueued: second.enqueued + Math.max(0, of("pending", "scheduled") - retries),
    started: second.started + of("running"),
    completed: second.completed + of("completed"),
    failed: second.failed + of("failed", "dead"),
    retried: second.retried + retries,
    waitMs: addClasses(second.waitMs, waitMs),
    runMs: addClasses(second.runMs, runMs),
  };
}

export function addClasses(a: readonly number[], b: readonly number[]): readonly number[] {
  if (a.length === 0) return b;
  return a.map((count, index) => count + (b[index] ?? 0));
}

function withEnded(
  ended: LiveState["ended"],
  { counts }: FeedSummary,
  at: number,
): LiveState["ended"] {
  const next: Record<string, readonly { at: number; count: number }[]> = {};
  for (const [queue, points] of Object.entries(ended)) {
    const kept = points.filter((point) => point.at > at - RATE_SECONDS);
    if (kept.length > 0) next[queue] = kept;
  }
  for (const { queue, state, count } of counts) {
    if (queue === null || !/^(completed|failed|dead|cancelled)$/.test(state)) continue;
    if (next[queue] === undefined && Object.keys(next).length >= QUEUES_MAX) continue;
    next[queue] = [...(next[queue] ?? []), { at, count }];
  }
  return next;
}

/** Tasks of a queue that ended per second, over the last ten. */
export function rateOf({ ended }: LiveState, queue: string, nowSeconds: number): number {
  const recent = (ended[queue] ?? []).filter(({ at }) => at > nowSeconds - RATE_SECONDS);
  return recent.reduce((sum, { count }) => sum + count, 0) / RATE_SECONDS;
}

function movedBy({ counts }: FeedSummary, at: number): Record<string, number> {
  const moves = counts.filter(({ state }) => /^(running|completed|failed|dead)$/.test(state));
  return Object.fromEntries(moves.flatMap(({ queue }) => (queue === null ? [] : [[queue, at]])));
}

function withStatus(state: LiveState, status: ClusterStatus, atMs: number): LiveState {
  const at = atMs / 1000;
  const kept = state.moments.filter((moment) => moment.at > at - KEPT_SECONDS);
  return {
    ...state,
    status,
    statusAtMs: atMs,
    moments: [...kept, momentOf(status, at)],
    moved: withMoved(state, status, at),
  };
}

const depthOf = ({ depths = {} }: Queue): number =>
  Object.values(depths).reduce((sum, count) => sum + count, 0);

/** Of other tenants' tasks the feed tells nothing here: what their queues look like does. */
function withMoved(
  { status: before, moved }: LiveState,
  { queues, at: asOf }: ClusterStatus,
  at: number,
): LiveState["moved"] {
  const seconds = before === undefined ? 0 : (Date.parse(asOf) - Date.parse(before.at)) / 1000;
  const known = new Map(before?.queues.map((queue) => [queue.name, queue]));
  const next: Record<string, number> = {};
  for (const queue of queues) {
    const last = known.get(queue.name);
    const isNow =
      (queue.running ?? 0) > 0 || (last !== undefined && hasMoved(last, queue, seconds));
    const movedAt = isNow ? at : moved[queue.name];
    if (movedAt !== undefined) next[queue.name] = movedAt;
  }
  return next;
}

/** Whether there are fewer tasks, or the first that waits is another one. */
function hasMoved(last: Queue, queue: Queue, seconds: number): boolean {
  if (depthOf(queue) < depthOf(last)) return true;
  const [was, is] = [last.oldestPendingSeconds, queue.oldestPendingSeconds];
  return was !== undefined && (is === undefined || is < was + seconds - SAME_SECONDS);
}

function momentOf(status: ClusterStatus, at: number): Moment {
  const { queues, consumers, workers, latestPosition } = status;
  const serverAt = Date.parse(status.at) / 1000;
  const heard = workers.filter(({ status }) => status === "active" || status === "draining");
  return {
    at,
    serverAt,
    latest: Number(latestPosition),
    depth: queues.reduce((sum, queue) => sum + depthOf(queue), 0),
    oldestSeconds: Math.max(0, ...queues.map((queue) => queue.oldestPendingSeconds ?? 0)),
    lag: Math.max(0, ...consumers.map((consumer) => Number(consumer.lag))),
    checkpoints: Object.fromEntries(
      consumers.map(({ name, checkpoint }) => [name, Number(checkpoint)]),
    ),
    beats: Object.fromEntries(heard.map((one) => [one.id, serverAt - one.heartbeatAgeSeconds])),
  };
}

/** Positions per second of a consumer, over the last half minute; undefined until it is known. */
export function consumerRate({ moments }: LiveState, name: string): number | undefined {
  const last = moments.at(-1);
  const to = last?.checkpoints[name];
  if (last === undefined || to === undefined) return undefined;
  const first = moments.find(({ at, checkpoints }) => {
    const from = checkpoints[name];
    return at >= last.at - PACE_SECONDS && at < last.at && from !== undefined && from <= to;
  });
  const from = first?.checkpoints[name];
  if (first === undefined || from === undefined) return undefined;
  return (to - from) / (last.at - first.at);
}

/** Positions per second that are appended to the log, over the same time; 0 until it is known. */
export function appendRate({ moments }: LiveState): number {
  const last = moments.at(-1);
  const first = moments.find(({ at }) => last !== undefined && at >= last.at - PACE_SECONDS);
  if (first === undefined || last === undefined || first === last) return 0;
  return Math.max(0, (last.latest - first.latest) / (last.at - first.at));
}
