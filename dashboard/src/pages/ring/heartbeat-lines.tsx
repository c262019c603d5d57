import type { ReactNode } from "react";
import type { Worker } from "../../api/types.ts";
import { formatInstant, formatSeconds, plural, shortId } from "../../format.ts";
import { useNow } from "../../live/hooks.ts";
import type { LiveState } from "../../live/live-state.ts";
import { type Span, skewOf, unwatchedOf } from "../../live/watched.ts";
import { Empty, Panel } from "../../ui/panel.tsx";
import { State } from "../../ui/state.tsx";
import { type Lifeline, lifelineOf, type Mark, type MarkKind, type Timing } from "./beats.ts";

const PAST_SECONDS = 120;
const KEPT_SECONDS = 300;

const ROW = "grid gap-x-3 gap-y-1 sm:grid-cols-[11rem_1fr]";

/** Failures are red and stand out by their form as well; ends of them are green. */
const LOOKS: Readonly<Record<MarkKind, { readonly color: string; readonly path: string }>> = {
  joined: { color: "var(--good)", path: "M-3 3L3 3L0 -3Z" },
  late: { color: "var(--warn)", path: "M0 -4L4 0L0 4L-4 0Z" },
  lost: {
    color: "var(--bad)",
    path: "M-4 -2.6L-2.6 -4L0 -1.4L2.6 -4L4 -2.6L1.4 0L4 2.6L2.6 4L0 1.4L-2.6 4L-4 2.6L-1.4 0Z",
  },
  back: { color: "var(--good)", path: "M-4 0L-2.6 -1.4L-1 0.2L2.6 -3.4L4 -2L-1 3Z" },
  dead: { color: "var(--bad)", path: "M-3.5 -3.5L3.5 -3.5L3.5 3.5L-3.5 3.5Z" },
  stopped: { color: "var(--muted)", path: "M-3.5 -3.5L3.5 -3.5L3.5 3.5L-3.5 3.5Z" },
};

const KINDS: readonly (readonly [MarkKind, string])[] = [
  ["joined", "joined"],
  ["late", "late"],
  ["lost", "silent for longer than its time to live"],
  ["back", "heard again"],
  ["dead", "found dead"],
  ["stopped", "stopped"],
];

/** When each worker was heard, and what its silence would mean, drawn to scale. */
export function HeartbeatLines({ live: { status, moments } }: { live: LiveState }) {
  const now = useNow() + skewOf(moments);
  const unwatched = unwatchedOf(moments, now).filter(({ to }) => to > now - PAST_SECONDS);
  const shown = (status?.workers ?? []).filter(
    ({ endedAt }) => endedAt === undefined || Date.parse(endedAt) / 1000 > now - KEPT_SECONDS,
  );
  const lines = shown.map((worker) => ({ worker, line: lifelineOf(worker, moments) }));
  const ahead = Math.max(10, ...lines.map(({ line }) => line.timing.leaseSeconds));
  return (
    <Panel title="Heartbeats of the last two minutes">
      {shown.length === 0 ? <Empty>No worker is running.</Empty> : <Key />}
      {shown.length === 0 || unwatched.length === 0 ? null : (
        <p className="mb-3 text-xs text-muted">{describeUnwatched(unwatched, now)}</p>
      )}
      <ul className="flex flex-col gap-3">
        {lines.map(({ worker, line }) => (
          <li key={worker.id} className={ROW}>
            <span className="flex items-center gap-2">
              <code title={worker.id}>{shortId(worker.id)}</code> <State name={worker.status} />
            </span>
            <Line worker={worker} line={line} now={now} ahead={ahead} unwatched={unwatched} />
            <p className="text-xs text-muted sm:col-start-2">{describe(worker, line, now)}</p>
          </li>
        ))}
      </ul>
    </Panel>
  );
}

/** What the drawing means. */
function Key() {
  return (
    <ul className="mb-4 flex flex-wrap gap-x-4 gap-y-1 text-xs text-muted">
      <li>
        <Sample>
          <line x1="7" y1="1" x2="7" y2="13" stroke="var(--series-1)" strokeWidth="2" />
        </Sample>
        heartbeat
      </li>
      <li>
        <Sample>
          <rect x="0" y="3" width="14" height="8" fill="var(--series-1)" opacity="0.3" />
        </Sample>
        time to live
      </li>
      <li>
        <Sample>
          <rect x="0" y="6" width="14" height="2" fill="var(--series-2)" />
        </Sample>
        leases of its tasks, at the longest
      </li>
      <li>
        <Sample>
          <rect x="0" y="0" width="14" height="14" fill="var(--muted)" opacity="0.25" />
        </Sample>
        nobody looked
      </li>
      {KINDS.map(([kind, text]) => (
        <li key={kind}>
          <Sample>
            <path d={LOOKS[kind].path} fill={LOOKS[kind].color} transform="translate(7 7)" />
          </Sample>
          {text}
        </li>
      ))}
    </ul>
  );
}

function Sample({ children }: { children: ReactNode }) {
  return (
    <svg width="14" height="14" aria-hidden="true" className="mr-1 inline align-[-2px]">
      {children}
    </svg>
  );
}

interface LineProps {
  readonly worker: Worker;
  readonly line: Lifeline;
  readonly now: number;
  /** Seconds drawn behind now. */
  readonly ahead: number;
  readonly unwatched: readonly Span[];
}

const HEIGHT = 24;
const MIDDLE = HEIGHT / 2;

function Line({ worker, line: { beats, timing, marks }, now, ahead, unwatched }: LineProps) {
  const since = now - PAST_SECONDS;
  const all = PAST_SECONDS + ahead;
  const percent = (at: number): string => `${(((at - since) / all) * 100).toFixed(3)}%`;
  const width = (seconds: number): string => `${((seconds / all) * 100).toFixed(3)}%`;
  const isOver = worker.status === "stopped";
  const last = beats.at(-1);
  const shown = marks.filter(({ at }) => at >= since && at <= now);
  return (
    <svg
      role="img"
      aria-label={`Heartbeats of ${shortId(worker.id)}, drawn to scale`}
      className="h-6 w-full overflow-visible"
    >
      <line x1="0" y1={MIDDLE} x2="100%" y2={MIDDLE} stroke="var(--line)" />
      <line
        x1={percent(now)}
        x2={percent(now)}
        y1="0"
        y2={HEIGHT}
        stroke="var(--muted)"
        strokeDasharray="2 2"
      />
      {last === undefined || isOver || last < since ? null : (
        <Reach x={percent(last)} timing={timing} width={width} />
      )}
      {beats
        .filter((at) => at >= since)
        .map((at) => (
          <line
            key={at}
            x1={percent(at)}
            x2={percent(at)}
            y1="3"
            y2={HEIGHT - 3}
            stroke="var(--series-1)"
            strokeWidth="2"
          />
        ))}
      {unwatched.map(({ from, to }) => (
        <rect
          key={to}
          x={percent(Math.max(from, since))}
          y="0"
          width={width(to - Math.max(from, since))}
          height={HEIGHT}
          fill="var(--muted)"
          opacity="0.25"
        />
      ))}
      {shown.map((mark) => (
        <MarkShape key={`${mark.kind}-${mark.at}`} mark={mark} x={percent(mark.at)} />
      ))}
    </svg>
  );
}

interface ReachProps {
  readonly x: string;
  readonly timing: Timing;
  readonly width: (seconds: number) => string;
}

/** How far the last heartbeat reaches. */
function Reach({ x, timing, width }: ReachProps) {
  return (
    <>
      <rect
        x={x}
        y={MIDDLE - 6}
        width={width(timing.timeoutSeconds)}
        height="12"
        fill="var(--series-1)"
        opacity="0.3"
      />
      <rect
        x={x}
        y={MIDDLE - 1}
        width={width(timing.leaseSeconds)}
        height="2"
        fill="var(--series-2)"
      />
    </>
  );
}

function MarkShape({ mark, x }: { mark: Mark; x: string }) {
  const { color, path } = LOOKS[mark.kind];
  return (
    <svg x={x} y={MIDDLE} className="overflow-visible">
      <path d={path} fill={color} stroke="var(--panel)" strokeWidth="1" transform="scale(1.4)" />
    </svg>
  );
}

const exact = (seconds: number): string => formatSeconds(seconds).replace(".0 ", " ");

const clock = (at: number): string => formatInstant(at * 1000).replace(/^.*, /, "");

/** What became of workers meanwhile is not known, and no silence. */
function describeUnwatched(spans: readonly Span[], now: number): string {
  const texts = spans.map(({ from, to }) =>
    from < now - KEPT_SECONDS
      ? `before ${clock(to)}`
      : to === now
        ? `since ${clock(from)}`
        : `from ${clock(from)} to ${clock(to)}`,
  );
  return `Nobody looked ${texts.join(", ")}: what is drawn grey is not known.`;
}

function sentence({ kind, at, seconds = 0 }: Mark): string {
  const long = formatSeconds(seconds);
  if (kind === "late") return `late at ${clock(at)} (${long})`;
  if (kind === "lost") return `silent for ${long}, over its time to live at ${clock(at)}`;
  if (kind === "back") return `heard again at ${clock(at)}`;
  if (kind === "dead") return `found dead at ${clock(at)}`;
  return `${kind} at ${clock(at)}`;
}

/** The same in words. */
function describe(worker: Worker, { beats, timing, marks }: Lifeline, now: number): string {
  const { heartbeatSeconds, timeoutSeconds, leaseSeconds } = timing;
  const seen = beats.filter((at) => at >= now - PAST_SECONDS);
  const recent = marks.filter(({ at }) => at >= now - KEPT_SECONDS && at <= now).map(sentence);
  const rule =
    `beats every ${exact(heartbeatSeconds)}, may be silent for ${exact(timeoutSeconds)}, ` +
    `leases ${exact(leaseSeconds)}`;
  const heard = worker.status === "stopped" ? "" : `${plural(seen.length, "heartbeat")} seen; `;
  return [`${heard}${rule}`, ...recent].join("; ");
}
